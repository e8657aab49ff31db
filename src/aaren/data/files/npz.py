"""Arrays in `.npz` files: loaded without pickles, saved whole or not at all.

Knows nothing of what the arrays mean.
"""

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.data.files.atomic import replacing
from aaren.data.files.packed import read_bytes
from aaren.errors import DataError

Arrays: TypeAlias = dict[str, NDArray[np.generic]]


def load(path: Path, *, required: tuple[str, ...] = ()) -> Arrays:
    """Load every array of a file, plain or behind .gz or .xz; a required one that is missing is named."""
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    content = io.BytesIO(read_bytes(path))
    try:
        if not zipfile.is_zipfile(content):
            raise zipfile.BadZipFile("it does not end like a zip archive")
        content.seek(0)
        with np.load(content, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a whole .npz file ({error}). Fetch or write it again.") from error
    except ValueError as error:
        raise DataError(
            f"{path}: an array in it is broken or holds Python objects ({error}). Objects are pickles, which "
            "can run any code when read: save plain numbers or text."
        ) from error
    for key in required:
        if key not in arrays:
            found = ", ".join(sorted(arrays)) or "none"
            raise DataError(f"{path}: expected an array {key!r}; it holds {found}.")
    return arrays


def save(path: Path, arrays: Mapping[str, NDArray[np.generic]], *, compressed: bool = True) -> Path:
    """Save arrays under one name; another process sees the old file or the whole new one."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        writer = np.savez_compressed if compressed else np.savez
        writer(file, allow_pickle=False, **arrays)
    return path
