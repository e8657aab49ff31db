"""Cases of a `.ts` file as full arrays: gaps are interpolated and uneven channels evened out, or refused.

The protocol's rule: if any case has channels of different lengths, every channel longer than 256 is thinned
to every second value; shorter channels of a case are then filled up at the end; missing values are
interpolated in a line, and at the ends the nearest known value is repeated.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.data.classification.ts_format import Cases
from aaren.errors import ConfigError, DataError

Case: TypeAlias = NDArray[np.float64]  # (t, channels)
THINNED_ABOVE = 256


def complete(cases: Cases, *, name: str, irregular: Literal["protocol", "strict"]) -> list[Case]:
    """Turn every case into a (t, channels) array without NaN."""
    if irregular not in ("protocol", "strict"):
        raise ConfigError(f"irregular must be 'protocol' or 'strict'; got {irregular!r}.")
    uneven = np.flatnonzero((cases.lengths != cases.lengths[:, :1]).any(axis=1))
    if irregular == "strict":
        _refuse(cases, uneven, name)
    full = []
    for place, channels in enumerate(cases):
        if len(uneven):
            channels = [channel[::2] if len(channel) > THINNED_ABOVE else channel for channel in channels]
        length = max(len(channel) for channel in channels)
        case = np.full((length, len(channels)), np.nan)
        for column, channel in enumerate(channels):
            case[: len(channel), column] = channel
        if np.isnan(case).any():
            _interpolate(case, place, name)
        full.append(case)
    return full


def longest(parts: Sequence[Sequence[Case]]) -> int:
    """Give the length of the longest case of all parts."""
    return max(len(case) for part in parts for case in part)


def _refuse(cases: Cases, uneven: NDArray[np.intp], name: str) -> None:
    cure = "Repair the file, or accept the protocol's rule with --allow-irregular (irregular='protocol')."
    if len(uneven):
        found = cases.lengths[uneven[0]]
        raise DataError(
            f"{name}: case {uneven[0]} has channels of different lengths, {found.min()} to {found.max()}. "
            f"{cure}"
        )
    missing = np.isnan(cases.values)
    if missing.any():
        ends = np.cumsum(cases.lengths.ravel())
        place = int(np.searchsorted(ends, missing.argmax(), side="right"))
        case, channel = divmod(place, cases.lengths.shape[1])
        raise DataError(
            f"{name}: {int(missing.sum())} missing value(s), the first in case {case}, channel {channel}. "
            f"{cure}"
        )


def _interpolate(case: Case, place: int, name: str) -> None:
    steps = np.arange(len(case))
    for column in range(case.shape[1]):
        known = ~np.isnan(case[:, column])
        if not known.any():
            raise DataError(f"{name}: case {place}, channel {column} holds no value at all.")
        case[:, column] = np.interp(steps, steps[known], case[known, column])
