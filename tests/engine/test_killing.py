"""Runs that are really killed, with SIGKILL, at random moments, and must end with the same bits."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aaren.engine.config import RunConfig, to_json
from aaren.engine.run import train
from support.toy_task import SETTING

ToyRun = Callable[..., RunConfig]
KILLS = 8


def outcome(folder: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, object]], object]:
    """Return what must not depend on the kills: weights, curve without times, metrics."""
    curve = [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]
    for row in curve:
        row.pop("seconds")
    return (
        load_file(folder / "model" / "weights.safetensors"),
        curve,
        json.loads((folder / "record.json").read_text())["metrics"],
    )


def assert_same(left: Path, right: Path) -> None:
    (weights, *rest), (others, *other_rest) = outcome(left), outcome(right)
    assert rest == other_rest
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def latest_update(folder: Path) -> int:
    """Return how far the checkpoints of a run have come."""
    names = [path.name.removeprefix("update-") for path in (folder / "checkpoints").glob("update-*")]
    return max((int(name) for name in names if name.isdigit()), default=0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("attempt", [0, *(pytest.param(k, marks=pytest.mark.long) for k in range(1, 9))])
def test_killed_at_random_moments(toy_run: ToyRun, tmp_path: Path, attempt: int) -> None:
    """A checkpoint after every update, so that many kills fall into the writing of one."""
    config, whole, killed = toy_run(slow_seconds=0.002), tmp_path / "whole", tmp_path / "killed"
    train(config, whole)
    moments = random.Random(attempt)
    kills = 0
    while kills < KILLS:
        wanted = latest_update(killed) + moments.randint(1, 3)
        child = os.fork()
        if child == 0:
            train(config, killed)
            os._exit(0)
        # Counted in updates, not seconds, so that fast and slow machines are killed alike.
        has_ended = False
        while not has_ended and latest_update(killed) < wanted:
            time.sleep(0.0005)
            has_ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        time.sleep(moments.uniform(0.0, 0.006))
        os.kill(child, signal.SIGKILL)
        _, code = os.waitpid(child, 0)
        if os.WIFEXITED(code):  # it was faster than we were
            assert os.WEXITSTATUS(code) == 0
            break
        kills += 1
    record = train(config, killed)
    assert kills >= 2
    assert record.status == "finished"
    assert_same(whole, killed)
    assert not (killed / "checkpoints").exists()


@pytest.mark.slow
def test_the_command_is_killed_and_resumes(
    toy_run: ToyRun, tmp_path: Path, environment: dict[str, str]
) -> None:
    """The same, as a person sees it: `aaren train run.json`, killed from outside, typed again."""
    run, killed, whole = tmp_path / "run.json", tmp_path / "killed", tmp_path / "whole"
    config = toy_run(epochs=4, slow_seconds=0.02, checkpoint_seconds=0.1)
    run.write_text(to_json(config))
    code = "from aaren.cli.main import main; main()"
    moments = random.Random(7)
    kills = 0
    while True:
        process = subprocess.Popen(
            [sys.executable, "-c", code, "--import", SETTING.name, "train", str(run), "--out", str(killed)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if kills < 1:  # the test above kills often
            before = set((killed / "checkpoints").glob("update-*"))
            while process.poll() is None and set((killed / "checkpoints").glob("update-*")) <= before:
                time.sleep(0.01)
            time.sleep(moments.uniform(0.0, 0.2))
            process.kill()
            process.communicate()
            kills += 1
        else:
            out, error = process.communicate()
            assert process.returncode == 0, error
            break
    assert out.startswith("test.mse ")
    assert "resuming at" in error
    train(config, whole)
    assert_same(whole, killed)
    assert json.loads((killed / "record.json").read_text())["resumed"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_asked_to_stop_it_saves_and_says_so(
    toy_run: ToyRun, tmp_path: Path, environment: dict[str, str], number: int
) -> None:
    run, folder = tmp_path / "run.json", tmp_path / "run"
    run.write_text(to_json(toy_run(epochs=200, slow_seconds=0.02, checkpoint_seconds=1e6)))
    code = "from aaren.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--import", SETTING.name, "train", str(run), "--out", str(folder)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (folder / "curve.jsonl").exists() or not (folder / "curve.jsonl").read_text():
        time.sleep(0.01)
    process.send_signal(number)
    _, error = process.communicate()
    assert process.returncode == 130
    assert "the same command resumes there." in error
    assert len(list((folder / "checkpoints").glob("update-*"))) == 1


@pytest.mark.slow
def test_asked_to_stop_before_the_first_update_it_stops_at_once(
    toy_run: ToyRun, tmp_path: Path, environment: dict[str, str]
) -> None:
    run, folder = tmp_path / "run.json", tmp_path / "run"
    run.write_text(to_json(toy_run(build_seconds=60.0)))
    process = subprocess.Popen(
        [sys.executable, "-m", "aaren", "--import", SETTING.name, "train", str(run), "--out", str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not (folder / "run.json").exists():
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "stopped at once; the same command resumes" in error
    assert not (folder / "record.json").exists()
