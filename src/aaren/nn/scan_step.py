"""One item into a ScanState, in as few torch calls as possible: an eager step costs calls, not arithmetic.

The same algebra as `aaren.ops.update` followed by `read`, which stay the definition and take the rarer cases:
there, masks, decay and scores of -inf cost a dozen calls that a plain stream does not need.
"""

import torch
from torch import Tensor

from aaren.ops import ScanState, read, update
from aaren.shapes import TokenMask


def scan_step(
    state: ScanState,
    score: Tensor,
    value: Tensor,
    *,
    mask: TokenMask | None = None,
    log_decay: Tensor | None = None,
) -> tuple[Tensor, ScanState]:
    """Return the output (b, h, d) after one more item per stream, in the state's dtype, and the new state.

    Args:
        state: over streams (b, h).
        score: (b, h), finite.
        value: (b, h, d).
        mask: (b,) bool. A stream with False keeps its state bit for bit; even its decay waits.
        log_decay: (b, h), <= 0.
    """
    if mask is None and log_decay is None:
        return _plain_step(state, score, value)
    is_real = None if mask is None else mask.unsqueeze(-1)
    if log_decay is not None and is_real is not None:
        log_decay = log_decay.masked_fill(~is_real, 0.0)
    state = update(state, score, value, mask=is_real, log_decay=log_decay)
    return read(state), state


def _plain_step(state: ScanState, score: Tensor, value: Tensor) -> tuple[Tensor, ScanState]:
    dtype = state.m.dtype
    score, value = score.to(dtype), value.to(dtype)
    m = torch.maximum(state.m, score).detach()
    kept, taken = torch.exp(state.m - m), torch.exp(score - m)
    u = torch.addcmul(taken, state.u, kept)
    w = torch.addcmul(value * taken.unsqueeze(-1), state.w, kept.unsqueeze(-1))
    return w / u.unsqueeze(-1), ScanState(m, u, w)  # u > 0: the item just taken in weighs something
