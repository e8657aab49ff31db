import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aaren.datasets.catalogue import lookup
from aaren.engine.config import EngineConfig
from aaren.engine.run import train
from aaren.engine.use import Sweep, sweep_run
from aaren.lab.plan import PlannedRun, Request, how_to_get, plan, survey

Planned = Callable[..., PlannedRun]


def test_an_empty_place(planned: Planned, tmp_path: Path) -> None:
    runs = [planned(0), planned(1)]
    assert survey(runs, tmp_path / "nowhere").waiting == runs


def test_a_finished_run_counts_whatever_its_folder_and_threads(planned: Planned, tmp_path: Path) -> None:
    run = planned(0)
    config = replace(run.config, engine=EngineConfig(threads=0), changed=("engine.threads",))
    train(config, tmp_path / "runs" / "elsewhere")
    found = survey([run, planned(1)], tmp_path / "runs")
    assert (found.finished, found.waiting) == ([run], [planned(1)])


def test_a_finished_run_waits_for_a_sweep_that_it_lacks(planned: Planned, tmp_path: Path) -> None:
    run = replace(planned(0), sweeps=(Sweep.parse("batch_size=4,8"),))
    folder = tmp_path / "runs" / "elsewhere"
    config = replace(run.config, engine=EngineConfig(threads=0), changed=("engine.threads",))
    train(config, folder)
    (waiting,) = survey([run], tmp_path / "runs").waiting
    assert (waiting.folder, waiting.config) == (folder, config)  # where, and as, it was carried out
    sweep_run(folder, run.sweeps[0])
    assert survey([run], tmp_path / "runs").finished == [run]


def test_a_run_without_its_weights_cannot_be_swept(planned: Planned, tmp_path: Path) -> None:
    run = replace(planned(0), sweeps=(Sweep.parse("batch_size=4,8"),))
    train(run.config, run.folder)
    shutil.rmtree(run.folder / "model")  # as in a clone of records
    assert survey([run], tmp_path / "runs").finished == [run]


def test_failed_runs_wait_for_retry_failed(planned: Planned, tmp_path: Path) -> None:
    run = planned(0)
    record = train(run.config, tmp_path / "template")
    replace(record, status="failed", error="DivergedError: the loss is nan").write(run.folder / "record.json")
    out = tmp_path / "runs"
    assert survey([run], out).failed == [(run, "the run failed: DivergedError: the loss is nan")]
    assert survey([run], out, retry_failed=True).waiting == [run]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (json.dumps({"kind": "run", "format": 99}), "a newer version of aaren wrote it (format 99;"),
        ('{"kind": "run", "form', "it is not JSON: cut off, or something else wrote it"),
        (json.dumps({"kind": "scan"}), "it is no record of a run: something else wrote it"),
    ],
)
def test_a_record_that_cannot_be_read_is_left_alone(
    planned: Planned, tmp_path: Path, content: str, reason: str
) -> None:
    run = planned(0)
    run.folder.mkdir(parents=True)
    (run.folder / "record.json").write_text(content)
    found = survey([run], tmp_path / "runs", retry_failed=True)
    assert found.waiting == []
    assert found.unreadable[0][0] == run
    assert found.unreadable[0][1].startswith(reason)
    assert (run.folder / "record.json").read_text() == content


def test_missing_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    runs = plan(Request(datasets=("wiki", "sin"), models=("aaren",), seeds=1), tmp_path)
    found = survey(runs, tmp_path)
    assert list(found.without_data) == ["wiki"]
    assert [run.dataset for run in found.waiting] == ["sin"]


def test_how_to_get_data() -> None:
    assert how_to_get(lookup("wiki")) == "aaren data fetch wiki"
    assert how_to_get(lookup("hopper-medium-regen")) == "aaren data make rl hopper-medium"
    assert how_to_get(lookup("taxi")).startswith("no download is known: the paper's January-February 2013")
