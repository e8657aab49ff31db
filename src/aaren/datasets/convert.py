"""Convert downloads to the files that the readers expect.

A converter takes the downloaded files, the names that must come into being, and the dataset's options. Event
sets become `.npz` files: `times` float64 end to end, `offsets` int64, `marks` int32 from 0, `split` int8 (0
train, 1 validation, 2 test) where the source has one.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.datasets.dataset import Fact
from aaren.datasets.numbers import offsets_from_lengths
from aaren.errors import DataError, require_extra
from aaren.files import npz
from aaren.files.archive import extract

Paths: TypeAlias = tuple[Path, ...]
Converter: TypeAlias = Callable[[Paths, Paths, Mapping[str, Fact]], None]


def _move(sources: Paths, targets: Paths, _options: Mapping[str, Fact]) -> None:
    for source, target in zip(sources, targets, strict=True):
        source.replace(target)


def _unzip(sources: Paths, targets: Paths, _options: Mapping[str, Fact]) -> None:
    extract(sources[0], [target.name for target in targets], targets[0].parent)


def _folds(sources: Paths, targets: Paths, options: Mapping[str, Fact]) -> None:
    """Times and marks, train and test, one sequence per line; the last of train may be for validation."""
    train_times, train_marks, test_times, test_marks = (_lines(source) for source in sources)
    times, marks = train_times + test_times, train_marks + test_marks
    split = np.array([0] * len(train_times) + [2] * len(test_times), dtype=np.int8)
    split[len(train_times) - int(options.get("validation", 0)) : len(train_times)] = 1
    for place, (moments, kinds) in enumerate(zip(times, marks, strict=True)):
        if len(moments) != len(kinds):
            raise DataError(
                f"{sources[0].name}: sequence {place} has {len(moments)} times but {len(kinds)} marks."
            )
    offsets = offsets_from_lengths([len(line) for line in times])
    _write(targets[0], np.concatenate(times), offsets, marks=np.concatenate(marks), split=split)


def _lines(path: Path) -> list[NDArray[np.float64]]:
    sequences = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            if line.strip():
                sequences.append(np.array(line.split(), dtype=np.float64))
        except ValueError as error:
            raise DataError(f"{path.name}, line {number}: expected numbers ({error}).") from error
    return sequences


def _jodie(sources: Paths, targets: Paths, _options: Mapping[str, Fact], *, key: int) -> None:
    """Interactions user,item,time,...: sequences by one of the two, marks are the other."""
    # The header names fewer columns than the rows have, so names are not used.
    table = np.loadtxt(sources[0], delimiter=",", skiprows=1, usecols=(0, 1, 2), ndmin=2)
    _write_grouped(targets[0], table[:, key], table[:, 2], marks=table[:, 1 - key])


def _uber(sources: Paths, targets: Paths, _options: Mapping[str, Fact]) -> None:
    """Pickups by dispatching base and zone, 100 to 500 events each, hours since 2015-01-01."""
    pandas = require_extra("pandas", extra="data", purpose="converting the Uber table")
    (path,) = extract(sources[0], ["uber-raw-data-janjune-15.csv"], sources[0].parent)
    table = pandas.read_csv(path, dtype=str)
    since = pandas.to_datetime(table["Pickup_date"]) - pandas.Timestamp("2015-01-01")
    hours = (since / pandas.Timedelta("1h")).to_numpy(float)
    keys = (table["Dispatching_base_num"] + "/" + table["locationID"]).astype("category").cat.codes
    _write_grouped(targets[0], keys.to_numpy(), hours, shortest=100, longest=500)


def _write_grouped(
    target: Path,
    keys: NDArray[np.generic],
    times: NDArray[np.float64],
    *,
    marks: NDArray[np.generic] | None = None,
    shortest: int = 1,
    longest: int | None = None,
) -> None:
    """Sort events into sequences by key and time; of events of one key at one moment the first is kept."""
    order = np.lexsort((times, keys))
    keys, times = keys[order], times[order]
    is_new = np.ones(len(keys), dtype=bool)
    is_new[1:] = (keys[1:] != keys[:-1]) | (times[1:] != times[:-1])
    _, lengths = np.unique(keys[is_new], return_counts=True)
    keep = (lengths >= shortest) & (lengths <= (longest or lengths.max()))
    events = np.repeat(keep, lengths)
    marks = None if marks is None else marks[order][is_new][events]
    _write(target, times[is_new][events], offsets_from_lengths(lengths[keep]), marks=marks)


def _write(
    target: Path,
    times: NDArray[np.float64],
    offsets: NDArray[np.int64],
    *,
    marks: NDArray[np.generic] | None,
    split: NDArray[np.int8] | None = None,
) -> None:
    arrays: dict[str, NDArray[np.generic]] = {"times": times, "offsets": offsets}
    if marks is not None:  # the texts count from 1, with or without holes
        arrays["marks"] = np.unique(marks, return_inverse=True)[1].astype(np.int32)
    if split is not None:
        arrays["split"] = split
    npz.save(target, arrays)


CONVERTERS: Mapping[str, Converter] = {
    "": _move,
    "zip": _unzip,
    "folds": _folds,
    "jodie-users": partial(_jodie, key=0),
    "jodie-items": partial(_jodie, key=1),
    "uber": _uber,
}
