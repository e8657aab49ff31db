"""The same grid on a real Ray of this machine, one of whose workers is killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aaren.engine.run import train
from aaren.lab.plan import PlannedRun, Request, plan
from aaren.lab.ray_workers import TOKEN, own_folder, pack, run_task, unpack
from aaren.lab.workers import Exit

TOY = "support.toy_grid"


def test_files_travel_without_checkpoints(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "model").mkdir(parents=True)
    (there / "checkpoints" / "update-1").mkdir(parents=True)
    for name in ("record.json", "model/weights.safetensors", "checkpoints/update-1/a", ".lock"):
        (there / name).write_bytes(name.encode())
    files = pack(there)
    assert sorted(files) == ["model/weights.safetensors", "record.json"]
    unpack(files, here)
    assert pack(here) == files


def test_a_worker_that_does_not_see_the_results_sends_them(
    planned: Callable[..., PlannedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "node"))
    run = planned(0)
    code, error, _notes, files = run_task(run, 1, "token")
    assert (code, error) == (Exit.FINISHED, "")
    assert not run.folder.exists()
    unpack(files, run.folder)
    assert json.loads((run.folder / "record.json").read_text())["status"] == "finished"
    assert pack(own_folder(run, "token")) == files


def test_a_worker_that_sees_the_results_works_there_until_the_token_changes(
    planned: Callable[..., PlannedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aaren.lab.ray_workers.ASK_SECONDS", 0.0)
    run = planned(0, slow_seconds=0.05)
    run.folder.mkdir(parents=True)
    token = run.folder.parent / TOKEN
    token.write_text("token")
    threading.Timer(0.5, token.write_text, args=("pause",)).start()
    code, _, _, files = run_task(run, 1, "token")
    assert (code, files) == (Exit.PAUSED, {})
    token.write_text("token")
    assert run_task(run, 1, "token")[0] == Exit.FINISHED
    assert json.loads((run.folder / "record.json").read_text())["resumed"] == 1


@pytest.mark.long
def test_a_grid_on_ray_with_a_killed_worker_equals_a_local_one(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    pytest.importorskip("ray", reason="needs the cluster extra")
    out = tmp_path / "runs"
    words = ["reproduce", TOY, "--profile", "paper", "--seeds", "1", "--out", str(out)]
    words += ["--set", "ray=local", "--workers", "2", "--set", "threads=1"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from aaren.cli.main import main; main()", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    runs = plan(Request(settings=(TOY,), profile="paper", seeds=1), out)
    victim = runs[0].folder
    until = time.monotonic() + 200.0
    while process.poll() is None and time.monotonic() < until:
        if any((victim / "checkpoints").glob("update-*")):
            os.kill(int((victim / ".lock").read_text()), signal.SIGKILL)
            break
        time.sleep(0.01)
    _, error = process.communicate()
    assert process.returncode == 0, error
    assert "its worker was lost" in error
    assert "resumes at update" in error
    for run in runs:
        alone = tmp_path / "alone" / run.folder.name
        train(run.config, alone)
        one, two = (load_file(folder / "model" / "weights.safetensors") for folder in (run.folder, alone))
        assert all(torch.equal(one[name], two[name]) for name in one)
        metrics = [
            json.loads((folder / "record.json").read_text())["metrics"] for folder in (run.folder, alone)
        ]
        assert metrics[0] == metrics[1]
    assert not list(out.rglob(TOKEN))
