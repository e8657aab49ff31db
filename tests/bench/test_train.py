from pathlib import Path

import pytest
from typer.testing import CliRunner

from aaren.bench.memory import can_measure
from aaren.bench.record import BenchRecord, Row, read_record
from aaren.bench.stream_contenders import AAREN, SMALL, TRANSFORMER
from aaren.bench.train import BENCHMARK, CONTENDERS, TrainSettings, draw, prepare_step, tables, targets
from aaren.cli.main import app


def _row(contender: str, length: int, seconds: float) -> Row:
    return {
        "contender": contender,
        "length": length,
        "batch_size": 1,
        "median_seconds": seconds,
        "lower_quartile_seconds": seconds,
        "upper_quartile_seconds": seconds,
        "repeats": 3,
        "peak_extra_bytes": None,
    }


def _record(*rows: Row) -> BenchRecord:
    settings = {"model": "a block", "tokens_per_step": 64}
    return BenchRecord(kind="train", command="", settings={**settings}, measurements=list(rows))


@pytest.mark.parametrize("contender", CONTENDERS)
def test_a_step_learns(contender: str) -> None:
    step = prepare_step(SMALL, contender, 2, 16)
    losses = [step() for _ in range(5)]
    assert losses[-1] < losses[0]


def test_every_step_sees_as_many_tokens() -> None:
    settings = TrainSettings()
    assert [settings.batch_size(length) for length in (256, 8192, 10_000)] == [32, 1, 1]
    assert {length * settings.batch_size(length) for length in settings.lengths if length > 96} == {8192}


@pytest.mark.long
def test_record_has_every_contender_at_every_length(tmp_path: Path) -> None:
    settings = TrainSettings(lengths=(16,), tokens_per_step=32, size=SMALL, budget_seconds=0.1)
    record = BENCHMARK.record(settings)
    found = {(row["contender"], row["length"], row["batch_size"]) for row in record.measurements}
    assert found == {(name, 16, 2) for name in CONTENDERS}
    for row in record.measurements:
        assert isinstance(row["peak_extra_bytes"], int) == can_measure()
    assert "2 sequences of 16 items" in tables(record)[0].title
    png, svg = draw(record, tmp_path / "train")
    assert png.exists()
    assert "Time of one step" in svg.read_text()


def test_speed_is_judged_where_it_was_promised() -> None:
    rows = [_row(AAREN, 1024, 1.0), _row(TRANSFORMER, 1024, 1.2)]
    assert [target.verdict for target in targets(_record(*rows))] == ["met", "not run"]
    rows += [_row(AAREN, 8192, 1.0), _row(TRANSFORMER, 8192, 1.9)]
    assert [target.verdict for target in targets(_record(*rows))] == ["met", "missed"]


@pytest.mark.long
def test_quick_run_writes_its_record(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    result = CliRunner().invoke(app, ["bench", "train", "--quick", "--record", str(path)])
    assert result.exit_code == 0, result.output
    assert "One training step" in result.stdout
    assert read_record(path, kind="train").command == "aaren bench train --quick"
