"""Turn what the official places offer into the files that the readers expect.

A converter takes the downloaded files, the names that must come into being, and the dataset's options. The
event sets become `.npz` files: `times` float64 end to end, `offsets` int64, `marks` int32 from 0, `split`
int8 (0 train, 1 validation, 2 test) where the source has one. Knows no network.
"""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.data.dataset import Fact
from aaren.data.files.archive import extract
from aaren.data.files.atomic import replacing
from aaren.errors import DataError, require_extra

Converter: TypeAlias = Callable[[tuple[Path, ...], tuple[Path, ...], Mapping[str, Fact]], None]


def _move(sources: tuple[Path, ...], targets: tuple[Path, ...], _options: Mapping[str, Fact]) -> None:
    for source, target in zip(sources, targets, strict=True):
        source.replace(target)


def _unzip(sources: tuple[Path, ...], targets: tuple[Path, ...], _options: Mapping[str, Fact]) -> None:
    extract(sources[0], [target.name for target in targets], targets[0].parent)


def _folds(sources: tuple[Path, ...], targets: tuple[Path, ...], options: Mapping[str, Fact]) -> None:
    """Times and marks, train and test, one sequence per line; the last of train may be for validation."""
    train_times, train_marks, test_times, test_marks = (_lines(source) for source in sources)
    times, marks = train_times + test_times, train_marks + test_marks
    split = np.array([0] * len(train_times) + [2] * len(test_times), dtype=np.int8)
    if validation := int(options.get("validation", 0)):
        split[len(train_times) - validation : len(train_times)] = 1
    for place, (moments, kinds) in enumerate(zip(times, marks, strict=True)):
        if len(moments) != len(kinds):
            raise DataError(
                f"{sources[0].name}: sequence {place} has {len(moments)} times but {len(kinds)} marks."
            )
    flat_marks = np.concatenate(marks).astype(np.int64)
    _, dense = np.unique(flat_marks, return_inverse=True)  # the texts count from 1, with or without holes
    _write(targets[0], np.concatenate(times), _offsets([len(line) for line in times]), dense, split)


def _jodie(key_column: int) -> Converter:
    """Interactions user,item,time,...: sequences by one of the two, marks are the other."""

    def convert(sources: tuple[Path, ...], targets: tuple[Path, ...], _options: Mapping[str, Fact]) -> None:
        # The header names fewer columns than the rows have, so names are not used.
        table = np.loadtxt(sources[0], delimiter=",", skiprows=1, usecols=(0, 1, 2), ndmin=2)
        _write_grouped(targets[0], table[:, key_column], table[:, 2], table[:, 1 - key_column])

    return convert


def _uber(sources: tuple[Path, ...], targets: tuple[Path, ...], _options: Mapping[str, Fact]) -> None:
    """Pickups by dispatching base and zone, 100 to 500 events each, hours since 2015-01-01."""
    pandas = require_extra("pandas", extra="data", purpose="converting the Uber table")
    with zipfile.ZipFile(sources[0]) as archive:
        name = next((member for member in archive.namelist() if member.endswith("janjune-15.csv")), "")
    extract(sources[0], [Path(name).name], sources[0].parent)
    table = pandas.read_csv(sources[0].with_name(Path(name).name), dtype=str)
    hours = (pandas.to_datetime(table["Pickup_date"]) - pandas.Timestamp("2015-01-01")) / pandas.Timedelta(
        "1h"
    )
    keys = (table["Dispatching_base_num"] + "/" + table["locationID"]).astype("category").cat.codes
    _write_grouped(targets[0], keys.to_numpy(), hours.to_numpy(float), None, shortest=100, longest=500)


def _write_grouped(
    target: Path,
    keys: NDArray[np.generic],
    times: NDArray[np.float64],
    marks: NDArray[np.generic] | None,
    *,
    shortest: int = 1,
    longest: int | None = None,
) -> None:
    """Sort events into sequences by key and time; of events of one key at one moment the first is kept."""
    order = np.lexsort((times, keys))
    keys, times = keys[order], times[order]
    is_new = np.ones(len(keys), dtype=bool)
    is_new[1:] = (keys[1:] != keys[:-1]) | (times[1:] != times[:-1])
    keys, times = keys[is_new], times[is_new]
    _, lengths = np.unique(keys, return_counts=True)
    keep = (lengths >= shortest) & (lengths <= (longest or lengths.max()))
    events = np.repeat(keep, lengths)
    dense = None
    if marks is not None:
        _, dense = np.unique(marks[order][is_new][events], return_inverse=True)
    _write(target, times[events], _offsets(lengths[keep]), dense, None)


def _write(
    target: Path,
    times: NDArray[np.float64],
    offsets: NDArray[np.int64],
    marks: NDArray[np.int64] | None,
    split: NDArray[np.int8] | None,
) -> None:
    arrays: dict[str, NDArray[np.generic]] = {"times": times.astype(np.float64), "offsets": offsets}
    if marks is not None:
        arrays["marks"] = marks.astype(np.int32)
    if split is not None:
        arrays["split"] = split
    with replacing(target) as temporary:
        np.savez_compressed(temporary, allow_pickle=False, **arrays)


def _offsets(lengths: NDArray[np.int64] | list[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _lines(path: Path) -> list[NDArray[np.float64]]:
    sequences = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            sequences.append(np.array(line.split(), dtype=np.float64))
        except ValueError as error:
            raise DataError(f"{path.name}, line {number}: expected numbers ({error}).") from error
    return sequences


CONVERTERS: Mapping[str, Converter] = {
    "": _move,
    "zip": _unzip,
    "folds": _folds,
    "jodie-users": _jodie(0),
    "jodie-items": _jodie(1),
    "uber": _uber,
}
