"""How heavy each prefix is: log of the sum of its items' weights, differentiable, under decay.

    L_k = logaddexp(L_{k-1} + log_decay_k, s_k)

`scan_attention` divides by this sum and does not return it. Its derivative needs no new kernel: dL_k / ds_i
is the attention weight of item i at position k, so a scan whose values are (zero-valued) tangents of the
scores carries it.
"""

import torch
from torch import Tensor

from aaren.ops import ScanState, scan_attention
from aaren.shapes import LogDecay, Mask, Scores

CHUNK = 64  # positions whose decays are summed up: short, so that sums stay small and exact
LIGHTEST = -1e30  # stands for log 0; logcumsumexp of the lowest number would overflow


def log_weight(state: ScanState) -> Tensor:
    """Return log of a state's weight, (b, h): the score of its super-token."""
    is_empty = state.u == 0
    return torch.where(is_empty, LIGHTEST, state.m + torch.where(is_empty, 1.0, state.u).log())


def log_weights(scores: Scores, log_decay: LogDecay, mask: Mask | None, initial: ScanState) -> Tensor:
    """Return log of the weight before the first item and after each, (b, t + 1, h), in float64.

    Args:
        scores: (b, t, h).
        log_decay: (b, t, h), finite.
        mask: (b, t) bool.
        initial: the state before the first item.
    """
    scores, log_decay = scores.double(), log_decay.double()
    first = log_weight(initial).double()
    with torch.no_grad():
        values = _running(scores, log_decay, mask, first)
    decayed = log_decay.cumsum(1)
    tangents, _ = scan_attention(
        scores.detach(),
        _tangent(scores - decayed).unsqueeze(-1),
        mask=mask,
        log_decay=log_decay.detach(),
        initial_state=ScanState(
            initial.m.detach().double(),
            initial.u.detach().double(),
            (initial.u.detach().double() * _tangent(first)).unsqueeze(-1),
        ),
    )
    later = values + tangents.squeeze(-1) + _tangent(decayed)
    return torch.cat([first.unsqueeze(1), later], dim=1)


def _running(scores: Scores, log_decay: LogDecay, mask: Mask | None, first: Tensor) -> Tensor:
    if mask is not None:
        scores = scores.masked_fill(~mask.unsqueeze(-1), LIGHTEST)
    found, carried = [], first
    for start in range(0, scores.shape[1], CHUNK):
        decayed = log_decay[:, start : start + CHUNK].cumsum(1)
        items = torch.cat([carried.unsqueeze(1), scores[:, start : start + CHUNK] - decayed], dim=1)
        found.append(items.logcumsumexp(dim=1)[:, 1:] + decayed)
        carried = found[-1][:, -1]
    return torch.cat(found, dim=1) if found else scores


def _tangent(x: Tensor) -> Tensor:
    """Return 0 with the derivative of x."""
    return x - x.detach()
