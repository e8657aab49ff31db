import json
import multiprocessing
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import identity
from aaren.engine.config import RunConfig
from aaren.engine.run import train
from aaren.errors import DataError
from aaren.lab.records import append, collect, is_stale, read_identities


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
    newer = change(runs, "newer", format=99)
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
    assert [record.status for record in found.records] == ["finished"]
    assert found.unlisted == [runs / "toy" / "good"]
    reasons = {problem.path: problem.reason for problem in found.problems}
    assert reasons.keys() == {newer, failed, lacking, cut, foreign, listed}
    assert reasons[failed] == "the run failed: DivergedError: the loss is nan"
    assert [problem.path for problem in found.problems if problem.is_failure] == [failed]


def test_the_line_of_a_run_is_its_record(runs: Path) -> None:
    folder = runs / "toy" / "good"
    append(folder)
    append(folder)
    found = collect(runs)
    shutil.rmtree(folder)
    assert collect(runs) == found
    assert found.unlisted == []
    assert (runs / "toy" / "runs.jsonl").read_text().count("\n") == 1


def test_a_line_that_was_cut_off_is_ignored_and_then_replaced(runs: Path) -> None:
    append(runs / "toy" / "good")
    path = runs / "toy" / "runs.jsonl"
    whole = path.read_text()
    for length in (1, len(whole) // 2, len(whole) - 1):
        path.write_text(whole[:length])
        alone = collect(runs)
        assert (len(alone.records), alone.problems) == (1, [])  # from the run's own folder
        assert alone.unlisted == [runs / "toy" / "good"]
        append(runs / "toy" / "good")
        assert path.read_text() == whole


def test_the_latest_of_two_records_of_one_cell_counts(runs: Path) -> None:
    again = json.loads((runs / "toy" / "good" / "record.json").read_text())
    later = again | {"date": "2999-01-01T00:00:00+00:00", "parameters": 7}
    for shard, record in (("a", later), ("b", again), ("c", again | {"seed": 1})):
        (runs / shard).mkdir()
        (runs / shard / "runs.jsonl").write_text(json.dumps(record) + "\n")
    found = collect(runs / "a", runs / "b", runs / "c")
    assert sorted((record.seed, record.parameters == 7) for record in found.records) == [
        (0, True),
        (1, False),
    ]


def test_several_processes_append_whole_lines(runs: Path) -> None:
    folders = []
    for seed in range(8):
        change(runs, f"seed{seed}", seed=seed, command="x" * 100_000)
        folders.append(runs / "toy" / f"seed{seed}")
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("fork")) as pool:
        list(pool.map(append, folders))
    shutil.rmtree(runs / "toy" / "good")
    assert sorted(record.seed for record in collect(runs).records) == list(range(8))
    assert collect(runs).unlisted == []


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


def test_a_run_is_stale_unless_todays_code_computes_what_its_own_did(runs: Path) -> None:
    (record,) = collect(runs).records
    name = f"{record.setting} {record.cell['model']}"
    assert is_stale(record, {name: "abc"})
    known = replace(record, identity="abc")
    assert not is_stale(known, {name: "abc"})
    assert is_stale(known, {name: "def"})
    assert is_stale(known, {})


def test_runs_since_a_date_are_stamped(runs: Path) -> None:
    append(runs / "toy" / "good")
    (record,) = collect(runs).records
    shutil.rmtree(runs / "toy" / "good")
    content = {"smoke": {f"{record.setting} {record.cell['model']}": {"metrics": 1.0}, "toy broken": ["x"]}}
    assert identity.stamp(content, runs, "2999") == 0
    assert identity.stamp(content, runs, record.date) == 1
    identities = read_identities(runs)
    assert len(identities) == 1
    assert not is_stale(collect(runs).records[0], identities)
