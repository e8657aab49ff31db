"""Where files lie: data in the roots of `$AAREN_DATA`, then in the user's cache; there also parsed arrays.

A data file is `<root>/<setting>/<file name>`, plain, `.gz` or `.xz`.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import platformdirs
from numpy.typing import NDArray

from aaren.errors import DataError
from aaren.files.atomic import replacing
from aaren.files.npz import Arrays

VARIABLE = "AAREN_DATA"
SUFFIXES = ("", ".gz", ".xz")  # in the order in which they are looked for


def cache_folder() -> Path:
    """Return the folder of this user and machine that holds what can be fetched or made again."""
    return platformdirs.user_cache_path("aaren", appauthor=False, opinion=False)


def roots() -> tuple[Path, ...]:
    """List the folders that are searched, first come first served; the user's cache is always the last."""
    named = (part.strip() for part in os.environ.get(VARIABLE, "").split(os.pathsep))
    return (*(Path(part).expanduser() for part in named if part), cache_folder() / "data")


def find(setting: str, filename: str) -> Path | None:
    """Look for a file of a setting in every root, plain or compressed; None when it is nowhere."""
    paths = (root / setting / (filename + suffix) for root in roots() for suffix in SUFFIXES)
    return next((path for path in paths if os.path.isfile(path)), None)  # noqa: PTH113  # pathlib raises of some names


def require(setting: str, filename: str, *, cure: str = "") -> Path:
    """Find a file, or say in one line where it should be."""
    path = find(setting, filename)
    if path is None:
        raise DataError(
            f"no file {setting}/{filename} (plain, .gz or .xz) in: {', '.join(map(str, roots()))}. "
            f"{cure or 'Put it there, or name its folder in $' + VARIABLE + '.'}"
        )
    return path


def place(setting: str, filename: str) -> Path:
    """Say where a new file of a setting belongs, in the first root that can be written to; it is made."""
    root = next((root for root in roots() if _is_writable(root)), None)
    if root is None:
        raise DataError(
            f"none of these folders can be written to: {', '.join(map(str, roots()))}. "
            f"Set ${VARIABLE} to a folder of yours."
        )
    folder = root / setting
    folder.mkdir(parents=True, exist_ok=True)
    return folder / filename


def cached(sha256: str, version: str, build: Callable[[], Mapping[str, NDArray[np.generic]]]) -> Arrays:
    """Return the arrays that `build` makes of the content with this checksum, or the cache's copy of them.

    An entry belongs to one content and to one version of the parser; anything else is parsed again. A cache
    that cannot be read or written costs time, never correctness.
    """
    kind = version.partition(" ")[0]
    key = hashlib.sha256(f"{version}\n{sha256}".encode()).hexdigest()[:32]
    entry = cache_folder() / "parsed" / f"{kind}-{key}.npz"
    try:
        with entry.open("rb") as handle, np.load(handle, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except Exception:  # absent or damaged, in whichever way: parse again
        pass
    arrays = dict(build())
    try:
        with replacing(entry) as temporary:
            np.savez(temporary, allow_pickle=False, **arrays)
    except OSError:
        pass  # a full or closed disk must not stop a run
    return arrays


def _is_writable(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    # The mode counts, not only os.access: for the root user access() is always granted, and a folder
    # that somebody closed on purpose stays closed.
    return folder.is_dir() and bool(folder.stat().st_mode & 0o222) and os.access(folder, os.W_OK)
