"""Grids whose workers, or which themselves, are really killed with SIGKILL, and end with the same bits."""

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
from aaren.lab.plan import PlannedRun
from aaren.lab.schedule import Schedule, Scheduler
from aaren.lab.workers import LocalWorkers
from lab.conftest import Notes

Planned = Callable[..., PlannedRun]
TOY = "support.toy_task"


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


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.long
def test_a_killed_worker_is_replaced_and_its_run_ends_with_the_same_bits(
    planned: Planned, notes: Notes, tmp_path: Path
) -> None:
    runs = [planned(seed, slow_seconds=0.15, checkpoint_seconds=0.2) for seed in (0, 1)]
    schedule = Schedule.of(runs, workers=2)

    def kill() -> None:
        os.kill(holder_of(runs[0].folder), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    Scheduler(schedule, LocalWorkers(2, threads=1), notes).run()
    killer.join()
    assert [item.state for item in schedule.runs] == ["finished", "finished"]
    assert schedule.runs[0].deaths == 1
    assert any("its worker was lost (killed by SIGKILL" in text for text in notes.texts)
    assert any("resumes at update" in text for text in notes.texts)
    for run in runs:
        train(run.config, tmp_path / "alone" / run.folder.name)
        assert_same(run.folder, tmp_path / "alone" / run.folder.name)


def command(out: Path, *options: str) -> list[str]:
    code = "from aaren.cli.main import main; main()"
    words = ["reproduce", "support.toy_grid", "--profile", "paper", "--seeds", "1", "--out", str(out)]
    return [sys.executable, "-c", code, *words, *options]


def run_folder(out: Path, model: str) -> Path:
    """Wait for the folder of a run."""
    for _ in range(20_000):
        found = list((out / TOY).glob(f"line-{model}-*")) if (out / TOY).is_dir() else []
        if found:
            return found[0]
        time.sleep(0.01)
    raise AssertionError("no run began")


@pytest.mark.slow
def test_a_killed_grid_resumes_and_no_worker_outlives_it(tmp_path: Path, environment: dict[str, str]) -> None:
    out = tmp_path / "runs"
    first = subprocess.Popen(command(out), env=environment, stderr=subprocess.PIPE, text=True)
    holder_of(run_folder(out, "aaren"))
    workers = [int(path.read_text()) for path in (out / TOY).glob("*/.lock")]  # one may have begun later
    first.kill()
    first.communicate()
    until = time.monotonic() + 30.0
    while any(map(is_alive, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_alive, workers))
    second = subprocess.run(command(out), env=environment, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    assert "finished  support.toy_task line aaren, seed 0" in second.stderr
    assert "support.toy_task line aaren, seed 0: resumes at update" in second.stderr
    records = [json.loads(path.read_text()) for path in out.rglob("record.json")]
    assert [record["status"] for record in records] == ["finished", "finished"]
    assert max(record["resumed"] for record in records) >= 1


@pytest.mark.long
def test_asked_to_stop_it_saves_and_says_so(tmp_path: Path, environment: dict[str, str]) -> None:
    out = tmp_path / "runs"
    process = subprocess.Popen(
        command(out, "--workers", "1"), env=environment, stderr=subprocess.PIPE, text=True
    )
    folder = run_folder(out, "aaren")
    holder_of(folder)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate()
    assert process.returncode == 130
    assert "stopped; the same command resumes from there." in error
    assert not (folder / "record.json").exists()
    assert list((folder / "checkpoints").glob("update-*"))
