"""The UEA archive's `.ts` text: a header of @-lines, then a case per line, channels and label between colons.

A fault is named by file and line. Keeps what is written: labels as they are spelled, missing values as NaN,
channels of different lengths.

Cases of a `.ts` file as full arrays: gaps are interpolated and uneven channels evened out, or refused.

Infinity is always refused: it would spoil the scale of its whole channel.

The protocol's rule: if any case has channels of different lengths, every channel longer than 256 is thinned
to every second value; shorter channels of a case are then filled up at the end; missing values are
interpolated in a line, and at the ends the nearest known value is repeated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.datasets.numbers import LARGEST
from aaren.errors import ConfigError, DataError
from aaren.files.archive import read
from aaren.files.folders import cached

_READER = "ts 2"  # raise the number when the parser changes, so that old cache entries are not used


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Cases:
    """Labelled multivariate series as they were written down."""

    values: NDArray[np.float64]  # channels of all cases end to end: case by case, channel by channel
    lengths: NDArray[np.int64]  # (cases, channels)
    labels: NDArray[np.str_]  # (cases,)

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[list[NDArray[np.float64]]]:
        """Give each case as a list of channels."""
        ends = np.cumsum(self.lengths.ravel())[:-1]
        channels = np.split(self.values, ends)
        width = self.lengths.shape[1]
        return (channels[place : place + width] for place in range(0, len(channels), width))


def read_ts(path: Path) -> Cases:
    """Read a `.ts` file, plain or compressed; what was read once comes from the cache."""
    content = read(path)

    def build() -> dict[str, NDArray[np.generic]]:
        cases = parse_ts(content.data, name=str(path))
        return {"values": cases.values, "lengths": cases.lengths, "labels": cases.labels}

    arrays = cached(content.sha256, _READER, build)
    return Cases(
        values=arrays["values"].astype(np.float64, copy=False),
        lengths=arrays["lengths"].astype(np.int64, copy=False),
        labels=arrays["labels"].astype(np.str_, copy=False),
    )


def parse_ts(content: bytes, *, name: str) -> Cases:
    """Parse the text of a `.ts` file; `name` stands in the errors."""
    lines = content.decode("utf-8-sig", errors="replace").splitlines()  # comments may be in other encodings
    known_labels, first = _parse_header(lines, name)
    values: list[NDArray[np.float64]] = []
    lengths: list[list[int]] = []
    labels: list[str] = []
    for number, line in enumerate(lines[first:], start=first + 1):
        if not line.strip() or line.startswith("#"):
            continue
        *channels, label = line.strip().split(":")
        if not channels or (lengths and len(channels) != len(lengths[0])):
            expected = f"{len(lengths[0])} channels" if lengths else "at least one channel"
            raise DataError(
                f"{name}, line {number}: expected {expected} and a label; got {len(channels)} channels."
            )
        if label.strip() not in known_labels:
            what = f"label {label.strip()!r}" if label.strip() else "an empty label"
            shown = ", ".join(known_labels[:12]) + (" ..." if len(known_labels) > 12 else "")
            raise DataError(
                f"{name}, line {number}: {what} is not among those of @classLabel: {shown}. A case ends with "
                f"a colon and its label, spelled as there."
            )
        values.append(_parse_numbers(channels, name, number))
        lengths.append([channel.count(",") + 1 for channel in channels])
        labels.append(label.strip())
    if not labels:
        raise DataError(f"{name}: no case follows @data.")
    return Cases(values=np.concatenate(values), lengths=np.array(lengths), labels=np.array(labels))


def _parse_header(lines: Sequence[str], name: str) -> tuple[tuple[str, ...], int]:
    known_labels: tuple[str, ...] = ()
    for number, line in enumerate(lines):
        tag, *rest = line.split() or [""]
        is_true = bool(rest) and rest[0].lower() == "true"
        if tag.lower() == "@timestamps" and is_true:
            raise DataError(
                f"{name}, line {number + 1}: series with time stamps (@timeStamps true) are not supported. "
                f"Write the values of each channel alone, at equal steps, and @timeStamps false."
            )
        if tag.lower() == "@classlabel":
            known_labels = tuple(rest[1:]) if is_true else ()
        if tag.lower() == "@data":
            if not known_labels:
                raise DataError(
                    f"{name}: expected a line '@classLabel true ...' with the labels before @data."
                )
            return known_labels, number + 1
        if tag and not tag.startswith(("@", "#")):
            break
    raise DataError(f"{name}: not a .ts file, it has no @data line after its header.")


def _parse_numbers(channels: Sequence[str], name: str, number: int) -> NDArray[np.float64]:
    texts = ",".join(channels).replace("?", "nan").split(",")
    try:
        return np.array(texts, dtype=np.float64)
    except ValueError:
        place, text = next(
            (place, text)
            for place, channel in enumerate(channels)
            for text in channel.split(",")
            if not _is_number(text)
        )
        raise DataError(
            f"{name}, line {number}, channel {place}: expected a number or '?'; got {text[:80]!r}."
        ) from None


def _is_number(text: str) -> bool:
    try:
        np.array([text.replace("?", "nan")], dtype=np.float64)
    except ValueError:
        return False
    return True


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
