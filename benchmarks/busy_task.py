"""A run that computes for a known time and learns nothing: what `benchmarks/grid.py` hands to the workers.

It goes through the same engine, folders, locks, checkpoints and records as any other run.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from aaren.engine.experiment import Experiment, Part
from aaren.engine.plan import Criterion, Moment, Plan
from aaren.engine.setting import Setting

UPDATES = 100
_WIDTH = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class BusyConfig:
    """How much to compute."""

    number: int = 0  # tells equal runs apart
    rounds: int = 1  # of work in every one of the updates


@dataclass(frozen=True, kw_only=True, slots=True)
class BusyBatch:
    """One case."""

    inputs: Tensor  # (1, 1)

    def __len__(self) -> int:
        """Count the case."""
        return len(self.inputs)


class BusyExperiment(Experiment[BusyBatch]):
    """Work for a given number of rounds."""

    def __init__(self, config: BusyConfig) -> None:
        self.config = config
        self.plan = Plan.in_epochs(1, updates_per_epoch=UPDATES, selects=Criterion(metric="loss"))

    def build_model(self) -> nn.Module:
        """Build a model of two numbers."""
        return nn.Linear(1, 1)

    def build_optimiser(self, model: nn.Module) -> Optimizer:
        """Build an optimiser that changes next to nothing."""
        return SGD(model.parameters(), lr=1e-6)

    def batches(self, epoch: int) -> Iterator[BusyBatch]:
        """Give the one case again and again."""
        del epoch
        for _ in range(UPDATES):
            yield BusyBatch(inputs=torch.ones(1, 1))

    def loss(self, model: nn.Module, batch: BusyBatch) -> Tensor:
        """Work, then return something to learn from."""
        work(self.config.rounds)
        found: Tensor = model(batch.inputs)
        return found.square().mean()

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Return a metric, as the engine asks for one."""
        del part, moment
        return {"loss": float(model(torch.ones(1, 1)).square())}


class BusyTask(Setting[BusyConfig, BusyBatch]):
    """A setting of runs that only keep a core busy."""

    name = "busy_task"  # a module beside the benchmark
    config_type = BusyConfig
    reports = ("test.loss",)

    def make_experiment(self, config: BusyConfig, *, seed: int) -> BusyExperiment:
        """Open nothing."""
        del seed
        return BusyExperiment(config)

    def cell(self, config: BusyConfig) -> Mapping[str, str | int]:
        """Tell the runs apart by their numbers."""
        return {"dataset": f"busy{config.number}", "model": "busy"}

    def save_model(self, model: nn.Module, folder: Path) -> None:
        """Write the two numbers."""
        save_file(model.state_dict(), folder / "weights.safetensors")


def work(rounds: int) -> None:
    """Keep one core busy, with arithmetic that stays in its cache."""
    with torch.no_grad():
        square = torch.full((_WIDTH, _WIDTH), 1.0 / _WIDTH)
        for _ in range(rounds):
            square = torch.tanh(square @ square + 0.5)


def rounds_per_second(seconds: float) -> float:
    """Measure how fast this core works."""
    begin, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - begin) < seconds:
        work(1000)
        done += 1000
    return done / passed


SETTING = BusyTask()
