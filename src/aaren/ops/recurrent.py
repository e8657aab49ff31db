"""Token by token, in constant memory: `step` is what a stream runs, `scan` is a loop over it."""

import torch
from torch import Tensor

from aaren.ops.state import ScanState, read, update
from aaren.shapes import LogDecay, Mask, Scores, Values


def step(
    state: ScanState,
    score: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    log_decay: Tensor | None = None,
) -> tuple[Tensor, ScanState]:
    """Take in one item per stream and return the output, in the value's dtype, with the new state.

    Args:
        state: over streams (b, h).
        score: (b, h).
        value: (b, h, d).
        mask: (b, h) or (b, 1), bool; a stream with False keeps its state and repeats its output.
        log_decay: (b, h), <= 0.
    """
    state = update(state, score, value, mask=mask, log_decay=log_decay)
    return read(state).to(value.dtype), state


def scan(
    scores: Scores, values: Values, mask: Mask | None, log_decay: LogDecay | None, initial: ScanState
) -> tuple[Values, ScanState]:
    """Attend to every prefix by stepping through time."""
    state = initial
    outputs = []
    length = scores.shape[1]
    # unbind, not indexing: its backward stacks once, where every x[:, k] would add a whole tensor of zeros.
    masks = (None,) * length if mask is None else mask.unsqueeze(-1).unbind(1)
    decays = (None,) * length if log_decay is None else log_decay.unbind(1)
    for score, value, is_real, rate in zip(scores.unbind(1), values.unbind(1), masks, decays, strict=True):
        output, state = step(state, score, value, mask=is_real, log_decay=rate)
        outputs.append(output)
    return (torch.stack(outputs, dim=1) if outputs else values), state
