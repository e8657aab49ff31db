"""Keep what took long to parse as plain arrays in the user's cache folder.

An entry belongs to one source file as it was (path, size, time of change) and to one version of the parser;
anything else is parsed anew. A cache that cannot be read or written costs time, never correctness.
"""

import hashlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.data.files.atomic import replacing
from aaren.data.files.folders import cache_folder

Arrays: TypeAlias = dict[str, NDArray[np.generic]]


def cached(
    sources: Sequence[Path], version: str, build: Callable[[], Mapping[str, NDArray[np.generic]]]
) -> Arrays:
    """Return the arrays that `build` makes from `sources`, from the cache when nothing has changed since."""
    entry = _entry(sources, version)
    try:
        with entry.open("rb") as handle, np.load(handle, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        pass  # absent or damaged: parse again
    arrays = dict(build())
    try:
        with replacing(entry) as temporary:
            np.savez(temporary, allow_pickle=False, **arrays)
    except OSError:
        pass  # a full or closed disk must not stop a run
    return arrays


def _entry(sources: Sequence[Path], version: str) -> Path:
    described = [version]
    for source in sources:
        status = source.stat()
        described.append(f"{source.resolve()}|{status.st_size}|{status.st_mtime_ns}")
    key = hashlib.sha256("\n".join(described).encode()).hexdigest()[:20]
    return cache_folder() / "parsed" / f"{sources[0].name.partition('.')[0]}-{key}.npz"
