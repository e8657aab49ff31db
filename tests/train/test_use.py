import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.errors import ConfigError, DataError
from aaren.train.config import RunConfig
from aaren.train.run import train
from aaren.train.use import evaluate_run, open_run, predict_run

ToyRun = Callable[..., RunConfig]


@pytest.fixture
def run(toy_run: ToyRun, tmp_path: Path) -> Path:
    train(toy_run(epochs=1, checkpoint_seconds=1e9), tmp_path / "run")
    return tmp_path / "run"


def test_evaluation_repeats_the_record(run: Path) -> None:
    record, metrics = evaluate_run(run)
    assert dict(metrics) == record.metrics["test"]
    assert dict(evaluate_run(run, part="validation")[1]) == record.metrics["best"]


def test_evaluation_takes_changes(run: Path) -> None:
    assert evaluate_run(run, assignments=["batch_size=4"])[1] == evaluate_run(run)[1]
    with pytest.raises(ConfigError, match="unknown key 'episods'"):
        evaluate_run(run, assignments=["episods=20"])
    with pytest.raises(ConfigError, match=r"model\.width is part of what was trained"):
        evaluate_run(run, assignments=["width=8"])
    with pytest.raises(ConfigError, match=r"unknown part 'tset'; did you mean 'test'\?"):
        evaluate_run(run, part="tset")


def test_prediction_speaks_about_new_data(run: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "new.json", tmp_path / "answer.json"
    source.write_text("[[1, 2, 3, 4], [0, 0, 0, 0]]")
    predict_run(run, source=source, target=target)
    assert len(json.loads(target.read_text())) == 2
    source.write_text("[[1, 2]]")
    with pytest.raises(DataError, match=r"new\.json: every row needs the columns"):
        predict_run(run, source=source, target=target)


def test_prediction_needs_files(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file .*nothing\.json: --data needs the new data"):
        predict_run(run, source=tmp_path / "nothing.json", target=tmp_path / "x")
    (tmp_path / "new.json").write_text("[]")
    with pytest.raises(ConfigError, match="cannot be written: -o needs a file name"):
        predict_run(run, source=tmp_path / "new.json", target=tmp_path / "no" / "x")


def test_folders_that_are_no_finished_runs(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is no run folder: it has no run\.toml"):
        open_run(tmp_path)
    (run / "record.json").write_text(
        (run / "record.json")
        .read_text()
        .replace('"finished"', '"failed"')
        .replace('"error": null', '"error": "X"')
    )
    with pytest.raises(DataError, match=r"failed \(X\): there is no model to use"):
        open_run(run)
    (run / "record.json").unlink()
    with pytest.raises(DataError, match="the run has not finished"):
        open_run(run)
