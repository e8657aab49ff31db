"""One process at a time in a folder or at a file. A lock ends with its process, also when that is killed."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from aaren.errors import StateError, UnwritableError

LOCK_FILE = ".lock"  # in the folder
WAIT_SECONDS = 3_600.0


class InUseError(StateError):
    """Another process holds a folder or file; `holder` is its number, or "unknown"."""

    def __init__(self, message: str, *, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made if need be, or say who holds it."""
    with _held(folder / LOCK_FILE, folder, 0.0):
        yield


@contextmanager
def locked_file(path: Path, *, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold a file that is to be written, by a lock beside it, once whoever holds it is done."""
    with _held(path.with_name(f".{path.name}.lock"), path, wait_seconds):
        yield


@contextmanager
def _held(lock_file: Path, target: Path, wait_seconds: float) -> Iterator[None]:
    lock = FileLock(
        lock_file, thread_local=False
    )  # a pool may be closed by another thread than it was opened by
    try:
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=wait_seconds)
    except Timeout as error:
        holder = _holder(lock_file)
        waited = f" after {wait_seconds:.0f} s" if wait_seconds else ""
        raise InUseError(
            f"{target} is in use by process {holder}{waited}. Wait for it, end it, or choose another place.",
            holder=holder,
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise UnwritableError(f"cannot write to {target}: {error}. Choose another place.") from error
    try:
        with contextlib.suppress(OSError):  # on a full disk the lock holds, without a name
            lock_file.write_text(str(os.getpid()))
        yield
    finally:
        lock.release()


def _holder(lock_file: Path) -> str:
    try:
        return lock_file.read_text().strip() or "unknown"
    except OSError:  # Windows: a locked file cannot be read
        return "unknown"
