import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aaren.engine.clock import Clock
from aaren.engine.config import RunConfig
from aaren.engine.run import train
from aaren.lab.records import core_seconds, seconds_of, wall_seconds

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


def test_waiting_costs_wall_time_alone() -> None:
    clock = Clock()
    time.sleep(0.2)
    lap = clock.lap()
    assert lap.wall >= 0.2
    assert lap.cpu < 0.1


def test_a_record_tells_cpu_time_and_the_load(toy_run: Callable[..., RunConfig], tmp_path: Path) -> None:
    record = train(toy_run(), tmp_path / "run")
    assert record.seconds["cpu"] > 0.0
    assert record.seconds["others"] >= 0.0
    assert core_seconds(record) == record.seconds["cpu"]
    old = replace(record, seconds={"training": 6.0, "looking": 3.0, "saving": 1.0})
    assert core_seconds(old) == wall_seconds(old) == seconds_of(old) == 10.0
    # Two threads spend more CPU time than the run lasts.
    assert seconds_of(replace(old, threads=2, seconds={**old.seconds, "cpu": 19.0})) == 10.0
    assert seconds_of(replace(old, threads=1, seconds={**old.seconds, "cpu": 7.0})) == 7.0
