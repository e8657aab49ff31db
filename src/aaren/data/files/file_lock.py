"""A lock on an open file, which dies with its process. Knows nothing of waiting or of whom to tell."""

import contextlib
import os
import sys

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
