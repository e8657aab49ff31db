"""Atomic writes of files and folders: a reader never sees half of one."""

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; on success it replaces `path`, on failure it is deleted.

    What is written there may be a file or a folder; it is flushed to the disk before it is renamed. A folder
    replaces a folder, a file never does. A symbolic link stays one, and what it points to is replaced; a file
    that was there keeps its permissions.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "a name with a zero byte", str(path))
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last: writers such as numpy.savez append their own to a name without it.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.{time.monotonic_ns()}{path.suffix}")
    try:
        yield temporary
        if path.is_file():
            shutil.copymode(path, temporary)
        for written in (*temporary.rglob("*"), temporary):
            _flush(written)
        if path.is_dir():
            if not temporary.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            shutil.rmtree(path)
        temporary.replace(path)
        _flush(path.parent)
    finally:
        _remove(temporary)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a file in UTF-8, whole or not at all."""
    write_bytes(path, text.encode())


def remove_leftovers(folder: Path, name: str) -> None:
    """Delete what killed processes were writing into a folder under names that match a pattern."""
    for leftover in folder.glob(f".{name}.*"):
        _remove(leftover)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    if os.name != "posix" and path.is_dir():
        return  # a folder cannot be opened there
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
