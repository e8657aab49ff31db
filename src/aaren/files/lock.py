"""One process at a time in a folder or at a file. A lock ends with its process, also when that is killed.

`filelock` has no lock that several share and that also tells who holds it, so the system's own are used.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from aaren.errors import StateError, UnwritableError

LOCK_FILE = ".lock"  # in the folder
WAIT_SECONDS = 3_600.0


class InUseError(StateError):
    """Another process holds a folder or file; `holder` is its number, or "unknown"."""

    def __init__(self, message: str, *, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


@contextmanager
def locked(folder: Path, *, is_shared: bool = False) -> Iterator[None]:
    """Hold a folder, which is made if need be, alone or with others that share it, or say who holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = (folder / LOCK_FILE).open("a+", encoding="utf-8")
    except OSError as error:
        raise UnwritableError(f"cannot write to {folder}: {error}. Choose another folder (--out).") from error
    with opened as file:
        if not _try_lock(file.fileno(), is_shared=is_shared):
            holder = _holder(file)
            raise InUseError(
                f"{folder} is in use by process {holder}. Wait for it, end it, or choose another folder "
                "(--out).",
                holder=holder,
            )
        with _named(file):
            yield


@contextmanager
def locked_file(path: Path, *, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold a file that is to be written, by a lock beside it, once whoever holds it is done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    deadline = time.monotonic() + wait_seconds
    with lock.open("a+", encoding="utf-8") as file:
        while not _try_lock(file.fileno(), is_shared=False):
            if time.monotonic() > deadline:
                holder = _holder(file)
                raise InUseError(
                    f"{path} has been in use by process {holder} for {wait_seconds:.0f} s. "
                    f"Wait for it or end it; its lock is {lock}.",
                    holder=holder,
                )
            time.sleep(0.05)
        with _named(file):
            yield


def _holder(file: TextIO) -> str:
    file.seek(0)
    return file.read().strip() or "unknown"


@contextmanager
def _named(file: TextIO) -> Iterator[None]:
    """Write this process's number into a lock that is held, and give the lock back at the end."""
    try:
        file.truncate(0)
        with contextlib.suppress(OSError):  # on a full disk the lock holds, without a name
            file.write(str(os.getpid()))
            file.flush()
        yield
    finally:
        _unlock(file.fileno())


if sys.platform == "win32":
    import msvcrt

    _PLACE = 1 << 30  # far behind any text: a locked byte cannot be read by others

    def _try_lock(descriptor: int, *, is_shared: bool) -> bool:
        if is_shared:
            return True  # no shared locks on this platform: sharing neither waits nor blocks others
        os.lseek(descriptor, _PLACE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _PLACE, os.SEEK_SET)
        with contextlib.suppress(OSError):  # a shared one was never taken
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int, *, is_shared: bool) -> bool:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
