import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import clock as clock_module
from clock import Clock

BURN = (
    "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\nprint(flush=True)\n"
)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the time of living children")
def test_work_of_children_counts_while_they_live() -> None:
    clock = Clock()
    code = BURN.format(0.3) + "time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            lap = clock.lap()
        finally:
            child.kill()
    assert lap.cpu > 0.25
    assert lap.wall >= 0.25


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_idle_steal_other_cores_and_grandchildren_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    mine, *_ = sorted(os.sched_getaffinity(0))

    def write(seconds: int, child_seconds: int) -> None:
        spent = " ".join(str(tick * seconds * part) for part in (1, 2, 4, 100, 200, 8, 16, 32, 1, 2))
        (tmp_path / "stat").write_text(f"cpu  9 9 9\ncpu{mine} {spent}\ncpu4000 {spent}\nintr 5\n")
        for process, child in (("self", "12"), ("12", "13 99"), ("13", "")):
            task = tmp_path / process / "task" / "1"
            task.mkdir(parents=True, exist_ok=True)
            (task / "children").write_text(child)
            ticks = f" {tick * child_seconds} {tick * child_seconds} 0 0 20 0"
            (tmp_path / process / "stat").write_text("12 (an (odd) name) R 1" + " 0" * 9 + ticks)

    monkeypatch.setattr(clock_module, "_PROC", tmp_path)
    write(1, 1)
    clock = Clock()
    write(2, 3)
    lap = clock.lap()
    assert lap.cpu == pytest.approx(8.0, abs=0.5)  # two processes of two seconds each, twice
    assert lap.others == pytest.approx(63.0 - 8.0, abs=0.5)
    (tmp_path / "stat").unlink()
    assert clock.lap().others is None


def test_waiting_costs_wall_time_alone() -> None:
    clock = Clock()
    time.sleep(0.2)
    lap = clock.lap()
    assert lap.wall >= 0.2
    assert lap.cpu < 0.1
