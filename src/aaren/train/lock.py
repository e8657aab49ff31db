"""One process per run folder. The lock dies with its process, so a killed run leaves none behind."""

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aaren.errors import StateError

LOCK_FILE = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run folder for the time of a block, or say who holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = (folder / LOCK_FILE).open("a+", encoding="utf-8")
    except OSError as error:
        raise StateError(f"cannot write to {folder}: {error}. Choose another folder (--out).") from error
    with opened as file:
        if not _try_lock(file.fileno()):
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
            _unlock(file.fileno())


if sys.platform == "win32":
    import msvcrt

    _PLACE = 1 << 30  # far behind the text: a locked byte cannot be read by others

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, _PLACE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _PLACE, os.SEEK_SET)
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
