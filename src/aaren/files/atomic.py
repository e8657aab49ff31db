"""Files that are whole or not there, and one writer at a time.

A reader never sees half a file, and two processes that want the same one wait for each other. Knows nothing
of what is written.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aaren.errors import DataError
from aaren.files.lock import try_lock, unlock

WAIT_SECONDS = 3_600.0


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; on success it takes its place, on failure it vanishes.

    A symbolic link stays one, and what it points to is replaced; a file that was there keeps its permissions.
    """
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last: writers such as numpy.savez append their own to a name without it.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.{time.monotonic_ns()}{path.suffix}")
    try:
        yield temporary
        if path.is_file():
            shutil.copymode(path, temporary)
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
        while not try_lock(handle.fileno()):
            if time.monotonic() > deadline:
                raise DataError(
                    f"another process has been at {path} for {wait_seconds:.0f} s. "
                    f"Wait for it or end it; its lock is {lock}."
                )
            time.sleep(0.05)
        try:
            yield
        finally:
            unlock(handle.fileno())
