"""Files that are whole or not there, and one writer at a time.

A reader never sees half a file, and two processes that want the same one wait for each other. Knows nothing
of what is written.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aaren.errors import DataError

WAIT_SECONDS = 3_600.0


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; on success it takes its place, on failure it vanishes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last: writers such as numpy.savez append their own to a name without it.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.{time.monotonic_ns()}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, *, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold the lock that belongs to `path`; others wait for it. A dead process holds no lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    deadline = time.monotonic() + wait_seconds
    with lock.open("a+b") as handle:
        while not _try_lock(handle.fileno()):
            if time.monotonic() > deadline:
                raise DataError(
                    f"another process has been at {path} for {wait_seconds:.0f} s. "
                    f"Wait for it or end it; its lock is {lock}."
                )
            time.sleep(0.05)
        try:
            yield
        finally:
            _unlock(handle.fileno())


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
