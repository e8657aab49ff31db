"""The CUDA backend, experimental: torch operators around the Triton kernels, with fake kernels and autograd.

The operators mirror those of `fused`, and share their second derivative, through `chunked`.
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
from aaren.ops import fused
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
    dtype = torch.promote_types(torch.promote_types(scores.dtype, values.dtype), torch.float32)
    outputs, m, u, w, _, _ = triton_prefix_attention(
        scores.to(dtype),
        values.to(dtype),
        mask,
        None if log_decay is None else log_decay.to(dtype),
        bounds,
        initial.m,
        initial.u,
        initial.w,
    )
    return outputs, ScanState(m.detach(), u, w)


@torch.library.custom_op("aaren::triton_prefix_attention", mutates_args=())
def triton_prefix_attention(
    scores: Tensor,  # (b, t, h) float32 or float64
    values: Tensor,  # (b, t, h, d) the same dtype
    mask: Tensor | None,
    log_decay: Tensor | None,
    bounds: Tensor | None,
    m: Tensor,  # (n, h) float64, initial state
    u: Tensor,
    w: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return outputs, the final m, u, w, and the gates and forgets that the backward pass reads."""
    kernels = _load_kernels(values.device)
    results = _like_results(scores, values, m, u, w)
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


def _like_results(
    scores: Tensor, values: Tensor, m: Tensor, u: Tensor, w: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return room for outputs, the final m, u, w, gates and forgets."""
    return (
        values.new_empty(values.shape),
        m.new_empty(m.shape),
        u.new_empty(u.shape),
        w.new_empty(w.shape),
        scores.new_empty(scores.shape, dtype=torch.float64),
        scores.new_empty(scores.shape, dtype=torch.float64),
    )


@triton_prefix_attention.register_fake
def _(
    scores: Tensor,
    values: Tensor,
    mask: Tensor | None,  # noqa: ARG001 - a fake kernel has the real one's signature
    log_decay: Tensor | None,  # noqa: ARG001
    bounds: Tensor | None,  # noqa: ARG001
    m: Tensor,
    u: Tensor,
    w: Tensor,
) -> tuple[Tensor, ...]:
    return _like_results(scores, values, m, u, w)


@torch.library.custom_op("aaren::triton_prefix_attention_backward", mutates_args=())
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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of scores, values, log_decay (empty if there is none), m, u, w."""
    kernels = _load_kernels(values.device)
    # Dot products over the width come out in shares, one per block of width, and are summed here: the same
    # bits in every run, as atomic additions would not be.
    num_shares = _num_width_blocks(values.shape[3])
    grad_values = values.new_empty(values.shape)
    score_shares = gates.new_empty(num_shares, *scores.shape)
    decay_shares = gates.new_empty(num_shares, *_decay_shape(scores, log_decay))
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
    # The initial state is a token in front: carry is the gradient of its value w / u, and that of its score
    # m + log u is dm.
    carry_sum = sum_shares.sum(0)
    is_empty = u == 0
    safe = torch.where(is_empty, 1.0, u)
    return (
        score_shares.sum(0).to(scores.dtype),
        grad_values,
        decay_shares.sum(0).to(scores.dtype),
        torch.where(is_empty, 0.0, (carry * first_outputs).sum(-1) - carry_sum),
        torch.where(is_empty, 0.0, -carry_sum / safe),
        torch.where(is_empty.unsqueeze(-1), 0.0, carry / safe.unsqueeze(-1)),
    )


@triton_prefix_attention_backward.register_fake
def _(
    grad_outputs: Tensor,  # noqa: ARG001
    grad_u: Tensor,  # noqa: ARG001
    grad_w: Tensor,  # noqa: ARG001
    scores: Tensor,
    values: Tensor,
    mask: Tensor | None,  # noqa: ARG001
    log_decay: Tensor | None,
    bounds: Tensor | None,  # noqa: ARG001
    m: Tensor,
    u: Tensor,
    w: Tensor,
    outputs: Tensor,  # noqa: ARG001
    gates: Tensor,  # noqa: ARG001
    forgets: Tensor,  # noqa: ARG001
    final_u: Tensor,  # noqa: ARG001
) -> tuple[Tensor, ...]:
    like_decay = scores.new_empty(_decay_shape(scores, log_decay))
    like_state = (part.new_empty(part.shape) for part in (m, u, w))
    return scores.new_empty(scores.shape), values.new_empty(values.shape), like_decay, *like_state


def _save_for_backward(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor | None, ...], output: tuple[Tensor, ...]
) -> None:
    outputs, _, final_u, _, gates, forgets = output
    ctx.set_materialize_grads(False)  # no zeros for gates and forgets, which never leave this file
    ctx.save_for_backward(*inputs, outputs, gates, forgets, final_u)  # type: ignore[arg-type]  # None is fine


def _differentiate(
    ctx: torch.autograd.function.FunctionCtx,
    grad_outputs: Tensor | None,
    grad_m: Tensor | None,  # noqa: ARG001 - m is a normaliser, not a quantity
    grad_u: Tensor | None,
    grad_w: Tensor | None,
    *grad_gates: Tensor | None,  # noqa: ARG001
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # type: ignore[attr-defined]  # torch's own context class lacks it in its types
    _, values, _, log_decay, _, _, u, w, *_ = saved
    grads = triton_prefix_attention_backward(
        torch.zeros_like(values) if grad_outputs is None else grad_outputs,
        torch.zeros_like(u) if grad_u is None else grad_u,
        torch.zeros_like(w) if grad_w is None else grad_w,
        *saved,
    )
    grad_scores, grad_values, grad_log_decay, *grad_state = grads
    return grad_scores, grad_values, None, None if log_decay is None else grad_log_decay, None, *grad_state


triton_prefix_attention.register_autograd(_differentiate, setup_context=_save_for_backward)
# The two backward operators have one signature, so the second derivative is that of `fused`.
triton_prefix_attention_backward.register_autograd(
    fused._differentiate_twice, setup_context=fused._save_for_second_backward
)


def _load_kernels(device: torch.device) -> ModuleType:
    """Import the kernels, or say what is missing."""
    require_extra("triton", extra="triton", purpose="backend='triton'")
    from aaren.ops import triton_kernels

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


def _decay_shape(scores: Tensor, log_decay: Tensor | None) -> tuple[int, ...]:
    return tuple(scores.shape) if log_decay is not None else (0, 0, scores.shape[2])
