"""A lock on an open file, which dies with its process. Knows nothing of waiting or of whom to tell.

One process per run folder. The lock dies with its process, so a killed run leaves none behind.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aaren.errors import StateError

if sys.platform == "win32":
    import msvcrt

    _PLACE = 1 << 30  # far behind any text: a locked byte cannot be read by others

    def try_lock(descriptor: int, *, is_shared: bool = False) -> bool:
        """Take the lock unless another process has it, and tell whether it was taken."""
        if is_shared:
            return True  # there are none here: who shares is not kept out, and keeps nobody out
        os.lseek(descriptor, _PLACE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Give the lock back."""
        os.lseek(descriptor, _PLACE, os.SEEK_SET)
        with contextlib.suppress(OSError):  # a shared one was never taken
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def try_lock(descriptor: int, *, is_shared: bool = False) -> bool:
        """Take the lock unless another process has it, and tell whether it was taken."""
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Give the lock back."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)


LOCK_FILE = ".lock"


@contextmanager
def locked(folder: Path, *, is_shared: bool = False) -> Iterator[None]:
    """Hold a run folder for the time of a block, alone or with others that share it, or say who holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = (folder / LOCK_FILE).open("a+", encoding="utf-8")
    except OSError as error:
        raise StateError(f"cannot write to {folder}: {error}. Choose another folder (--out).") from error
    with opened as file:
        if not try_lock(file.fileno(), is_shared=is_shared):
            file.seek(0)
            holder = file.read().strip()
            raise StateError(
                f"{folder} is in use by process {holder or 'unknown'}. "
                "Wait for it, end it, or choose another folder (--out)."
            )
        try:
            file.truncate(0)
            with contextlib.suppress(OSError):  # on a full disk the lock holds, without a name
                file.write(str(os.getpid()))
                file.flush()
            yield
        finally:
            unlock(file.fileno())
