"""Fetch a dataset from its official public source and convert it to the files that the readers expect.

pooch downloads into `<folder>/.downloads`; only whole, checked files get their canonical names. Where the
catalogue knows no checksum, the first one is trusted, noted beside the file and compared from then on. One
process at a time fetches a dataset; a second one waits and then finds it there.
"""

import importlib.util
import shutil
import urllib.parse
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.datasets.dataset import Dataset, Fact
from aaren.datasets.numbers import offsets_from_lengths
from aaren.datasets.settings import find_setting
from aaren.errors import AarenError, DataError, require_extra
from aaren.files import folders, npz
from aaren.files.archive import (
    content_sha256,
    extract,
    file_sha256,
    parsing,
    plain_name,
    record_checksums,
    recorded_checksums,
)
from aaren.files.lock import locked_file

Progress: TypeAlias = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in all if known
RETRIES = 2
TIMEOUT_SECONDS = 30.0
CHUNK_BYTES = 1 << 13
Converter: TypeAlias = Callable[[tuple[Path, ...], tuple[Path, ...], Mapping[str, Fact]], None]
_INSIDE_AEON = {
    f"JapaneseVowels_{part}.ts": f"datasets/data/JapaneseVowels/JapaneseVowels_{part}.ts"
    for part in ("TRAIN", "TEST")
}


def shipped_file(name: str) -> Path | None:
    """Find a file inside a dependency without importing it; None when it is not there."""
    if name not in _INSIDE_AEON:
        return None
    found = importlib.util.find_spec("aeon")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / _INSIDE_AEON[name]
    return path if path.is_file() else None


def on_disk(dataset: Dataset, *, or_shipped: bool = False) -> tuple[Path, ...]:
    """List the dataset's files, if asked also those inside a dependency; empty unless all are there."""
    found = [folders.find(dataset.setting, file) for file in dataset.files]
    if or_shipped:
        found = [path or shipped_file(file) for path, file in zip(found, dataset.files, strict=True)]
    return tuple(path for path in found if path is not None) if None not in found else ()


def fetch(
    dataset: Dataset,
    *,
    any_checksum: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Download or generate a dataset unless it is there already, and return its files.

    Args:
        dataset: a row of the catalogue.
        any_checksum: accept a file that has changed at its source.
        seed: of a generated set, which is then made anew.
        progress: told of every chunk.
    """
    present = on_disk(dataset)
    if present and not (dataset.is_generated and seed is not None):
        return present
    if dataset.is_generated:
        return (find_setting(dataset.setting).make(dataset, seed=seed or 0),)
    target = folders.place(dataset.setting, dataset.files[0])
    if not dataset.urls:
        raise DataError(f"{dataset.name} cannot be downloaded: {_instead(dataset, target)}")
    with locked_file(target):
        if present := on_disk(dataset):  # another process was faster
            return present
        waiting = target.parent / ".downloads" / dataset.name
        known = {} if any_checksum else {**recorded_checksums(target), **dataset.sha256}
        try:
            parts = tuple(
                _download(url, waiting, known, dataset.limit_bytes, progress) for url in dataset.urls
            )
            arrived = {part.name: file_sha256(part) for part in parts}
            with parsing(dataset.name, "what its official place should offer"):
                convert = CONVERTERS[dataset.convert]
                convert(parts, tuple(target.with_name(file) for file in dataset.files), dataset.options)
        except OSError as error:
            raise DataError(f"cannot get {dataset.name}: {error}. {by_hand(dataset, target)}") from error
        finally:
            shutil.rmtree(waiting, ignore_errors=True)
        trust(dataset, arrived)
    return on_disk(dataset)


class _Bar:
    """The progress bar that pooch's downloader updates; it refuses what is too large or has no length."""

    def __init__(self, name: str, limit_bytes: int, has_checksum: bool, progress: Progress | None) -> None:
        self.total, self._done = 0, 0
        self._name, self._limit, self._has_checksum, self._progress = (
            name,
            limit_bytes,
            has_checksum,
            progress,
        )

    def update(self, count: int) -> None:
        """Take note of a chunk. The errors are none that pooch would try again after."""
        if not (self.total or self._has_checksum):
            raise AarenError(
                f"{self._name}: the server does not say how long the file is, and no checksum is known: a "
                f"truncated one could not be told from a whole one. Get it elsewhere."
            )
        self._done = min(self._done + count, self.total or self._limit + 1)
        if max(self._done, self.total) > self._limit:
            raise AarenError(f"{self._name} has more than the {self._limit:,} bytes expected: refused.")
        if self._progress is not None:
            self._progress(self._name, self._done, self.total or None)

    def reset(self) -> None:
        """Begin again."""
        self._done = 0

    close = reset


def _download(
    url: str, folder: Path, known: Mapping[str, str], limit_bytes: int, progress: Progress | None
) -> Path:
    pooch = require_extra("pooch", extra="data", purpose="`aaren data fetch`")
    pooch.get_logger().setLevel("WARNING")
    name = Path(urllib.parse.urlsplit(url).path).name
    sha256 = known.get(name)
    store = pooch.create(
        folder, base_url="", registry={name: sha256}, urls={name: url}, retry_if_failed=RETRIES
    )
    downloader = pooch.HTTPDownloader(
        progressbar=_Bar(name, limit_bytes, sha256 is not None, progress),
        chunk_size=CHUNK_BYTES,
        timeout=TIMEOUT_SECONDS,
        headers={"Accept-Encoding": "identity"},  # of what is packed on the way, the length is not known
    )
    try:
        return Path(store.fetch(name, downloader=downloader))
    except OSError:  # requests' errors are; some of them are ValueErrors too
        raise
    except ValueError as error:
        raise DataError(
            f"{url}: {error} If its owner has changed the file and you trust it, add --any-checksum."
        ) from error


def trust(dataset: Dataset, arrived: Mapping[str, str] | None = None) -> None:
    """Note the checksums that the registry does not know, as they are now: later they must be the same.

    Args:
        dataset: Whose files are on disk; generated files may be made again, and are not noted.
        arrived: The checksums of what was just downloaded, by file name; None: what is noted already stays.
    """
    for path in on_disk(dataset) if dataset.urls else ():
        name = plain_name(path)
        is_known = name in dataset.sha256 or (arrived is None and name in recorded_checksums(path))
        others = {} if arrived is None or name != dataset.files[0] else arrived
        if not is_known or set(others) - set(dataset.sha256):
            with suppress(OSError):  # a closed disk
                record_checksums(path, {**others, name: content_sha256(path)})


def by_hand(dataset: Dataset, target: Path) -> str:
    """Say which file to put where on a machine that cannot download it itself."""
    files = " and ".join(dataset.files)
    if dataset.convert in ("", "zip"):
        return (
            f"Without a network: get {files} from {dataset.urls[0]} elsewhere, "
            f"put it into {target.parent}, then run: aaren data verify {dataset.name}"
        )
    return (
        f"Without a network: run `aaren data fetch {dataset.name}` elsewhere, "
        f"copy {files} into {target.parent}, then run: aaren data verify {dataset.name}"
    )


def _instead(dataset: Dataset, target: Path) -> str:
    if dataset.name.endswith("-regen"):
        return f"it is rolled out on your machine; in a clone of the repository: {dataset.source}"
    return f"{dataset.remark or 'no public file is known'} (see {dataset.source}). Its place is {target}."


# A converter takes the downloaded files, the names that must come into being, and the dataset's options.
# Event sets become `.npz` files: `times` float64 end to end, `offsets` int64, `marks` int32 from 0, `split`
# int8 (0 train, 1 validation, 2 test) where the source has one.


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
    _write(
        targets[0], np.concatenate(times), offsets_from_lengths([len(line) for line in times]), dense, split
    )


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
    _write(target, times[events], offsets_from_lengths(lengths[keep]), dense, None)


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
    npz.save(target, arrays)


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
