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
    for k in range(scores.shape[1]):
        output, state = step(
            state,
            scores[:, k],
            values[:, k],
            mask=None if mask is None else mask[:, k].unsqueeze(-1),
            log_decay=None if log_decay is None else log_decay[:, k],
        )
        outputs.append(output)
    return (torch.stack(outputs, dim=1) if outputs else values), state
