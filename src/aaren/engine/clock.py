"""Clock: wall time, the CPU time of a run, and what other processes used meanwhile.

Wall time depends on who else works on the machine; CPU time hardly does.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_IDLE = slice(3, 5)  # of the fields of a line "cpu": idle and waiting for a disk
_FIELDS = slice(1, 9)  # user to steal; what follows is in them already


class Lap(NamedTuple):
    """Seconds since the lap before."""

    wall: float
    cpu: float  # of this process and the processes that it started, all threads together
    others: float  # CPU seconds of all other processes; 0 where the system does not tell


class Clock:
    """Runs from its making.

    >>> lap = Clock().lap()
    >>> lap.wall >= 0.0, lap.cpu >= 0.0, lap.others >= 0.0
    (True, True, True)
    """

    def __init__(self) -> None:
        self._last = _read()

    def lap(self) -> Lap:
        """Return what passed since the last call, or since the beginning."""
        before, now = self._last, _read()
        self._last = now
        cpu = max(0.0, now.cpu - before.cpu)
        return Lap(now.wall - before.wall, cpu, max(0.0, now.others - before.others - cpu))


def _read() -> Lap:
    """Read all clocks; `others` is of all processes together here."""
    own = os.times()
    cpu = own.user + own.system + own.children_user + own.children_system
    used = 0.0
    try:
        tick = 1.0 / os.sysconf("SC_CLK_TCK")
        fields = [int(word) for word in (_PROC / "stat").read_text().split("\n", 1)[0].split()[_FIELDS]]
        used = (sum(fields) - sum(fields[_IDLE])) * tick
        cpu += tick * sum(_living_children())
    except (OSError, ValueError, IndexError, AttributeError):
        pass  # no Linux: wall and CPU time are all there is
    return Lap(time.perf_counter(), cpu, used)


def _living_children() -> list[int]:
    """Return the ticks of every process that this one has started and not yet waited for."""
    found = []
    for task in (_PROC / "self" / "task").iterdir():
        for process in (task / "children").read_text().split():
            # Behind the name, which may hold spaces: state, ppid, ..., utime, stime, cutime, cstime.
            stat = (_PROC / process / "stat").read_text().rpartition(")")[2].split()
            found.append(sum(int(field) for field in stat[11:15]))
    return found
