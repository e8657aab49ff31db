"""How much memory this process holds at this moment, as the operating system sees it.

Cheap enough to be asked between tokens. Peaks during one call are `memory.py`'s business.
"""

import os
from pathlib import Path

_STATM = Path("/proc/self/statm")  # sizes in pages: total, resident, ... ; see proc(5)


def resident_bytes() -> int | None:
    """Return the resident size of this process; None where the system does not say.

    >>> size = resident_bytes()
    >>> size is None or size > 1_000_000
    True
    """
    if not _STATM.exists():
        return None
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
