"""The CUDA backend, experimental: torch operators around the Triton kernels, with fake kernels and autograd.

Under TRITON_INTERPRET=1 they also take CPU tensors, slowly: so they are tested where there is no GPU. Until a
run on a GPU is on record, `auto` does not choose this backend. Triton is imported at the first call.
"""

from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType
from typing import Protocol

import torch
from torch import Tensor

from aaren.errors import ShapeError, require_extra
from aaren.ops.kernel_operator import (
    Results,
    call,
    decay_shape,
    define,
    empty_results,
    gradients_of_state,
    register,
)
from aaren.ops.state import ScanState, read
from aaren.shapes import LogDecay, Mask, Scores, SequenceBounds, Values

# Larger blocks spill hundreds of bytes of registers per thread; these, compiled for CUDA 7.5 to 10.0
# devices, at most 16. Not tuned on a GPU yet.
BLOCK_LENGTH = 16
MAX_BLOCK_WIDTH = 32


class Kernel(Protocol):
    """A function that a grid of programs runs."""

    def __getitem__(self, grid: tuple[int, int]) -> Callable[..., None]:
        """Set how many programs run it."""


def scan(
    scores: Scores,
    values: Values,
    mask: Mask | None,
    log_decay: LogDecay | None,
    bounds: SequenceBounds | None,
    initial: ScanState,
) -> tuple[Values, ScanState]:
    """Attend to every prefix, one GPU program per (sequence, head, block of the head's width)."""
    return call(triton_prefix_attention, scores, values, mask, log_decay, bounds, initial)


@define("triton_prefix_attention", "default")
def triton_prefix_attention(
    scores: Tensor,  # (b, t, h) float32 or float64
    values: Tensor,  # (b, t, h, d) the same dtype
    mask: Tensor | None,
    log_decay: Tensor | None,
    bounds: Tensor | None,
    m: Tensor,  # (n, h) float64, initial state
    u: Tensor,
    w: Tensor,
) -> Results:
    """Return outputs, the final m, u, w, and the gates and forgets that the backward pass reads."""
    kernels = _load_kernels(values.device)
    results = empty_results(scores, values, m, u, w)
    _launch(
        kernels.forward,
        values,
        m.numel(),
        scores.contiguous(),
        values.contiguous(),
        scores if mask is None else mask.contiguous(),
        scores if log_decay is None else log_decay.contiguous(),
        _sequence_bounds(bounds, values),
        m.contiguous(),
        u.contiguous(),
        w.contiguous(),
        *results,
        is_masked=mask is not None,
        is_decaying=log_decay is not None,
    )
    return results


@define("triton_prefix_attention_backward", "default")
def triton_prefix_attention_backward(
    grad_outputs: Tensor,
    grad_u: Tensor,
    grad_w: Tensor,
    scores: Tensor,
    values: Tensor,
    mask: Tensor | None,  # noqa: ARG001 - only the second derivative reads it; here the gates know
    log_decay: Tensor | None,
    bounds: Tensor | None,
    m: Tensor,
    u: Tensor,
    w: Tensor,
    outputs: Tensor,
    gates: Tensor,
    forgets: Tensor,
    final_u: Tensor,
) -> Results:
    """Return the gradients of scores, values, log_decay (empty if there is none), m, u, w."""
    kernels = _load_kernels(values.device)
    # Dot products over the width come out in shares, one per block of width, and are summed here: the same
    # bits in every run, as atomic additions would not be.
    num_shares = _num_width_blocks(values.shape[3])
    grad_values = values.new_empty(values.shape)
    score_shares = gates.new_empty(num_shares, *scores.shape)
    decay_shares = gates.new_empty(num_shares, *decay_shape(scores, log_decay))
    first_outputs = read(ScanState(m, u, w)).contiguous()
    carry = (grad_w * final_u.unsqueeze(-1)).contiguous()
    sum_shares = u.new_zeros(num_shares, *u.shape)
    sum_shares[0] = -grad_u * final_u
    _launch(
        kernels.backward,
        values,
        m.numel(),
        grad_outputs.contiguous(),
        values.contiguous(),
        outputs,
        gates,
        forgets,
        _sequence_bounds(bounds, values),
        first_outputs,
        carry,
        sum_shares,
        score_shares,
        grad_values,
        decay_shares,
        is_decaying=log_decay is not None,
    )
    grad_scores, grad_log_decay = (shares.sum(0).to(scores.dtype) for shares in (score_shares, decay_shares))
    grad_state = gradients_of_state(carry, sum_shares.sum(0), first_outputs, u)
    return grad_scores, grad_values, grad_log_decay, *grad_state


register("triton_prefix_attention", "triton_prefix_attention_backward")


def _load_kernels(device: torch.device) -> ModuleType:
    """Import the kernels, or say what is missing."""
    require_extra("triton", extra="triton", purpose="backend='triton'")
    from aaren.ops.triton import kernels as triton_kernels

    if device.type != "cuda" and not triton_kernels.IS_INTERPRETED:
        raise ShapeError(
            f"backend='triton' needs tensors on a CUDA device; got {device}. Use backend='fused' on a CPU, "
            f"'chunked' elsewhere. (For tests, TRITON_INTERPRET=1 in the environment before triton is "
            f"imported lets it run on a CPU, slowly.)"
        )
    return triton_kernels


def _launch(kernel: Kernel, values: Tensor, num_rows: int, *tensors: Tensor, **switches: bool) -> None:
    """Run one program per row of (n, h) and block of the head's width, on the device of the values."""
    if num_rows == 0:
        return
    batch, length, heads, width = values.shape
    # Triton launches on the current device.
    with torch.cuda.device(values.device) if values.is_cuda else nullcontext():
        kernel[num_rows, _num_width_blocks(width)](
            *tensors,
            num_items=batch * length,
            heads=heads,
            width=width,
            block_length=BLOCK_LENGTH,
            block_width=_block_width(width),
            **switches,
        )


def _block_width(width: int) -> int:
    """Return the least power of two that holds the head's width, within what the hardware multiplies well.

    >>> [_block_width(width) for width in (0, 5, 20, 100)]
    [16, 16, 32, 32]
    """
    return min(max(1 << (width - 1).bit_length(), 16), MAX_BLOCK_WIDTH)


def _num_width_blocks(width: int) -> int:
    """Return how many blocks cover the head's width; one for none, since sums have no width.

    >>> [_num_width_blocks(width) for width in (0, 5, 32, 33)]
    [1, 1, 1, 2]
    """
    return max(-(-width // _block_width(width)), 1)


def _sequence_bounds(bounds: Tensor | None, values: Tensor) -> Tensor:
    """Return where sequences begin and end on the flat time axis, (n + 1,)."""
    if bounds is not None:
        return bounds.to(torch.int64).contiguous()
    batch, length = values.shape[:2]
    return torch.arange(batch + 1, device=values.device) * length
