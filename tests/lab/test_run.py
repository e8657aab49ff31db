"""Grids whose runs fail, hang and die, whose workers and which themselves are really killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aaren.engine.run import train
from aaren.engine.use import Sweep
from aaren.errors import ConfigError, UnwritableError
from aaren.files.lock import locked
from aaren.lab.plan import PlannedRun, Request, find_status, plan
from aaren.lab.records import collect
from aaren.lab.run import carry_out, run_here, run_on_ray

Planned = Callable[..., PlannedRun]
TOY, GRID = "support.toy_task", "support.toy_grid"


def assert_same(left: Path, right: Path) -> None:
    """Compare what must not depend on kills: weights and metrics."""
    weights, others = (load_file(folder / "model" / "weights.safetensors") for folder in (left, right))
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    one, two = (json.loads((folder / "record.json").read_text()) for folder in (left, right))
    assert one["metrics"] == two["metrics"]


def holder_of(folder: Path, *, patience: float = 200.0) -> int:
    """Wait until a run has a checkpoint behind it, and return the process that runs it."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if any((folder / "checkpoints").glob("update-*")):
            return int((folder / ".lock").read_text())
        time.sleep(0.01)
    raise AssertionError(f"no run went on in {folder}")


def test_every_run_is_carried_out_and_listed_whatever_fails(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    swept = replace(planned(0), sweeps=(Sweep.parse("batch_size=4,8"),))
    broken, held = planned(1, penalty=1e38), planned(2)
    lines: list[str] = []
    with locked(held.folder):
        outcome = run_here([swept, broken, held], workers=2, say=lines.append)
    assert (outcome.finished, [run for run, _ in outcome.failed]) == (1, [broken])
    assert outcome.failed[0][1].startswith("DivergedError")
    assert any(line.startswith("finished 1 of 3 (") and "test.mse" in line for line in lines)
    assert f"left to the process that holds it: {held.name}" in lines
    (record,) = collect(tmp_path / "runs").records
    assert list(record.sweeps) == ["batch_size"]
    assert (swept.folder.parent / "runs.jsonl").read_text().count("\n") == 1
    assert find_status([swept], tmp_path / "runs").finished == [swept]


def test_a_run_that_kills_its_workers_is_given_up_and_stops_nothing(
    planned: Planned, troubled: Planned
) -> None:
    lines: list[str] = []
    outcome = run_here([troubled("die"), planned(0)], workers=1, say=lines.append)
    assert outcome.finished == 1
    ((_, error),) = outcome.failed
    assert error == "its worker died 3 times (killed by SIGKILL)"
    assert (
        sum("its worker was lost (killed by SIGKILL); another one resumes it" in line for line in lines) == 2
    )


def test_a_worker_that_is_killed_is_replaced_and_its_run_ends_with_the_same_bits(
    planned: Planned, tmp_path: Path
) -> None:
    run = planned(0, slow_seconds=0.03)
    killer = threading.Thread(target=lambda: os.kill(holder_of(run.folder), signal.SIGKILL))
    killer.start()
    lines: list[str] = []
    assert run_here([run], workers=1, say=lines.append).finished == 1
    killer.join()
    assert any("its worker was lost (killed by SIGKILL" in line for line in lines)
    assert json.loads((run.folder / "record.json").read_text())["resumed"] == 1
    train(run.config, tmp_path / "alone")
    assert_same(run.folder, tmp_path / "alone")


def test_a_pause_leaves_the_rest_for_later(planned: Planned) -> None:
    first, second = planned(0, slow_seconds=0.05), planned(1)
    lines: list[str] = []
    outcome = run_here(
        [first, second],
        workers=1,
        say=lines.append,
        is_pause_wanted=lambda: any((first.folder / "checkpoints").glob("update-*")),
    )
    assert outcome.stopped
    assert (outcome.finished, outcome.failed) == (0, [])
    assert not second.folder.exists()
    assert any((first.folder / "checkpoints").glob("update-*"))
    assert run_here([first, second], workers=1, say=lines.append).finished == 2


def test_a_pause_between_two_values_of_a_sweep(planned: Planned) -> None:
    run = replace(planned(0), sweeps=(Sweep.parse("batch_size=4,8"),))
    train(run.config, run.folder)
    assert carry_out(run, 1, lambda: True).state == "paused"
    assert carry_out(run, 1).state == "finished"


def test_a_folder_that_cannot_be_written_stops_the_grid(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = replace(planned(0), folder=tmp_path / "file" / "run")
    with pytest.raises(UnwritableError, match="cannot write to"):
        run_here([run, planned(1)], workers=1, say=lambda _: None)


def test_what_libraries_keep_until_the_end_of_a_run_is_given_back(troubled: Planned) -> None:
    run = troubled("semaphore")
    assert run_here([run], workers=1, say=lambda _: None).finished == 1
    names = {path.name for path in Path("/dev/shm").glob("sem.*")} if Path("/dev/shm").is_dir() else set()
    assert not {name for name in names if name.startswith("sem.mp-")}


def command(out: Path, *options: str) -> list[str]:
    code = "from aaren.cli.main import main; main()"
    words = ["reproduce", GRID, "--profile", "paper", "--seeds", "1", "--out", str(out)]
    return [sys.executable, "-c", code, *words, *options]


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_killed_grid_resumes_and_no_worker_outlives_it(tmp_path: Path, environment: dict[str, str]) -> None:
    out = tmp_path / "runs"
    runs = plan(Request(settings=(GRID,), profile="paper", seeds=1), out)
    first = subprocess.Popen(command(out), env=environment, stderr=subprocess.PIPE, text=True)
    holder_of(runs[0].folder)
    workers = [int(path.read_text()) for path in out.glob("*/*/.lock")]
    first.kill()
    first.communicate()
    until = time.monotonic() + 30.0
    while any(map(is_alive, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_alive, workers))
    second = subprocess.run(command(out), env=environment, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    assert "2 finished, 0 failed in" in second.stderr
    records = collect(out).records
    assert len(records) == 2
    assert max(record.resumed for record in records) >= 1


@pytest.mark.long
def test_asked_to_stop_it_saves_and_says_so(tmp_path: Path, environment: dict[str, str]) -> None:
    out = tmp_path / "runs"
    folder = plan(Request(settings=(GRID,), profile="paper", seeds=1), out)[0].folder
    words = command(out, "--workers", "1")
    process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
    holder_of(folder)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate()
    assert process.returncode == 130
    assert "stopped; the same command resumes from there." in error
    assert not (folder / "record.json").exists()
    assert list((folder / "checkpoints").glob("update-*"))


@pytest.mark.long
def test_a_grid_on_ray_with_a_killed_worker_equals_a_local_one(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    pytest.importorskip("ray", reason="needs the cluster extra")
    out = tmp_path / "runs"
    runs = plan(Request(settings=(GRID,), profile="paper", seeds=1), out)
    words = command(out, "--ray", "local", "--workers", "2")
    process = subprocess.Popen(
        words, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    os.kill(holder_of(runs[0].folder), signal.SIGKILL)
    _, error = process.communicate()
    assert process.returncode == 0, error
    assert collect(out).unlisted == []  # the driver has appended both records
    assert json.loads((runs[0].folder / "record.json").read_text())["resumed"] == 1
    for run in runs:
        alone = tmp_path / "alone" / run.folder.name
        train(run.config, alone)
        assert_same(run.folder, alone)


def test_no_cluster_there(planned: Planned) -> None:
    pytest.importorskip("ray", reason="needs the cluster extra")
    with pytest.raises(
        ConfigError, match=r"no Ray cluster answers at 127.0.0.1:1 \(.*refused\)\. Give --ray"
    ):
        run_on_ray([planned(0)], "127.0.0.1:1", say=lambda _: None)
