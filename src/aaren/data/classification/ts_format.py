"""The UEA archive's `.ts` text: a header of @-lines, then a case per line, channels and label between colons.

Read with aeon's reader where aeon is installed, and with ours otherwise or where aeon's gives up; ours names
file and line of a fault. Both give the same cases. Keeps what is written: missing values are NaN, channels
may differ in length.
"""

import importlib.util
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.data.files.cache import cached
from aaren.data.files.packed import plain_name, read_bytes
from aaren.errors import ConfigError, DataError, require_extra

Reader: TypeAlias = Literal["auto", "aeon", "own"]
_READER = "ts 1"  # raise the number when the parser changes, so that old cache entries are not used


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


def read_ts(path: Path, *, reader: Reader = "auto") -> Cases:
    """Read a `.ts` file, plain or compressed; what was read once comes from the cache."""
    if reader not in ("auto", "aeon", "own"):
        raise ConfigError(f"reader must be 'auto', 'aeon' or 'own'; got {reader!r}.")
    if reader != "auto":
        return _with_aeon(path) if reader == "aeon" else parse_ts(read_bytes(path), name=str(path))

    def build() -> dict[str, NDArray[np.generic]]:
        cases = _best(path)
        return {"values": cases.values, "lengths": cases.lengths, "labels": cases.labels}

    arrays = cached([path], _READER, build)
    return Cases(
        values=arrays["values"].astype(np.float64, copy=False),
        lengths=arrays["lengths"].astype(np.int64, copy=False),
        labels=arrays["labels"].astype(np.str_, copy=False),
    )


def parse_ts(content: bytes, *, name: str) -> Cases:
    """Parse the text of a `.ts` file; `name` stands in the errors."""
    lines = content.decode("utf-8", errors="replace").splitlines()  # comments hold bytes of other encodings
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
            raise DataError(
                f"{name}, line {number}: label {label.strip()!r} is not among those of @classLabel: "
                f"{', '.join(known_labels)}."
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
        if tag.lower() == "@timestamps" and rest[:1] == ["true"]:
            raise DataError(f"{name}, line {number + 1}: series with time stamps are not supported.")
        if tag.lower() == "@classlabel":
            known_labels = tuple(rest[1:]) if rest[:1] == ["true"] else ()
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
        for place, channel in enumerate(channels):
            for text in channel.replace("?", "nan").split(","):
                if not _is_number(text):
                    raise DataError(
                        f"{name}, line {number}, channel {place}: expected a number or '?'; got {text!r}."
                    ) from None
        raise


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _best(path: Path) -> Cases:
    if importlib.util.find_spec("aeon") is not None:
        try:
            return _with_aeon(path)
        except Exception:  # whatever aeon stumbles over, our reader reads or names with its line
            pass
    return parse_ts(read_bytes(path), name=str(path))


def _with_aeon(path: Path) -> Cases:
    loaders = require_extra("aeon.datasets", extra="classification", purpose="aeon's reader of .ts files")
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / plain_name(path)
        plain.write_bytes(read_bytes(path).decode("utf-8", errors="replace").encode())
        cases, labels = loaders.load_from_ts_file(str(plain))
    return Cases(
        values=np.concatenate([np.asarray(case, dtype=np.float64).ravel() for case in cases]),
        lengths=np.array([[case.shape[1]] * case.shape[0] for case in cases]),
        labels=np.array([str(label) for label in labels]),
    )
