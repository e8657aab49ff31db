"""Fetch a registered dataset from its official public place into the first folder that can be written to.

Downloads wait in `<folder>/.downloads`; only whole, checked files get their canonical names. Where the
registry knows no checksum, the first one is trusted, noted beside the file and compared from then on. One
process at a time fetches a dataset; a second one waits and then finds it there. Knows nothing of what is in
the files.
"""

import shutil
import urllib.parse
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from aaren.data.dataset import Dataset
from aaren.data.files import folders
from aaren.data.files.atomic import locked
from aaren.data.files.convert import CONVERTERS
from aaren.data.files.download import Progress, UnreachableError, download, file_sha256
from aaren.data.files.packed import (
    content_sha256,
    parsing,
    plain_name,
    record_checksums,
    recorded_checksums,
)
from aaren.data.files.shipped import shipped_file
from aaren.errors import DataError, MissingDependencyError, require_extra


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
    progress: Progress | None = None,
    pause_seconds: float = 1.0,
) -> tuple[Path, ...]:
    """Download a dataset unless it is there already, and return its files."""
    if present := on_disk(dataset):
        return present
    target = folders.place(dataset.setting, dataset.files[0])
    if not dataset.urls:
        raise DataError(f"{dataset.name} cannot be downloaded: {_instead(dataset, target)}")
    with locked(target):
        if present := on_disk(dataset):  # another process was faster
            return present
        waiting = target.parent / ".downloads" / dataset.name
        known = {} if any_checksum else {**recorded_checksums(target), **dataset.sha256}
        parts = []
        for url in dataset.urls:
            name = Path(urllib.parse.urlsplit(url).path).name
            try:
                parts.append(
                    download(
                        url,
                        waiting / name,
                        limit_bytes=dataset.limit_bytes,
                        sha256=known.get(name, ""),
                        progress=progress,
                        pause_seconds=pause_seconds,
                    )
                )
            except UnreachableError as error:
                raise UnreachableError(f"{error}. {by_hand(dataset, target)}") from error
        try:
            arrived = {part.name: file_sha256(part) for part in parts}
            with parsing(dataset.name, "what its official place should offer"):
                convert = CONVERTERS[dataset.convert]
                convert(
                    tuple(parts), tuple(target.with_name(file) for file in dataset.files), dataset.options
                )
        finally:
            shutil.rmtree(waiting, ignore_errors=True)
        trust(dataset, arrived)
    return on_disk(dataset)


def trust(dataset: Dataset, arrived: Mapping[str, str] | None = None) -> None:
    """Note the checksums that the registry does not know, as they are now: later they must be the same.

    Args:
        dataset: Whose files are on disk; what is made here may be made anew, and is not noted.
        arrived: The checksums of what was just downloaded, by file name; None: what is noted already stays.
    """
    for path in on_disk(dataset) if dataset.urls else ():
        name = plain_name(path)
        is_known = name in dataset.sha256 or (arrived is None and name in recorded_checksums(path))
        others = {} if arrived is None or name != dataset.files[0] else arrived
        if not is_known or set(others) - set(dataset.sha256):
            with suppress(OSError):  # a closed disk
                record_checksums(path, {**others, name: content_sha256(path)})


def fetch_minari(dataset_id: str) -> str:
    """Download a dataset of Minari, such as `mujoco/hopper/medium-v0`, into Minari's own folder."""
    minari = require_extra("minari", extra="rl", purpose=f"fetching the Minari dataset {dataset_id}")
    try:
        minari.download_dataset(dataset_id)
    except ImportError as error:
        raise MissingDependencyError(
            f"fetching the Minari dataset {dataset_id} needs: pip install 'minari[hf]'"
        ) from error
    except Exception as error:  # its remotes raise errors of their own libraries
        raise UnreachableError(
            f"cannot get the Minari dataset {dataset_id}: {error}. Without a network: run "
            f"`minari download {dataset_id}` elsewhere and copy its folder into ~/.minari/datasets."
        ) from error
    return dataset_id


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
    if dataset.is_generated:
        return f"it is generated here; run: aaren data make {dataset.name}"
    if dataset.name.endswith("-regen"):
        return f"it is made here; run: {dataset.source}"
    return f"{dataset.remark or 'no public file is known'} (see {dataset.source}). Its place is {target}."
