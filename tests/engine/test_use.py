import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.engine.config import RunConfig
from aaren.engine.run import train
from aaren.engine.use import evaluate_run, open_run, predict_run
from aaren.errors import ConfigError, DataError

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


DATA = "[[1, 2, 3, 4], [0, 0, 0, 0]]"


@pytest.mark.parametrize(
    "kind", ["same", "spelled otherwise", "hard link", "symbolic link", "link to a link"]
)
def test_prediction_never_writes_over_its_data(
    run: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source, target = tmp_path / "new.json", tmp_path / "answer.json"
    source.write_text(DATA)
    if kind == "same":
        target = source
    elif kind == "spelled otherwise":
        target = Path("run/../new.json")
    elif kind == "hard link":
        target.hardlink_to(source)
    else:
        middle = tmp_path / "middle.json" if kind == "link to a link" else target
        middle.symlink_to(source)
        if middle != target:
            target.symlink_to("middle.json")
    with pytest.raises(ConfigError, match=r"is the file of --data, .*new\.json: it would be lost"):
        predict_run(run, source=source, target=target)
    if kind == "symbolic link":
        with pytest.raises(ConfigError, match="is the file of --data"):
            predict_run(run, source=target, target=source)
    assert source.read_text() == DATA


def test_prediction_never_writes_over_its_run(run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.json").write_text(DATA)
    before = (run / "record.json").read_bytes()
    with pytest.raises(ConfigError, match="is a file of the run in"):
        predict_run(run, source=tmp_path / "new.json", target=run / "record.json")
    (tmp_path / "link").symlink_to(run / "model" / "config.json")
    with pytest.raises(ConfigError, match=r"is a file of the run in|cannot be written"):
        predict_run(run, source=tmp_path / "new.json", target=next((run / "model").iterdir()))
    assert (run / "record.json").read_bytes() == before


def test_a_link_as_output_means_what_it_points_to(run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.json").write_text(DATA)
    (tmp_path / "far").mkdir()
    link, place = tmp_path / "answer.json", tmp_path / "far" / "there.json"
    link.symlink_to(place)
    for _ in range(2):  # when there is nothing yet, and when there is
        predict_run(run, source=tmp_path / "new.json", target=link)
        assert link.is_symlink()
        assert not place.is_symlink()
        assert len(json.loads(place.read_text())) == 2
    assert sorted(path.name for path in (tmp_path / "far").iterdir()) == ["there.json"]


def test_a_prediction_that_fails_leaves_the_old_one(run: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "new.json", tmp_path / "answer.json"
    source.write_text("[[1, 2]]")
    target.write_text("old")
    target.chmod(0o640)
    with pytest.raises(DataError, match="every row needs the columns"):
        predict_run(run, source=source, target=target)
    assert target.read_text() == "old"
    source.write_text(DATA)
    predict_run(run, source=source, target=target)
    assert target.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["", "folder", "x" * 5000, "no/x", "pipe", "loop"])
def test_what_is_no_place_for_a_prediction_is_told(run: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "new.json").write_text(DATA)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match="cannot be written: -o needs a file name"):
        predict_run(run, source=tmp_path / "new.json", target=tmp_path / name)


def test_folders_that_are_no_finished_runs(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is no run folder: it has no run\.json"):
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
