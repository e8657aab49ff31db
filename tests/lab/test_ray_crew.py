"""The same grid on a real Ray of this machine, one of whose workers is killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aaren.engine.run import train
from aaren.lab.job import Job, Message
from aaren.lab.plan import PlannedRun, Request, plan
from aaren.lab.ray_crew import TOKEN, RayWorker, own_folder, pack, sees, unpack

TOY = "support.toy_grid"


def test_a_node_knows_whether_it_sees_the_results(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert not sees(folder, "one")
    (tmp_path / TOKEN).write_text("one")
    assert sees(folder, "one")
    assert not sees(folder, "two")


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
    job = Job(config=run.config, folder=run.folder, command="toy", threads=1)
    worker = RayWorker()
    assert Message.from_json(worker.ready()).event == "ready"
    last, files = worker.run(job.to_json(), "token")
    assert Message.from_json(last).event == "finished"
    assert Message.from_json(worker.news()[0]).event == "begin"
    assert worker.news() == []
    assert not run.folder.exists()
    unpack(files, run.folder)
    assert json.loads((run.folder / "record.json").read_text())["status"] == "finished"
    assert pack(own_folder(job, "token")) == files


@pytest.mark.slow
def test_a_grid_on_ray_with_a_killed_worker_equals_a_local_one(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    pytest.importorskip("ray", reason="needs the cluster extra")
    out = tmp_path / "runs"
    words = ["reproduce", TOY, "--profile", "paper", "--seeds", "1", "--out", str(out)]
    words += ["--ray", "local", "--workers", "2", "--threads", "1", "--plain"]
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
    assert "goes on at update" in error
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
