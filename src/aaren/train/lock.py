"""One process per run folder. The lock dies with its process, so a killed run leaves none behind."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aaren.data.files.file_lock import try_lock, unlock
from aaren.errors import StateError

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
