"""Was the machine quiet? The CPU time that other processes used before a measurement and while it ran.

Read from /proc/stat and /proc/PID/stat, see proc(5); on systems without them nothing is known. Time that a
hypervisor gave to other guests ("steal") is other work too.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

BUSY_SHARE = 0.1  # of the CPU time of all cores that this process may use: beyond it, times are void
_BEFORE_SECONDS = 0.5
_PROC = Path("/proc")
_IDLE_FIELDS = (3, 4)  # idle and iowait, of user nice system idle iowait irq softirq steal
_NUM_FIELDS = 8  # the two behind them are contained in user and nice


class CpuTimes(NamedTuple):
    """A reading of the clocks, in seconds."""

    now: float
    used: float  # by all processes, on the cores that this process may use
    own: float  # by this process and its descendants
    cores: int


def read_cpu_times() -> CpuTimes | None:
    """Read the clocks; None where the system does not show them."""
    try:
        tick = 1.0 / os.sysconf("SC_CLK_TCK")
        names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        lines = [line.split() for line in (_PROC / "stat").read_text().splitlines()]
        times = [[int(word) for word in line[1 : _NUM_FIELDS + 1]] for line in lines if line[0] in names]
        used = sum(sum(fields) - sum(fields[place] for place in _IDLE_FIELDS) for fields in times)
        own = _own_ticks()
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return CpuTimes(time.monotonic(), used * tick, own * tick, len(times)) if times else None


def other_share(begin: CpuTimes | None, end: CpuTimes | None) -> float | None:
    """Return the share of the cores' time that other processes used between two readings.

    >>> other_share(CpuTimes(0.0, 50.0, 7.0, 2), CpuTimes(10.0, 65.0, 17.0, 2))
    0.25
    """
    if begin is None or end is None or end.now <= begin.now:
        return None
    others = (end.used - begin.used) - (end.own - begin.own)
    return min(1.0, max(0.0, others / (end.cores * (end.now - begin.now))))


class OtherWork:
    """Watches from its making, which takes half a second, to `shares()`."""

    def __init__(self) -> None:
        first = read_cpu_times()
        if first is not None:
            time.sleep(_BEFORE_SECONDS)
        self._begin = read_cpu_times()
        self.before = other_share(first, self._begin)

    def shares(self) -> dict[str, float] | None:
        """Return what a record keeps: the share that others used before, and from then until now."""
        during = other_share(self._begin, read_cpu_times())
        if self.before is None or during is None:
            return None
        return {"share_before": round(self.before, 4), "share_during": round(during, 4)}


def _own_ticks() -> int:
    """Add up this process and its living descendants; those that ended count in the process that waited."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # Behind the name, which may hold spaces: state, ppid, ..., utime, stime, cutime, cstime.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(folder.name)] = int(fields[1])
        ticks[int(folder.name)] = sum(int(field) for field in fields[11:15])
    return sum(ticks[process] for process in ticks if _descends(process, os.getpid(), parents))


def _descends(process: int, ancestor: int, parents: dict[int, int]) -> bool:
    while process in parents and process != ancestor:
        process = parents[process]
    return process == ancestor
