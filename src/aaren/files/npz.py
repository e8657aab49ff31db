"""Arrays in `.npz` files: loaded without pickles and within a size limit, saved atomically."""

import io
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.errors import DataError
from aaren.files.archive import parsing, read_bytes, require_size
from aaren.files.atomic import replacing

Arrays: TypeAlias = dict[str, NDArray[np.generic]]

_SUFFIX = ".npy"
_HEADERS: dict[tuple[int, int], Callable[[IO[bytes]], tuple[tuple[int, ...], bool, np.dtype[np.generic]]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def load(path: Path, *, required: tuple[str, ...] = ()) -> Arrays:
    """Load every array of a file, plain or behind .gz or .xz; a required one that is missing is named."""
    content = read_bytes(path)
    with parsing(path, "a whole .npz file", cure="Fetch or write it again."):
        arrays = _parse(path, content)
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


def _parse(path: Path, content: bytes) -> Arrays:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        require_size(path, sum(member.file_size for member in members), len(content))
        arrays: Arrays = {}
        for member in members:
            name = member.filename.removesuffix(_SUFFIX)
            if name == member.filename or name in arrays:
                raise DataError(
                    f"{path}: an .npz file holds arrays, each as one NAME{_SUFFIX}; got {member.filename!r}"
                    f"{' twice' if name in arrays else ''}."
                )
            with archive.open(member) as file:
                arrays[name] = _read_array(path, name, file, member.file_size)
    return arrays


def _read_array(path: Path, name: str, file: IO[bytes], size: int) -> NDArray[np.generic]:
    """Read one array; its header must declare the very bytes that follow, before memory is taken for them."""
    version = np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]  # numpy does not type it
    if version not in _HEADERS:
        raise DataError(f"{path}: array {name!r} has format version {version}; 1.0 or 2.0 are read.")
    shape, is_fortran, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise DataError(
            f"{path}: array {name!r} holds Python objects. Objects are pickles, which can run any code when "
            "read: save plain numbers or text."
        )
    declared, follow = math.prod(shape) * dtype.itemsize, size - file.tell()
    if any(length < 0 for length in shape) or declared != follow:
        raise DataError(
            f"{path}: array {name!r} declares {shape} of {dtype}, {declared:,} bytes, but {follow:,} follow. "
            f"Write it again."
        )
    flat = np.frombuffer(bytearray(file.read()), dtype=dtype)  # at its end the zip's own checksum is compared
    return flat.reshape(shape, order="F" if is_fortran else "C")
