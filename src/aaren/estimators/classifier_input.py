"""Panels of series as people have them, brought into one form: a list of (steps, channels) arrays.

Panels are 3-D arrays (cases, channels, steps) or lists of unequal series, as aeon gives them. A 2-D table is
left to scikit-learn's own checks. Knows nothing of models.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from aaren.data.classification.loading import LabelledSeries
from aaren.errors import DataError
from aaren.tasks.classification_parts import SHORTEST

Case: TypeAlias = NDArray[np.float64]  # (steps, channels)


def read_panel(panel: object) -> list[Case] | None:
    """Return the cases of a 3-D array or of a list of series; None if it is neither: a table, or nonsense.

    >>> [case.shape for case in read_panel([np.zeros((2, 5)), np.ones((2, 7))])]
    [(5, 2), (7, 2)]
    >>> read_panel(np.zeros((4, 10))) is None
    True
    """
    if getattr(panel, "ndim", None) == 3:
        found = _numbers(panel, "X")
        return [np.ascontiguousarray(case.T) for case in found]
    is_list = isinstance(panel, list | tuple)
    is_array_of_series = isinstance(panel, np.ndarray) and panel.ndim == 1 and panel.dtype.kind == "O"
    if not (is_list or is_array_of_series):
        return None
    items: Sequence[object] = list(panel)  # type: ignore[call-overload]  # one of the two
    axes = {_depth(item) for item in items}
    if axes == {1} and len({len(item) for item in items}) > 1:  # type: ignore[arg-type]  # of depth 1
        return [_numbers(item, f"case {place}").reshape(-1, 1) for place, item in enumerate(items)]
    if axes == {2}:
        return [np.ascontiguousarray(_numbers(item, f"case {place}").T) for place, item in enumerate(items)]
    if 2 in axes:
        raise DataError(
            "a list of series must hold one array (channels, steps) per case; some of these have other axes."
        )
    return None


def from_table(table: Case) -> list[Case]:
    """Return the rows of a table as series of one channel."""
    if table.shape[1] < SHORTEST:
        raise DataError(
            f"X has n_features = {table.shape[1]}: each row of a 2-D array is a series of one channel, and a "
            f"series has at least {SHORTEST} time steps. For other shapes pass (cases, channels, steps)."
        )
    return [row.reshape(-1, 1) for row in table]


def check_cases(cases: Sequence[Case], *, num_channels: int | None = None) -> int:
    """Raise unless all cases are series without gaps and of the same channels; return how many channels."""
    if not cases:
        raise DataError("X holds no case at all: expected at least one series.")
    expected = cases[0].shape[1] if num_channels is None else num_channels
    for place, case in enumerate(cases):
        if case.shape[1] != expected:
            whose = "the first case has" if num_channels is None else "the estimator was fitted on"
            raise DataError(
                f"X, case {place}: {case.shape[1]} channel(s); {whose} {expected}. A case is (channels, "
                f"steps), a panel (cases, channels, steps)."
            )
        if len(case) < SHORTEST:
            raise DataError(
                f"X, case {place} has {len(case)} time step(s); a series has at least {SHORTEST}. Leave it "
                f"out."
            )
        if not np.isfinite(case).all():
            step, channel = np.argwhere(~np.isfinite(case))[0]
            raise DataError(
                f"X, case {place} holds {case[step, channel]} (channel {channel}, step {step}); NaN and "
                f"infinity cannot be learned from. Interpolate, or leave the case out."
            )
    return expected


def pad(cases: Sequence[Case], labels: NDArray[np.int64], *, length: int) -> LabelledSeries:
    """Pad cases with zeros at the end to one length."""
    values = np.zeros((len(cases), length, cases[0].shape[1]), dtype=np.float64)
    mask = np.zeros((len(cases), length), dtype=bool)
    for place, case in enumerate(cases):
        values[place, : len(case)] = case
        mask[place, : len(case)] = True
    return LabelledSeries(
        values=torch.from_numpy(values), mask=torch.from_numpy(mask), labels=torch.from_numpy(labels)
    )


def _numbers(given: object, name: str) -> Case:
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: expected numbers of equal length per channel; {error}.") from error


def _depth(item: object) -> int:
    """Count the axes of a nested list or array."""
    if hasattr(item, "ndim"):
        return int(item.ndim)
    if isinstance(item, list | tuple):
        return 1 + (_depth(item[0]) if item else 0)
    return 0
