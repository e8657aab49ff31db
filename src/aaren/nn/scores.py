"""Scores under a constant query: computed in full precision, and shifted by a constant after the fact."""

import torch
import torch.nn.functional as F
from torch import Tensor

from aaren.ops import ScanState
from aaren.ops.precision import full_precision
from aaren.shapes import Scores


def project_scores(x: Tensor, weight: Tensor) -> Scores:
    """Return x·weight per head, (*, h), in float32 at least.

    Args:
        x: (*, c).
        weight: (h, c), the folded keys.
    """
    dtype = torch.promote_types(weight.dtype, torch.float32)
    with full_precision(x.device.type):
        return F.linear(x.to(dtype), weight.to(dtype))


def shift_scores(state: ScanState, offset: Tensor) -> ScanState:
    """Return the state that its items would have left with `offset` (h,) added to all their scores."""
    shifted = state.m + offset.to(state.m.dtype)
    return state._replace(m=torch.where(state.u == 0, state.m, shifted))
