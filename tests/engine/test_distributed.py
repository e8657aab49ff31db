"""Two real processes under torchrun, talking by gloo, against one."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aaren.engine.config import RunConfig, override, to_toml
from aaren.engine.run import train
from support.toy_task import SETTING

ToyRun = Callable[..., RunConfig]


def torchrun(
    config: RunConfig, folder: Path, environment: dict[str, str], *, before: str = ""
) -> subprocess.CompletedProcess[str]:
    """Train on two processes, each of which runs some code first."""
    path = folder.with_suffix(".toml")
    path.write_text(to_toml(config))
    code = f"import sys; from aaren.cli.main import main; sys.argv[0] = 'aaren'\n{before}\nmain()"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = ["--import", SETTING.name, "train", str(path), "--out", str(folder)]
    return subprocess.run(
        [*launch, "--no-python", sys.executable, "-c", code, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_two_processes_train_like_one(toy_run: ToyRun, tmp_path: Path, environment: dict[str, str]) -> None:
    """Batches of 7 leave 60 = 8 * 7 + 4: parts of unequal size, weighted by their cases."""
    plain = toy_run(epochs=3, batch_size=7, penalty=0.01)
    config = override(plain, ["dropout=0", "accumulate=2"])
    finished = torchrun(config, tmp_path / "two", environment)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count("test.mse") == 1  # only the first process talks
    one, two = train(override(config, ["accumulate=1"]), tmp_path / "one"), tmp_path / "two"
    record = json.loads((two / "record.json").read_text())
    assert record["processes"] == 2
    for part, metrics in one.metrics.items():
        assert record["metrics"][part] == pytest.approx(metrics, rel=1e-4)
    weights = [load_file(folder / "model" / "weights.safetensors") for folder in (tmp_path / "one", two)]
    for name in weights[0]:
        torch.testing.assert_close(weights[1][name], weights[0][name], rtol=1e-4, atol=1e-5)
    curves = [(folder / "curve.jsonl").read_text().splitlines() for folder in (tmp_path / "one", two)]
    for left, right in zip(*curves, strict=True):
        assert json.loads(left)["loss"] == pytest.approx(json.loads(right)["loss"], rel=1e-4)


@pytest.mark.long
def test_two_processes_resume(toy_run: ToyRun, tmp_path: Path, environment: dict[str, str]) -> None:
    """With dropout: each process has its own random numbers, and all of them are in the checkpoint."""
    long, short = toy_run(epochs=4), tmp_path / "short"
    whole = torchrun(long, tmp_path / "whole", environment)
    assert whole.returncode == 0, whole.stderr
    process_killer = override(long, ["engine.checkpoint_seconds=0"])
    dying = (
        "import os; import aaren.engine.checkpoint as checkpoint\n"
        "save = checkpoint.Checkpoints.save\n"
        "def dying(self, training, world, say):\n"
        "    save(self, training, world, say)\n"
        "    if training.status.update >= 16: os._exit(9)\n"
        "checkpoint.Checkpoints.save = dying"
    )
    torchrun(process_killer, short, environment, before=dying)
    assert not (short / "record.json").exists()
    again = torchrun(process_killer, short, environment)
    assert again.returncode == 0, again.stderr
    assert "resuming at" in again.stderr
    weights = [load_file(folder / "model" / "weights.safetensors") for folder in (tmp_path / "whole", short)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
