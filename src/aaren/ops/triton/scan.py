"""The engine of CUDA, experimental: how the Triton kernels are launched.

Under TRITON_INTERPRET=1 they also take CPU tensors, slowly: so they are tested where there is no GPU. Until a
run on a GPU is on record, `auto` does not choose this backend.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from aaren.errors import ShapeError, require_extra
from aaren.ops.state import Items, ScanState, read

# Larger blocks spill hundreds of bytes of registers per thread; these, compiled for CUDA 7.5 to 10.0
# devices, at most 16. Not tuned on a GPU yet.
BLOCK_LENGTH = 16
MAX_BLOCK_WIDTH = 32


def forward(items: Items, initial: ScanState, results: Sequence[Tensor]) -> None:
    """Scan forward in time; see `kernel_operator`."""
    scores, values, mask, log_decay, _ = items
    switches = {"is_masked": mask is not None, "is_decaying": log_decay is not None}
    unread = [scores if x is None else x for x in (mask, log_decay)]
    tensors = (scores, values, *unread, *initial, *results[:6])  # without logs
    _launch("forward", values, initial.m.numel(), tensors, switches)


def backward(
    grads: Sequence[Any],
    items: Items,
    initial: ScanState,
    saved: Sequence[Tensor],
    results: Sequence[Any],  # Any: None where log_decay is
) -> None:
    """Scan backward in time."""
    *for_kernel, final_u = saved
    grad_scores, grad_values, grad_log_decay, *grad_state = results
    values = items.values
    grad_u, grad_w = (
        torch.zeros_like(part) if x is None else x for x, part in zip(grads[1:3], initial[1:], strict=True)
    )
    # Dot products over the width come out in shares, one per block of width, and are summed here: the same
    # bits in every run, as atomic additions would not be.
    num_shares = _num_width_blocks(values.shape[3])
    score_shares, decay_shares = (final_u.new_empty(num_shares, *grad_scores.shape) for _ in range(2))
    first_outputs = read(initial)
    carry = grad_w * final_u.unsqueeze(-1)
    sum_shares = final_u.new_zeros(num_shares, *final_u.shape)
    sum_shares[0] = -grad_u * final_u
    given = (grads[0], values, *for_kernel, first_outputs, carry, sum_shares)
    found = (score_shares, grad_values, decay_shares)
    is_decaying = grad_log_decay is not None
    _launch("backward", values, final_u.numel(), (*given, *found), {"is_decaying": is_decaying})
    grad_scores.copy_(score_shares.sum(0))
    if is_decaying:
        grad_log_decay.copy_(decay_shares.sum(0))
    # The initial state is a token in front. `carry`, G before the first item, is the gradient of its value
    # w / u; with H before the first item that of its score m + log u is carry·value - H, which is dm.
    is_empty, carry_sum = initial.u == 0, sum_shares.sum(0)
    safe = torch.where(is_empty, 1.0, initial.u)
    found_state = ((carry * first_outputs).sum(-1) - carry_sum, -carry_sum / safe, carry / safe.unsqueeze(-1))
    for grad, part in zip(grad_state, found_state, strict=True):
        grad.copy_(part.masked_fill(is_empty if part.ndim == 2 else is_empty.unsqueeze(-1), 0.0))


def _launch(
    name: str, values: Tensor, num_rows: int, tensors: tuple[Tensor, ...], switches: dict[str, bool]
) -> None:
    """Run one program per row of (n, h) and block of the head's width, on the device of the values."""
    require_extra("triton", extra="triton", purpose="backend='triton'")
    from aaren.ops.triton import kernels

    if not values.is_cuda and not kernels.IS_INTERPRETED:
        raise ShapeError(
            f"backend='triton' needs tensors on a CUDA device; got {values.device}. Use backend='fused' on a "
            f"CPU, 'chunked' elsewhere. (For tests, TRITON_INTERPRET=1 in the environment before triton is "
            f"imported lets it run on a CPU, slowly.)"
        )
    if num_rows == 0:
        return
    length, heads, width = values.shape[1:]
    # Triton launches on the current device.
    with torch.cuda.device(values.device) if values.is_cuda else nullcontext():
        getattr(kernels, name)[num_rows, _num_width_blocks(width)](
            *tensors,
            length=length,
            heads=heads,
            width=width,
            block_length=BLOCK_LENGTH,
            block_width=_block_width(width),
            **switches,
        )


def _block_width(width: int) -> int:
    """Return the least power of two that holds the head's width, within what the hardware multiplies well."""
    return min(max(1 << (width - 1).bit_length(), 16), MAX_BLOCK_WIDTH)


def _num_width_blocks(width: int) -> int:
    """Return how many blocks cover the head's width; one for none, since sums have no width."""
    return max(-(-width // _block_width(width)), 1)
