"""Parallel inside blocks, a tree over blocks: plain PyTorch, any device, any number of derivatives.

Inside a block every prefix state is a row of a lower-triangular matrix of weights times the values: one
matmul. Each row is normalised by its own running maximum; a maximum of the whole block would underflow the
rows before it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from aaren.ops.prefix_scan import ladner_fischer
from aaren.ops.state import ScanState, combine, decay, read
from aaren.ops.tree_scan import prefix_states
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
    outputs = read(combine(carried, local)).view(batch, blocks[1] * BLOCK_LENGTH, heads, width)
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
    is_finite = values.isfinite()
    num_bad = (~is_finite).cumsum(dim=2)
    if log_decay is not None:
        # What item i has suffered by k is summed for every pair by itself: a difference of two running sums
        # would cancel, and be NaN after a reset.
        is_later = is_past & ~torch.eye(length, dtype=torch.bool, device=scores.device).unsqueeze(-1)
        age = torch.where(is_later, log_decay.unsqueeze(3), 0.0).cumsum(dim=2)  # (b, n, k, i, h)
        sees = sees & (age != -torch.inf)
        logits = logits + age
        since_start = log_decay.cumsum(dim=2)
        is_reset = (log_decay == -torch.inf).unsqueeze(-1)
        num_bad_before = F.pad(num_bad[:, :, :-1], (0, 0, 0, 0, 1, 0))
        num_bad = num_bad - torch.where(is_reset, num_bad_before, 0).cummax(dim=2).values

    lowest = torch.finfo(scores.dtype).min
    logits = torch.where(sees, logits, lowest)
    m = logits.amax(dim=3).detach()
    weights = torch.where(sees, torch.exp(logits - m.unsqueeze(3)), 0.0)
    # Zero times NaN is NaN, so bad values stay out of the product and are put back from their own position
    # on.
    w = torch.einsum("bnkih,bnihd->bnkhd", weights, torch.where(is_finite, values, 0.0))
    w = torch.where(num_bad > 0, torch.nan, w)
    return ScanState(m, weights.sum(dim=3), w), since_start
