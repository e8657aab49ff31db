"""Cases of a `.ts` file as full arrays: gaps are interpolated and uneven channels evened out, or refused.

Infinity is always refused: it would spoil the scale of its whole channel.

The protocol's rule: if any case has channels of different lengths, every channel longer than 256 is thinned
to every second value; shorter channels of a case are then filled up at the end; missing values are
interpolated in a line, and at the ends the nearest known value is repeated.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.data.classification.ts_format import Cases
from aaren.data.numbers import LARGEST
from aaren.errors import ConfigError, DataError

Case: TypeAlias = NDArray[np.float64]  # (t, channels)
THINNED_ABOVE = 256
_CURE = (
    "Repair the file, or accept the protocol's rule: `aaren train` with --set allow_irregular=true, also for "
    "`aaren predict` of that run; `aaren data verify --allow-irregular`; in Python irregular='protocol'."
)


def complete(cases: Cases, *, name: str, irregular: Literal["protocol", "strict"]) -> list[Case]:
    """Turn every case into a (t, channels) array of finite numbers."""
    if irregular not in ("protocol", "strict"):
        raise ConfigError(f"irregular must be 'protocol' or 'strict'; got {irregular!r}.")
    infinite = np.abs(cases.values) > LARGEST
    if infinite.any():
        where = "case {}, channel {}".format(*_first(cases, infinite))
        raise DataError(
            f"{name}: {where} holds {cases.values[infinite][0]} ({infinite.sum()} such value(s)); infinity, "
            f"and what is infinite in float32, cannot be learned from. Write it as '?', a missing value, or "
            f"leave the case out."
        )
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
    if len(uneven):
        found = cases.lengths[uneven[0]]
        raise DataError(
            f"{name}: case {uneven[0]} has channels of different lengths, {found.min()} to {found.max()}. "
            f"{_CURE}"
        )
    missing = np.isnan(cases.values)
    if missing.any():
        case, channel = _first(cases, missing)
        raise DataError(
            f"{name}: {int(missing.sum())} missing value(s), the first in case {case}, channel {channel}. "
            f"{_CURE}"
        )


def _first(cases: Cases, flags: NDArray[np.bool_]) -> tuple[int, int]:
    """Return case and channel of the first value that is flagged."""
    ends = np.cumsum(cases.lengths.ravel())
    place = int(np.searchsorted(ends, flags.argmax(), side="right"))
    return divmod(place, int(cases.lengths.shape[1]))


def _interpolate(case: Case, place: int, name: str) -> None:
    steps = np.arange(len(case))
    for column in range(case.shape[1]):
        known = ~np.isnan(case[:, column])
        if not known.any():
            raise DataError(f"{name}: case {place}, channel {column} holds no value at all.")
        case[:, column] = np.interp(steps, steps[known], case[known, column])
