"""One writer to a file: a lock that goes with its process, however that ends."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_PAST_THE_END = 1 << 40  # Windows locks bytes, and nobody else could read those that hold rows


def lock(descriptor: int) -> bool:
    """Lock an open file until the descriptor is closed; False if another process, or descriptor, has it.

    What is no file (a pipe, /dev/null) and a file system that has no locks are as good as locked.
    """
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return True
    with suppress(OSError):
        try:
            if sys.platform == "win32":
                os.lseek(descriptor, _PAST_THE_END, os.SEEK_SET)
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
    return True
