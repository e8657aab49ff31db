"""A measurement on a busy machine is void and says so."""

from dataclasses import replace
from pathlib import Path

import pytest

from aaren.bench.publish import Benchmark, page_text, run
from aaren.bench.record import BenchRecord, Measured, OnStep, OtherWork, Row, describe, read_record
from aaren.bench.target import at_least, targets_table, time_ratio
from aaren.engine.clock import Clock, Lap, num_cores
from aaren.errors import DataError
from aaren.table import Table

RECORD = BenchRecord(kind="it", command="it", settings={}, measurements=[])
BUSY = {"share_before": 0.0, "share_during": 0.4}


def tables(record: BenchRecord) -> list[Table]:
    rows: list[Row] = [{"median_seconds": 2.0}, {"median_seconds": 1.0}]
    return [targets_table([at_least("a", time_ratio(record, *rows), 1.5)])]


BENCHMARK = Benchmark(
    kind="it", command="it", settings=0, quick=0, measure=lambda _settings, _on_step: ({}, []), tables=tables
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


def test_shares_stay_between_nothing_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    laps = iter([Lap(1.0, 0.0, 0.0), Lap(1.0, 0.0, 3.0 * num_cores())])
    monkeypatch.setattr(Clock, "lap", lambda _clock: next(laps))
    assert OtherWork().shares() == {"share_before": 0.0, "share_during": 1.0}


def test_where_the_system_does_not_tell_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "lap", lambda _clock: Lap(1.0, 0.0, None))
    assert OtherWork().shares() is None


def test_a_run_on_a_busy_machine_warns_first_and_is_void(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    laps = iter([Lap(1.0, 0.0, 0.5 * num_cores()), Lap(1.0, 0.0, 0.05 * num_cores())])
    monkeypatch.setattr(Clock, "lap", lambda _clock: next(laps))

    def measure(_settings: int, on_step: OnStep) -> Measured:
        on_step(0, 1, "measuring")
        return {}, []

    path = tmp_path / "it.json"
    run(replace(BENCHMARK, measure=measure), 0, record=path, options=["--quick"])
    shown = capsys.readouterr()
    assert "other processes used 50% of the CPU just now: times of this run will be void" in shown.err
    assert "void: busy machine" in shown.out
    record = read_record(path)
    assert record.command == "it --quick"
    assert record.other_work == {"share_before": 0.5, "share_during": 0.05}
