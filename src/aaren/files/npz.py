"""Arrays in `.npz` files: loaded without pickles and within a size limit, saved atomically."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.errors import DataError
from aaren.files.archive import parsing, read_bytes, require_size
from aaren.files.atomic import replacing

Arrays: TypeAlias = dict[str, NDArray[np.generic]]


def load(path: Path, *, required: tuple[str, ...] = ()) -> Arrays:
    """Load every array of a file, plain or behind .gz or .xz; a required one that is missing is named."""
    content = read_bytes(path)
    arrays: Arrays = {}
    with (
        parsing(path, "a whole .npz file", cure="Fetch or write it again."),
        zipfile.ZipFile(io.BytesIO(content)) as archive,
    ):
        require_size(path, sum(member.file_size for member in archive.infolist()), len(content))
        for name in archive.namelist():
            with io.BytesIO(archive.read(name)) as file:  # read to its end, where the zip has a checksum
                arrays[name.removesuffix(".npy")] = np.lib.format.read_array(file)  # type: ignore[no-untyped-call]  # no pickles by default
                if file.read(1):
                    raise DataError(f"{path}: {name} has more bytes than it declares. Write it again.")
    for key in required:
        if key not in arrays:
            raise DataError(
                f"{path}: expected an array {key!r}; it holds {', '.join(sorted(arrays)) or 'none'}."
            )
    return arrays


def save(path: Path, arrays: Mapping[str, NDArray[np.generic]], *, compressed: bool = True) -> Path:
    """Save arrays under one name; another process sees the old file or the whole new one."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        writer = np.savez_compressed if compressed else np.savez
        writer(file, allow_pickle=False, **arrays)
    return path
