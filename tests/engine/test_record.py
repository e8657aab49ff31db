import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from aaren.engine.record import RunRecord, read_record
from aaren.errors import DataError
from aaren.files.strict_json import strict_json


@pytest.fixture
def record() -> RunRecord:
    return RunRecord(
        status="finished",
        setting="forecasting",
        profile="cpu",
        seed=0,
        cell={"dataset": "ETTh1", "horizon": 96, "model": "aaren"},
        changed=[],
        config={},
        command="aaren train forecasting ETTh1",
        metrics={"test": {"mse": 0.5, "mae": math.nan}},
        reports=["test.mse"],
        parameters=10,
        updates=100,
        epochs=1.0,
        ended_by="max_updates",
        best_update=100,
        resumed=0,
        seconds={"training": 1.0},
        curve=[{"update": 1, "loss": 0.5, "validation": {"mse": 0.25}}],
        data={},
        facts={},
    )


def test_written_and_read(record: RunRecord, tmp_path: Path) -> None:
    record.write(tmp_path / "record.json")
    found = read_record(tmp_path / "record.json")
    assert replace(found, metrics=record.metrics) == record
    assert found.metric("test.mse") == 0.5
    assert math.isnan(found.metric("test.mae"))
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_keys_that_no_run_had_set_are_left_out(record: RunRecord, tmp_path: Path) -> None:
    before = {"threads": 1, "accumulate": 1, "autocast": "none", "compile": False}
    replace(record, config={"engine": before}).write(tmp_path / "record.json")
    assert read_record(tmp_path / "record.json").config == {"engine": {"threads": 1}}


def test_no_host_and_strict_json(record: RunRecord, tmp_path: Path) -> None:
    import platform

    record.write(tmp_path / "record.json")
    text = (tmp_path / "record.json").read_text()
    assert f'"{platform.node()}"' not in text
    json.loads(text, parse_constant=pytest.fail)
    assert strict_json([math.inf, 1.0]) == "[null, 1.0]"


def test_a_metric_that_is_not_there(record: RunRecord) -> None:
    with pytest.raises(DataError, match=r"the record has no 'test\.rmse'; it has test\.mse, test\.mae"):
        record.metric("test.rmse")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"kind": "run", "for', "is not JSON: cut off"),
        ("[1]", "is no record of a run"),
        ('{"kind": "bench", "format": 2}', "is no record of a run"),
        ('{"kind": "run", "format": 3}', "has format 3; this version of aaren reads format 2"),
        ('{"kind": "run", "format": 2, "seed": 0}', "is an incomplete record: it lacks best_update, cell"),
    ],
)
def test_foreign_and_broken_files(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_record(path)


def test_missing_record(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"the run has not finished\. Resume it with the command that began it"
    ):
        read_record(tmp_path / "record.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metrics", None),
        ("metrics", {"test": {"mse": "low"}}),
        ("seed", "0"),
        ("date", None),
        ("error", ["a", "b"]),
        ("reports", "test.mse"),
        ("status", "done"),
        ("cell", [1]),
    ],
)
def test_values_that_cannot_be(record: RunRecord, tmp_path: Path, name: str, value: object) -> None:
    path = tmp_path / "record.json"
    record.write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(DataError, match=f"is no valid record: {name} has the wrong type or value"):
        read_record(path)
