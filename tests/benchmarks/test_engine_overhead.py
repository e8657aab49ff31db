from pathlib import Path

import pytest

import engine_overhead
from aaren.bench.record import BenchRecord, Row, number
from aaren.engine.presets import make_run


def record_of(row: Row) -> BenchRecord:
    return BenchRecord(kind="train-engine", command="", settings={"seconds": 0.1}, measurements=[row])


def test_shares_add_up_and_the_promise_is_judged() -> None:
    run = make_run("support.toy_task", "line")
    row = engine_overhead.measure_run("toy", run, 0.3)
    assert number(row, "updates") > 5
    assert 0.0 < number(row, "inside_seconds") < number(row, "update_seconds")
    assert number(row, "loop_share") < number(row, "outside_share") < 1.0
    table, targets = engine_overhead.tables(record_of(row))
    assert table.rows[0][0].text == "toy"
    assert [cell.text for cell in targets.rows[0][1:3]] == [
        "at most 5%",
        f"{number(row, 'outside_share'):.2%}",
    ]


def test_a_run_without_its_data_is_a_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    row = engine_overhead.measure_run("far", make_run("forecasting", "ETTh1"), 0.1)
    table, targets = engine_overhead.tables(record_of(row))
    assert table.rows[0][1].text == "not measured: ETTh1 cannot be opened here: aaren data verify ETTh1"
    assert not targets.rows


def test_both_models_of_every_setting_are_trained() -> None:
    runs = engine_overhead.cpu_runs()
    assert list(runs)[:2] == ["forecasting, aaren", "forecasting, transformer"]
    assert len(runs) == 8
    assert {run.profile for run in runs.values()} == {"cpu"}
