"""Fetch a dataset from its official public source and convert it to the files that the readers expect.

pooch downloads into `<folder>/.downloads`; only whole, checked files get their canonical names. Where the
catalogue knows no checksum, the first one is trusted, noted beside the file and compared from then on. One
process at a time fetches a dataset; a second one waits and then finds it there.
"""

import importlib.util
import shutil
import urllib.parse
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from aaren.datasets.convert import CONVERTERS
from aaren.datasets.dataset import Dataset
from aaren.datasets.settings import find_setting
from aaren.errors import AarenError, DataError, require_extra
from aaren.files import folders
from aaren.files.archive import (
    content_sha256,
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
_INSIDE_AEON = ("JapaneseVowels_TRAIN.ts", "JapaneseVowels_TEST.ts")


def shipped_file(name: str) -> Path | None:
    """Find a file inside a dependency without importing it; None when it is not there."""
    spec = importlib.util.find_spec("aeon") if name in _INSIDE_AEON else None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "datasets" / "data" / "JapaneseVowels" / name
    return path if path.is_file() else None


def on_disk(dataset: Dataset, *, or_shipped: bool = False) -> tuple[Path, ...]:
    """List the dataset's files, if asked also those inside a dependency; empty unless all are there."""
    paths = [folders.find(dataset.setting, file) for file in dataset.files]
    if or_shipped:
        paths = [path or shipped_file(file) for path, file in zip(paths, dataset.files, strict=True)]
    return tuple(path for path in paths if path is not None) if None not in paths else ()


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
            raise DataError(f"cannot get {dataset.name}: {error}. {_by_hand(dataset, target)}") from error
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


def _by_hand(dataset: Dataset, target: Path) -> str:
    return (
        f"Without a network: run `aaren data fetch {dataset.name}` elsewhere, copy "
        f"{' and '.join(dataset.files)} into {target.parent}, then run: aaren data verify {dataset.name}"
    )


def _instead(dataset: Dataset, target: Path) -> str:
    if dataset.name.endswith("-regen"):
        return f"it is rolled out on your machine; in a clone of the repository: {dataset.source}"
    return f"{dataset.remark or 'no public file is known'} (see {dataset.source}). Its place is {target}."
