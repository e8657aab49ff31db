"""The UEA archive's `.ts` text: a header of @-lines, then a case per line, channels and label between colons.

A fault is named by file and line. Keeps what is written: labels as they are spelled, missing values as NaN,
channels of different lengths.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aaren.data.files.cache import cached
from aaren.data.files.packed import read
from aaren.errors import DataError

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
