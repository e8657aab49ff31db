import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.engine.config import RunConfig
from aaren.engine.run import train
from aaren.errors import DataError
from aaren.lab.records import collect


@pytest.fixture
def runs(toy_run: Callable[..., RunConfig], tmp_path: Path) -> Path:
    """A folder with one finished run."""
    train(toy_run(), tmp_path / "runs" / "toy" / "good")
    return tmp_path / "runs"


def change(folder: Path, name: str, **values: object) -> Path:
    """Copy the good record under another name, with other values."""
    content = json.loads((folder / "toy" / "good" / "record.json").read_text()) | values
    path = folder / "toy" / name / "record.json"
    path.parent.mkdir()
    path.write_text(json.dumps(content))
    return path


def test_finished_runs_are_found_and_the_rest_is_named(runs: Path) -> None:
    newer = change(runs, "newer", format=2)
    failed = change(runs, "failed", status="failed", error="DivergedError: the loss is nan")
    lacking = change(runs, "lacking")
    content = json.loads(lacking.read_text())
    lacking.write_text(json.dumps({key: value for key, value in content.items() if key != "metrics"}))
    cut = change(runs, "cut")
    cut.write_text(cut.read_text()[:200])
    foreign = change(runs, "foreign", kind="scan")
    listed = change(runs, "listed")
    listed.write_text("[1, 2]")
    (runs / "toy" / "going-on").mkdir()
    found = collect(runs)
    assert [item.path for item in found.records] == [runs / "toy" / "good" / "record.json"]
    assert found.records[0].record.status == "finished"
    assert {problem.path: problem.reason for problem in found.problems} == {
        newer: "a newer version of aaren wrote it (format 2; this one reads 1): read it with that version",
        failed: "the run failed: DivergedError: the loss is nan",
        lacking: "is an incomplete record: it lacks metrics.",
        cut: "it is not JSON: cut off, or something else wrote it",
        foreign: "it is no record of a run: something else wrote it",
        listed: "it is no record of a run: something else wrote it",
    }


def test_several_folders(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert collect(tmp_path / "empty").records == []
    assert len(collect(runs, tmp_path / "empty").records) == 1


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no folder .*nowhere: name one that holds runs"):
        collect(tmp_path / "nowhere")


def test_a_folder_that_is_named_twice(runs: Path) -> None:
    found = collect(runs, runs / "toy")
    assert len(found.records) == 1
    assert found.problems == []
