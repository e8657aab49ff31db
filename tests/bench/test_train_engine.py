from pathlib import Path

import pytest
from typer.testing import CliRunner

from aaren.bench import train_engine
from aaren.bench.publish import page_text, read_generated
from aaren.bench.record import number, read_record
from aaren.cli.main import app
from aaren.engine.presets import make_run
from aaren.errors import AarenError

ROOT = Path(__file__).parents[2]


def test_shares_add_up_and_the_promise_is_judged() -> None:
    run = make_run("support.toy_task", "line")
    record = train_engine.measure({"toy": run}, seconds=0.3, command="x")
    (row,) = record.measurements
    assert number(row, "updates") > 5
    assert 0.0 < number(row, "inside_seconds") < number(row, "update_seconds")
    assert number(row, "loop_share") < number(row, "outside_share") < 1.0
    table, targets = train_engine.sheets(record)
    assert table.rows[0][0] == "toy"
    assert targets.rows[0][1:3] == ("at most 5%", f"{number(row, 'outside_share'):.2%}")


def test_a_run_without_its_data_is_a_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    record = train_engine.measure({"far": make_run("forecasting", "ETTh1")}, seconds=0.1, command="x")
    table, targets = train_engine.sheets(record)
    assert table.rows[0][1] == "not measured: ETTh1 cannot be opened here: aaren data verify ETTh1"
    assert not targets.rows


def test_the_command_measures_one_setting_and_writes_a_record(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    command = ["bench", "train", "--engine", "--quick", "--setting", "events", "--record", str(path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.exception
    record = read_record(path, kind="train-engine")
    assert record.command == "aaren bench train --engine --quick --setting events"
    assert [row["run"] for row in record.measurements] == ["events, aaren", "events, transformer"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--length", "64"], "leave out --length and --figure"),
        (["--figure", "x"], "leave out --length and --figure"),
        (["--setting", "event"], "did you mean 'events'?"),
    ],
)
def test_what_makes_no_sense_together_is_refused(options: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["bench", "train", "--engine", *options])
    assert isinstance(result.exception, AarenError)
    assert words in str(result.exception)


def test_the_page_shows_the_committed_record() -> None:
    record = read_record(ROOT / "results" / "bench" / "train-engine.json", kind="train-engine")
    assert read_generated(ROOT / "docs" / "training.md", "train-engine") == page_text(record)
