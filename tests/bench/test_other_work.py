"""A measurement on a busy machine is void and says so."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from aaren.bench import record as record_module
from aaren.bench.publish import Benchmark, Destinations, page_text, run
from aaren.bench.record import (
    BenchRecord,
    CpuTimes,
    OnStep,
    OtherWork,
    Row,
    describe,
    other_share,
    read_cpu_times,
    read_record,
)
from aaren.bench.table import Table, at_least, targets_table, time_ratio
from aaren.errors import DataError

RECORD = BenchRecord(kind="it", command="it", settings={}, measurements=[])
BUSY = {"share_before": 0.0, "share_during": 0.4}
needs_proc = pytest.mark.skipif(read_cpu_times() is None, reason="needs /proc/stat, as on Linux")
BURN = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass"


def tables(record: BenchRecord) -> list[Table]:
    rows: list[Row] = [{"median_seconds": 2.0}, {"median_seconds": 1.0}]
    return [targets_table([at_least("a", time_ratio(record, *rows), 1.5)])]


BENCHMARK = Benchmark(
    kind="it", command="it", settings=0, quick=0, measure=lambda _settings, _on_step: RECORD, tables=tables
)


def test_what_a_record_says_of_other_work_decides_its_verdicts() -> None:
    assert "| met |" in page_text(BENCHMARK, RECORD)  # records of before the check are judged as they were
    assert "| met |" in page_text(BENCHMARK, replace(RECORD, other_work={"share_during": 0.1}))
    void = page_text(BENCHMARK, replace(RECORD, other_work=BUSY))
    assert "| void: busy machine |" in void
    assert "void: other processes used 40% of the CPU" in void
    assert "void" not in describe(RECORD)


def test_other_work_goes_into_the_record_and_back(tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    replace(RECORD, other_work=BUSY).write(path)
    assert read_record(path).is_busy
    path.write_text(path.read_text().replace("0.4", '"much"'))
    with pytest.raises(DataError, match="other_work must hold shares of the CPU"):
        read_record(path)


@needs_proc
def test_own_work_is_not_other_work() -> None:
    begin = read_cpu_times()
    sum(range(3_000_000))
    subprocess.run([sys.executable, "-c", BURN.format(0.3)], check=True)
    child = subprocess.Popen(
        [sys.executable, "-c", BURN.format(0.3) + "\nimport sys; sys.stdin.read()"], stdin=-1
    )
    try:
        deadline = time.monotonic() + 60
        while read_cpu_times().own - begin.own < 0.6 and time.monotonic() < deadline:
            time.sleep(0.05)
        end = read_cpu_times()
    finally:
        child.communicate(b"")
    assert end.own - begin.own >= 0.6  # a child that ended, and one that lives
    assert end.used - begin.used >= end.own - begin.own - 0.2  # clocks tick


@needs_proc
def test_work_of_strangers_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that is counted as a stranger burns a core while nothing else of ours runs."""
    watch = OtherWork()
    before = read_cpu_times().used
    child = subprocess.Popen([sys.executable, "-c", BURN.format(1.0)])
    monkeypatch.setattr(record_module, "_own_ticks", lambda: 0)
    begin = replace_own(watch._begin)
    child.wait(timeout=60)
    watch._begin = begin
    shares = watch.shares()
    assert read_cpu_times().used - before >= 0.9
    assert shares is not None
    assert shares["share_during"] > 0.0


def replace_own(times: CpuTimes | None) -> CpuTimes:
    assert times is not None
    return times._replace(own=0.0)


def test_shares_stay_between_nothing_and_all() -> None:
    begin = CpuTimes(0.0, 0.0, 0.0, 2)
    assert other_share(begin, CpuTimes(1.0, 0.5, 0.6, 2)) == 0.0
    assert other_share(begin, CpuTimes(1.0, 2.5, 0.0, 2)) == 1.0
    assert other_share(begin, None) is None
    assert other_share(begin, begin) is None


def test_without_proc_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(record_module, "_PROC", tmp_path)
    assert OtherWork().shares() is None


def test_idle_steal_and_other_cores_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    mine, *_ = sorted(os.sched_getaffinity(0))
    spent = " ".join(str(tick * seconds) for seconds in (1, 2, 4, 100, 200, 8, 16, 32, 1, 2))
    (tmp_path / "stat").write_text(f"cpu  9 9 9 9 9 9 9 9 9 9\ncpu{mine} {spent}\ncpu4000 {spent}\nintr 5\n")
    (tmp_path / str(os.getpid())).mkdir()
    stat = f"{os.getpid()} (a name (odd)) R 1 " + " ".join(["0"] * 9) + f" {tick} {tick} {tick} 0 20 0"
    (tmp_path / str(os.getpid()) / "stat").write_text(stat)
    monkeypatch.setattr(record_module, "_PROC", tmp_path)
    times = read_cpu_times()
    assert times is not None
    assert (times.used, times.own, times.cores) == (63.0, 3.0, 1)


def test_a_run_on_a_busy_machine_warns_first_and_is_void(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readings = iter([CpuTimes(0.0, 0.0, 0.0, 2), CpuTimes(1.0, 1.0, 0.0, 2), CpuTimes(2.0, 1.1, 0.0, 2)])
    monkeypatch.setattr(record_module, "read_cpu_times", lambda: next(readings))

    def measure(_settings: int, on_step: OnStep) -> BenchRecord:
        on_step(0, 1, "measuring")
        return RECORD

    path = tmp_path / "it.json"
    run(replace(BENCHMARK, measure=measure), 0, Destinations(record=path), options=["--quick"])
    shown = capsys.readouterr()
    assert "other processes used 50% of the CPU just now: times of this run will be void" in shown.err
    assert "void: busy machine" in shown.out
    record = read_record(path)
    assert record.command == "it --quick"
    assert record.other_work == {"share_before": 0.5, "share_during": 0.05}
