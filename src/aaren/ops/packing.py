"""Packed sequences: many of them end to end in one row, bounds[i] : bounds[i + 1] being the i-th.

Compiled backends read packed rows directly. The others see a padded batch, made and undone here.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from aaren.ops.state import Items, Scan, ScanState
from aaren.shapes import Mask, SequenceBounds, Values


def through_padding(scan: Callable[[Items, ScanState], tuple[Values, ScanState]]) -> Scan:
    """Let a backend that takes batches and begins with a state read packed sequences, and begin with none."""

    def packed_scan(items: Items, initial: ScanState | None) -> tuple[Values, ScanState]:
        scores, values, mask, log_decay, bounds = items
        if initial is None:
            num_streams = values.shape[0] if bounds is None else bounds.shape[0] - 1
            streams, width = (num_streams, values.shape[2]), values.shape[3]
            initial = ScanState.empty(streams, width, device=values.device)
        if bounds is None:
            return scan(items, initial)
        index, is_real = pad_index(bounds)
        mask = is_real if mask is None else is_real & pad(mask, index)
        if log_decay is not None:  # padding must leave the final state alone, so nothing decays there
            log_decay = torch.where(is_real.unsqueeze(-1), pad(log_decay, index), 0.0)
        outputs, final = scan(Items(pad(scores, index), pad(values, index), mask, log_decay), initial)
        return unpad(outputs, is_real), final

    return packed_scan


def pad_index(bounds: SequenceBounds) -> tuple[Tensor, Mask]:
    """Return which packed item stands at each (sequence, position) of the padded batch, and which are real.

    >>> pad_index(torch.tensor([0, 2, 3]))
    (tensor([[0, 1],
            [2, 2]]), tensor([[ True,  True],
            [ True, False]]))
    """
    lengths = bounds.diff()
    longest = int(lengths.max()) if len(lengths) else 0
    positions = torch.arange(longest, device=bounds.device)
    is_real = positions < lengths.unsqueeze(1)
    index = bounds[:-1].unsqueeze(1) + positions
    return index.clamp(max=max(int(bounds[-1]) - 1, 0)), is_real


def pad(packed: Tensor, index: Tensor) -> Tensor:
    """Spread a packed row (1, t, ...) over a padded batch (n, longest, ...); padding repeats real items."""
    return packed[0, index]


def unpad(padded: Tensor, is_real: Mask) -> Tensor:
    """Gather the real items of a padded batch back into one packed row (1, t, ...)."""
    return padded[is_real].unsqueeze(0)
