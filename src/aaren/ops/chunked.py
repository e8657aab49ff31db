"""Parallel inside blocks, a tree over blocks: plain PyTorch, any device, any number of derivatives.

Inside a block every prefix state is a row of a lower-triangular matrix of weights times the values: one
matmul. Each row is normalised by its own running maximum; a maximum of the whole block would underflow the
rows before it.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aaren.ops.scans import ladner_fischer, prefix_states
from aaren.ops.state import ScanState, decay, join, read
from aaren.shapes import LogDecay, Mask, Scores, Values

BLOCK_LENGTH = 64


def scan(
    scores: Scores, values: Values, mask: Mask | None, log_decay: LogDecay | None, initial: ScanState
) -> tuple[Values, ScanState]:
    """Attend to every prefix, BLOCK_LENGTH items at a time."""
    batch, length, heads, width = values.shape
    if length == 0:
        return values, initial
    dtype = initial.m.dtype
    is_real = scores != -torch.inf
    if mask is not None:
        is_real = is_real & mask.unsqueeze(-1)

    # (b, n, c, h): n blocks of c items; the padding of the last one is masked.
    missing = -length % BLOCK_LENGTH
    blocks = (batch, (length + missing) // BLOCK_LENGTH, BLOCK_LENGTH, heads)
    is_real = F.pad(is_real, (0, 0, 0, missing)).view(blocks)
    scores = F.pad(scores.to(dtype), (0, 0, 0, missing)).view(blocks)
    values = F.pad(values.to(dtype), (0, 0, 0, 0, 0, missing)).view(*blocks, width)
    if log_decay is not None:
        log_decay = F.pad(log_decay.to(dtype), (0, 0, 0, missing)).view(blocks)

    local, since_start = _prefixes_within_blocks(scores, values, is_real, log_decay)
    whole_blocks = ScanState(*(part[:, :, -1] for part in local))
    block_decay = None if since_start is None else since_start[:, :, -1]
    before = prefix_states(ladner_fischer, initial, whole_blocks, block_decay)  # (b, 1 + n, h)

    carried = ScanState(*(part[:, :-1].unsqueeze(2) for part in before))
    if since_start is not None:
        carried = decay(carried, since_start)
    outputs = read(join(carried, local)).view(batch, blocks[1] * BLOCK_LENGTH, heads, width)
    return outputs[:, :length], ScanState(*(part[:, -1] for part in before))


def _prefixes_within_blocks(
    scores: Tensor, values: Tensor, is_real: Tensor, log_decay: Tensor | None
) -> tuple[ScanState, Tensor | None]:
    """Return every in-block prefix state from an empty start, and the decay since the block's start."""
    length = scores.shape[2]
    is_past = torch.ones(length, length, dtype=torch.bool, device=scores.device).tril().unsqueeze(-1)
    sees = is_past & is_real.unsqueeze(2)  # (b, n, k, i, h): prefix k holds item i
    logits = scores.unsqueeze(2)  # (b, n, 1, i, h)
    since_start = None
    values = torch.where(is_real.unsqueeze(-1), values, 0.0)
    is_reset = torch.zeros_like(is_real) if log_decay is None else log_decay == -torch.inf
    if log_decay is not None:
        # What item i has suffered by k is summed for every pair by itself: a difference of two running sums
        # would cancel, and be NaN after a reset.
        is_later = is_past & ~torch.eye(length, dtype=torch.bool, device=scores.device).unsqueeze(-1)
        age = torch.where(is_later, log_decay.unsqueeze(3), 0.0).cumsum(dim=2)  # (b, n, k, i, h)
        sees = sees & (age != -torch.inf)
        logits = logits + age
        since_start = log_decay.cumsum(dim=2)

    lowest = torch.finfo(scores.dtype).min
    logits = torch.where(sees, logits, lowest)
    m = logits.amax(dim=3).detach()
    weights = torch.where(sees, torch.exp(logits - m.unsqueeze(3)), 0.0)
    w: Tensor = _PrefixSums.apply(weights, values, is_reset)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return ScanState(m, weights.sum(dim=3), w), since_start


class _PrefixSums(torch.autograd.Function):
    """Weights (b, n, k, i, h), 0 above the diagonal and across resets, times values (b, n, i, h, d).

    Zero times NaN is NaN: a plain product would carry what is not finite, in a value or in a gradient, to
    prefixes that do not hold it. So it stays out of the product and is put back where it is seen. The
    gradient of values is the same product backward in time.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(weights: Tensor, values: Tensor, is_reset: Tensor) -> Tensor:
        sums = torch.einsum("bnkih,bnihd->bnkhd", weights, torch.where(values.isfinite(), values, 0.0))
        return sums + _seen_beyond_finite(values, is_reset)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # Any: torch's own type
        del output
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        weights, values, is_reset = ctx.saved_tensors
        grad_weights = torch.einsum("bnkhd,bnihd->bnkih", gradient, values)
        # Backward in time, what cut item r off from those before it cuts off item r - 1 from those after it.
        is_reset_backward = F.pad(is_reset.flip(2)[:, :, :-1], (0, 0, 1, 0))
        grad_values: Tensor = _PrefixSums.apply(  # type: ignore[no-untyped-call]  # as above
            weights.transpose(2, 3).flip(2, 3), gradient.flip(2), is_reset_backward
        )
        return grad_weights, grad_values.flip(2), None

    @staticmethod
    def jvp(ctx: Any, of_weights: Tensor | None, of_values: Tensor | None, _: None) -> Tensor:
        weights, values, is_reset = ctx.saved_tensors
        parts: list[Tensor] = []
        if of_weights is not None:
            parts.append(_PrefixSums.apply(of_weights, values, is_reset))  # type: ignore[no-untyped-call]  # as above
        if of_values is not None:
            parts.append(_PrefixSums.apply(weights, of_values, is_reset))  # type: ignore[no-untyped-call]  # as above
        return sum(parts, torch.zeros_like(values))


def _seen_beyond_finite(values: Tensor, is_reset: Tensor) -> Tensor:
    """Return what a prefix since the last reset holds of inf, -inf (with inf: NaN) and NaN; else 0."""
    kinds = torch.stack([values == torch.inf, values == -torch.inf, values.isnan()])
    counts = kinds.cumsum(dim=3)  # (kind, b, n, i, h, d)
    counts_before = F.pad(counts[:, :, :, :-1], (0, 0, 0, 0, 1, 0))
    at_reset = torch.where(is_reset.unsqueeze(-1), counts_before, 0).cummax(dim=3).values
    is_high, is_low, is_nan = (counts > at_reset).unbind()
    high = torch.where(is_high, torch.inf, 0.0)
    low = torch.where(is_low, -torch.inf, 0.0)
    return torch.where(is_nan, torch.nan, high + low).to(values.dtype)
