"""Clock: wall time, the CPU time of a run, and what other processes used meanwhile.

Wall time depends on who else works on the machine; CPU time hardly does. Read from /proc, see proc(5). Time
that a hypervisor gave to other machines ("steal") is other work too.
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
    others: (
        float | None
    )  # CPU seconds of all other processes on our cores; None where the system does not tell


class Clock:
    """Runs from its making.

    >>> lap = Clock().lap()
    >>> lap.wall >= 0.0, lap.cpu >= 0.0
    (True, True)
    """

    def __init__(self) -> None:
        self._last = _read()

    def lap(self) -> Lap:
        """Return what passed since the last call, or since the beginning."""
        before, now = self._last, _read()
        self._last = now
        cpu = max(0.0, now.cpu - before.cpu)
        if before.others is None or now.others is None:
            return Lap(now.wall - before.wall, cpu, None)
        return Lap(now.wall - before.wall, cpu, max(0.0, now.others - before.others - cpu))


def _read() -> Lap:
    """Read all clocks; `others` is of all processes together here."""
    own = os.times()
    cpu = own.user + own.system + own.children_user + own.children_system
    used = None
    try:
        tick = 1.0 / os.sysconf("SC_CLK_TCK")
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        lines = [line.split() for line in (_PROC / "stat").read_text().splitlines()]
        times = [[int(word) for word in line[_FIELDS]] for line in lines if line[0] in cores]
        used = sum(sum(fields) - sum(fields[_IDLE]) for fields in times) * tick if times else None
        cpu += tick * sum(map(_ticks, _children("self")))
    except (OSError, ValueError, IndexError, AttributeError):
        pass  # no Linux: wall and CPU time are all there is
    return Lap(time.perf_counter(), cpu, used)


def _children(process: str) -> list[str]:
    """Return the processes that a process has started and not yet waited for."""
    tasks = (_PROC / process / "task").iterdir()
    return [child for task in tasks for child in (task / "children").read_text().split()]


def _ticks(process: str) -> int:
    """Return the ticks of a process, of those that it waited for, and of its living children."""
    try:
        # Behind the name, which may hold spaces: state, ppid, ..., utime, stime, cutime, cstime.
        stat = (_PROC / process / "stat").read_text().rpartition(")")[2].split()
        return sum(int(field) for field in stat[11:15]) + sum(map(_ticks, _children(process)))
    except OSError:  # it has just ended
        return 0
