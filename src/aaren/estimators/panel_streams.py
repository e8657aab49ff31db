"""The streams of a panel: rows brought to scale, and taken in by those streams that got some.

Knows nothing of frames and of training.
"""

import math
from collections.abc import Mapping
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from aaren.data.forecasting.time_marks import time_marks
from aaren.errors import DataError
from aaren.estimators.frames import SeriesRows, show_time
from aaren.models import StreamingForecaster, StreamingState
from aaren.models.inputs import largest


def find_scale(name: object, values: NDArray[np.float64]) -> tuple[float, float]:
    """Return mean and deviation of a series; 1 for the deviation of a constant one."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(values.mean()), float(values.std())
    if not math.isfinite(mean + deviation):
        raise DataError(
            f"series {name!r} reaches from {values.min():g} to {values.max():g}: the squares of such numbers "
            f"are too large for float64. Divide them first, or look for a wrong value."
        )
    return mean, deviation if deviation > 0.0 else 1.0


def scale_rows(name: object, rows: SeriesRows, scale: tuple[float, float]) -> Tensor:
    """Return the values as a model wants them, (rows, 1); what it cannot hold is refused."""
    with np.errstate(over="ignore"):
        scaled = (rows.values - scale[0]) / scale[1]
    wrong = np.flatnonzero(~(np.abs(scaled) <= largest(torch.float32)))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"series {name!r}: {rows.values[row]:g} at {show_time(rows.times[row])} is too far from what was "
            f"fitted, mean {scale[0]:g} and deviation {scale[1]:g}, to be computed with. Leave it out, or "
            f"correct it."
        )
    return torch.from_numpy(scaled).float().unsqueeze(-1)


def date_marks(rows: SeriesRows) -> Tensor:
    """Return the marks of the dates, (rows, 4); of whole numbers there are none, (rows, 0)."""
    if rows.times.dtype.kind != "M":
        return torch.zeros(len(rows.times), 0)
    return torch.from_numpy(time_marks(cast("NDArray[np.datetime64]", rows.times)))


@torch.no_grad()
def take_in(
    model: StreamingForecaster, state: StreamingState, rows: Mapping[int, Tensor], marks: Mapping[int, Tensor]
) -> None:
    """Run new rows through the model and write the new states over the old ones, in place.

    Args:
        model: a trained forecaster of one column.
        state: of all streams.
        rows: (rows, 1) by the number of the stream; streams with about equally many go together.
        marks: (rows, marks), likewise.
    """
    groups: dict[int, list[int]] = {}
    for stream, new in rows.items():
        groups.setdefault(len(new).bit_length(), []).append(stream)  # at most half of a group is padding
    changed = []
    for members in groups.values():
        streams = torch.tensor(members)
        lengths = torch.tensor([len(rows[stream]) for stream in members])
        padded = pad_sequence([rows[stream] for stream in members], batch_first=True)
        dates = pad_sequence([marks[stream] for stream in members], batch_first=True)
        mask = torch.arange(padded.shape[1]) < lengths.unsqueeze(1)
        _, new_state = model(
            padded,
            dates if dates.shape[-1] else None,
            state.select(streams),
            mask=None if bool(mask.all()) else mask,
            positions=torch.tensor([padded.shape[1] - 1]),
        )
        if not bool(new_state.output.isfinite().all()):
            raise DataError("the model cannot compute with these rows: its answer would not be finite.")
        changed.append((streams, new_state))
    for streams, new_state in changed:  # only now, so that all rows are taken in or none
        _put(state, streams, new_state)


def _put(state: object, streams: Tensor, new: object) -> None:
    """Write the new states of some streams over their old ones; the others are not touched."""
    if isinstance(state, Tensor) and isinstance(new, Tensor):
        state[streams] = new.to(state.dtype)
    elif isinstance(state, tuple) and isinstance(new, tuple):
        for old_part, new_part in zip(state, new, strict=True):
            _put(old_part, streams, new_part)
