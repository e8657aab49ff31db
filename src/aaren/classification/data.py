"""Labelled series in the UEA archive's `.ts` text, as arrays: read, completed, checked, scaled.

A `.ts` file is a header of @-lines, then a case per line, channels and label between colons. A fault is named
by file and line, and a case by its place in the file, so the checks come before anything is held out.
Infinity is always refused: it would spoil the scale of its whole channel.

Irregular cases are refused unless allowed. Then the protocol's rule holds: if any case has channels of
different lengths, every channel longer than 256 is thinned to every second value; shorter channels of a case
are filled up at the end; missing values are interpolated linearly, and at the ends the nearest known value
is repeated. Tensors are made of these arrays in `aaren.classification.batches`.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.datasets.dataset import Dataset, Fact
from aaren.datasets.fetch import on_disk
from aaren.datasets.numbers import LARGEST, narrow
from aaren.errors import ConfigError, DataError
from aaren.files import folders
from aaren.files.archive import plain_name, read
from aaren.files.folders import cached

Standardise: TypeAlias = Literal["protocol", "train"]
Case: TypeAlias = NDArray[np.float64]  # (t, channels)
THINNED_ABOVE = 256
SHORTEST = 2  # steps; in a series of one, attention has nothing to choose from
HELD_OUT = 0.2  # of TRAIN, to test on where there is no TEST
_READER = "ts 2"  # raise the number when the parser changes, so that old cache entries are not used
_CURE = (
    "Repair the file, or accept the protocol's rule: `aaren train` with --set allow_irregular=true, also for "
    "`aaren predict` of that run; `aaren data verify --allow-irregular`; in Python allow_irregular=True."
)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Cases:
    """Labelled multivariate series as they are in the file."""

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


def complete(cases: Cases, *, name: str, allow_irregular: bool) -> list[Case]:
    """Turn every case into a (t, channels) array of finite numbers."""
    infinite = np.abs(cases.values) > LARGEST
    if infinite.any():
        where = "case {}, channel {}".format(*_first(cases, infinite))
        raise DataError(
            f"{name}: {where} holds {cases.values[infinite][0]} ({infinite.sum()} such value(s)); infinity, "
            f"and what is infinite in float32, cannot be learned from. Write it as '?', a missing value, or "
            f"leave the case out."
        )
    uneven = np.flatnonzero((cases.lengths != cases.lengths[:, :1]).any(axis=1))
    if not allow_irregular:
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


def find_test_part(train: Path) -> Path | None:
    """Find NAME_TEST.ts beside NAME_TRAIN.ts, packed like it or otherwise."""
    name = plain_name(train)
    expected = name.replace("_TRAIN.", "_TEST.")
    if expected == name:
        return None
    packings = [train.name.removeprefix(name), "", ".gz", ".xz"]
    places = (train.with_name(expected + packing) for packing in packings)
    # Of names that no disk can hold, pathlib raises.
    return next((place for place in places if os.path.isfile(place)), None)  # noqa: PTH113


def find_files(dataset: Dataset) -> tuple[Path, ...]:
    """Find the files of a registered dataset; JapaneseVowels also comes inside aeon."""
    return on_disk(dataset, or_shipped=True) or tuple(
        folders.require(dataset.setting, file, cure=f"Run: aaren data fetch {dataset.name}")
        for file in dataset.files
    )


def measure(dataset: Dataset) -> dict[str, Fact]:
    """Open a dataset's files and count what the catalogue states."""
    parts = [read_ts(path) for path in find_files(dataset)]
    sizes: dict[str, Fact] = {"train": len(parts[0])}
    if len(parts) > 1:
        sizes["test"] = len(parts[1])
    return {
        **sizes,
        "channels": parts[0].lengths.shape[1],
        "length": max(int(part.lengths.max()) for part in parts),
        "classes": len({str(label) for part in parts for label in part.labels}),
    }


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ScaledParts:
    """One or two parts (TRAIN, TEST), complete and standardised, as arrays."""

    classes: tuple[str, ...]  # in sorted order of their texts; a label is a place in this list
    cases: tuple[list[NDArray[np.float32]], ...]  # for each part, each (t, channels)
    labels: tuple[NDArray[np.int64], ...]  # for each part, (cases,)
    mean: NDArray[np.float64]  # (channels,), over all steps of TRAIN
    deviation: NDArray[np.float64]  # standard deviations: what TRAIN was divided by, but for a last digit

    @property
    def length(self) -> int:
        """Steps of the longest case of all parts."""
        return max(len(case) for part in self.cases for case in part)


def scale_parts(
    parts: Sequence[Cases],
    *,
    name: str,
    standardise: Standardise,
    allow_irregular: bool,
    finish: Callable[[Case], Case] | None = None,
) -> ScaledParts:
    """Complete and standardise one or two parts (TRAIN, TEST), and number the classes."""
    if standardise not in ("protocol", "train"):
        raise ConfigError(f"standardise must be 'protocol' or 'train'; got {standardise!r}.")
    widths = {part.lengths.shape[1] for part in parts}
    if len(widths) > 1:
        raise DataError(f"{name}: TRAIN and TEST must have the same channels; got {sorted(widths)}.")
    classes, numbers = np.unique(np.concatenate([part.labels for part in parts]), return_inverse=True)
    cases = [complete(part, name=name, allow_irregular=allow_irregular) for part in parts]
    if standardise == "protocol":
        statistics = [_statistics(part) for part in cases]
    else:
        statistics = [steady_statistics(cases[0])] * len(cases)
    mean, deviation = statistics[0]
    return ScaledParts(
        classes=tuple(classes.tolist()),
        cases=tuple(
            [
                narrow(
                    _scale(case, *own, finish),
                    name=f"{name}, case {place}, scaled (step, channel)",
                    cure="It is too far from the rest of its channel: correct the case or leave it out.",
                )
                for place, case in enumerate(part)
            ]
            for part, own in zip(cases, statistics, strict=True)
        ),
        labels=tuple(np.split(numbers.astype(np.int64), np.cumsum([len(part) for part in parts])[:-1])),
        mean=mean,
        deviation=deviation,
    )


def steady_statistics(cases: Sequence[Case]) -> tuple[Case, Case]:
    """Return mean and standard deviation of every channel over all steps; 1 where a channel never moves.

    Such a channel has no scale: whatever moves in it later keeps its own.
    """
    mean, deviation = _statistics(cases)
    return mean, np.where(deviation > 1e-12 * np.abs(mean), deviation, 1.0)


def normalise_across_channels(case: Case) -> Case:
    """Centre each channel over time, then divide each time step by its standard deviation across channels.

    What the Time-Series-Library does to EthanolConcentration; the axis looks like a mistake, but it is
    the published code.
    """
    centred = case - case.mean(axis=0, keepdims=True)
    scaled: Case = centred / np.sqrt(centred.var(axis=1, keepdims=True) + 1e-5)
    return scaled


def require_trainable(
    parts: Mapping[str, Cases], *, allow_irregular: bool, held_out: float = HELD_OUT
) -> None:
    """Raise if a training part, alone or with its TEST, cannot be learned from.

    Args:
        parts: TRAIN and, if there is one, TEST, by the names that errors give them.
        allow_irregular: Accept missing values and uneven channels, which `complete` repairs.
        held_out: Fraction of TRAIN to test on where there is no TEST.
    """
    for name, cases in parts.items():
        require_series(cases, name=name, allow_irregular=allow_irregular)
    (name, train), *rest = parts.items()
    labels = label_numbers(train)
    require_learnable(labels, where=name)
    for other, test in rest:
        _require_known_labels(train, test, where=other)
    if not rest:
        counts = np.bincount(labels)
        held = held_counts(counts, held_out)
        if int((counts - held).max()) < 2:
            raise DataError(
                f"{name}: {held.sum()} of {len(labels)} cases are held out, for there is no TEST part, and "
                f"of the others no class keeps two. Bring more cases or a TEST part."
            )


def held_counts(counts: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """Say how many cases of each class are held out, so that both sides know as many classes as can be.

    Of a class with two or more cases at least one goes to each side; a single case is kept.

    >>> held_counts(np.array([8, 4, 1, 0]), 0.25)
    array([2, 1, 0, 0])
    """
    wanted = [min(count - 1, max(1, round(fraction * count))) if count else 0 for count in counts.tolist()]
    if not any(wanted):
        raise DataError(
            f"none of {counts.sum()} cases can be held out: every class has a single one. Bring more cases, "
            f"or a TEST part of its own."
        )
    return np.array(wanted, dtype=np.int64)


def require_series(cases: Cases, *, name: str, allow_irregular: bool) -> None:
    """Raise if a case is not a series of finite numbers with at least two steps."""
    lengths = [len(case) for case in complete(cases, name=name, allow_irregular=allow_irregular)]
    require_steps(lengths, where=name)


def require_learnable(labels: NDArray[np.int64], *, where: str) -> None:
    """Raise unless there are at least two classes and one of them has two cases."""
    counts = np.bincount(labels)
    num_classes = int((counts > 0).sum())
    if num_classes < 2:
        raise DataError(
            f"{where}: {len(labels)} case(s) of one class only; to tell classes apart takes at least two. "
            f"Bring cases of another class."
        )
    if int(counts.max()) < 2:
        raise DataError(
            f"{where}: {len(labels)} cases for {num_classes} classes: every case has a label of its own. Are "
            f"these numbers to be predicted (regression)? Otherwise bring more cases of each class."
        )


def require_steps(lengths: Sequence[int], *, where: str) -> None:
    """Raise if a series has no or only one step."""
    short = [case for case, length in enumerate(lengths) if length < SHORTEST]
    if short:
        raise DataError(
            f"{where}: case {short[0]} has {lengths[short[0]]} time step(s); a series has at least "
            f"{SHORTEST}. Leave it out ({len(short)} such case(s))."
        )


def label_numbers(cases: Cases) -> NDArray[np.int64]:
    """Number the labels in sorted order of their texts."""
    return np.unique(cases.labels, return_inverse=True)[1].astype(np.int64)


def _statistics(cases: Sequence[Case]) -> tuple[Case, Case]:
    steps = np.concatenate(cases)
    if len(steps) < 2:
        raise DataError("one time step in all cannot be standardised: give series of at least two steps.")
    return steps.mean(axis=0), steps.std(axis=0, ddof=1)


def _scale(case: Case, mean: Case, deviation: Case, finish: Callable[[Case], Case] | None) -> Case:
    scaled: Case = (case - mean) / (deviation + np.finfo(np.float64).eps)
    return finish(scaled) if finish else scaled


def _require_known_labels(train: Cases, test: Cases, *, where: str) -> None:
    known = set(train.labels.tolist())
    strange = [str(label) for label in test.labels if label not in known]
    if strange:
        raise DataError(
            f"{where}: {len(strange)} case(s) have labels unseen in TRAIN: "
            f"{', '.join(sorted(set(strange))[:6])}; TRAIN has {', '.join(sorted(known)[:6])}. Correct the "
            f"labels, leave these cases out, or bring TRAIN cases of them."
        )


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
