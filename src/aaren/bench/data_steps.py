"""One batch and one training step for each of the four settings: what `aaren bench data` compares.

The step is the real one: the setting's own model of the run's profile, its loss and optimiser, moved by the
training engine's `Update`. Knows no setting; rl, which has no task yet, has a stand-in, and its row says so.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from aaren.data.trajectory_arrays import Trajectories
from aaren.data.trajectory_batches import TrajectoryBatches
from aaren.errors import DataError
from aaren.nn import Encoder, EncoderConfig
from aaren.tasks import find_task
from aaren.tasks.base import Batch, Experiment
from aaren.train.config import EngineConfig, RunConfig
from aaren.train.determinism import choose_device, repeatable
from aaren.train.distributed import SOLO
from aaren.train.update import Update

BATCHES = 16  # loaded in one call; the cost of beginning an epoch is shared among them


class Contest(NamedTuple):
    """A setting's two calls: load BATCHES batches; do one training step on a batch that is there already."""

    dataset: str
    model: str
    batch_size: int
    load: Callable[[], object]
    step: Callable[[], Tensor]


@contextmanager
def contest(run: RunConfig) -> Iterator[Contest]:
    """Open a run's data and build its model; inside the block torch computes as it does in training."""
    try:
        experiment = find_task(run.setting).open(run.task, seed=run.seed)
    except DataError as error:
        raise DataError(not_here(run)) from error
    with repeatable(run.engine, seed=run.seed):
        device = choose_device(run.engine.device)
        model = experiment.build_model().to(device).train()
        optimiser = experiment.build_optimiser(model)
        update = Update(experiment, model, optimiser, engine=run.engine, world=SOLO, device=device)
        moment = experiment.plan.moment(0)
        load = _first_batches(lambda epoch: _epoch(experiment, epoch))
        batches = load()
        coming = cycle(batches)  # lengths differ from batch to batch: a step on one of them would mislead
        cell = run.cell()
        yield Contest(
            dataset=str(cell["dataset"]),
            model=f"{cell['model']}, {run.profile}",
            batch_size=len(batches[0]),
            load=load,
            step=lambda: update(next(coming), moment),
        )


def not_here(run: RunConfig) -> str:
    """Say what is missing, for a record, where paths do not belong."""
    name = run.cell()["dataset"]
    return f"{name} cannot be opened here: aaren data verify {name}"


@contextmanager
def rl_stand_in() -> Iterator[Contest]:
    """Made-up trajectories of Hopper's sizes, and a bare encoder: less than any real model does."""
    generator = np.random.default_rng(0)
    steps = 100_000
    trajectories = Trajectories.from_flat(
        observations=generator.normal(size=(steps, 11)),
        actions=generator.uniform(-1, 1, size=(steps, 3)),
        rewards=generator.normal(size=steps),
        terminals=np.zeros(steps),
        timeouts=(np.arange(steps) + 1) % 1000 == 0,
    )
    loader = TrajectoryBatches(trajectories, batch_size=64, context_steps=20)
    batch = next(iter(loader))
    step = _bare_step(batch.observations.repeat_interleave(3, dim=1), torch.zeros(len(batch), 60, 3))
    load = _first_batches(loader.epoch)
    with repeatable(EngineConfig(threads=1), seed=0):
        yield Contest("Hopper's sizes", "a stand-in: encoder of width 64", len(batch), load, step)


def _epoch(experiment: Experiment[Batch], number: int) -> Iterator[Batch]:
    return islice(experiment.batches(number), experiment.plan.updates_per_epoch)


def _first_batches(epoch: Callable[[int], Iterator[Batch]]) -> Callable[[], list[Batch]]:
    number = 0

    def load() -> list[Batch]:
        nonlocal number
        found: list[Batch] = []
        while len(found) < BATCHES:  # a small set has fewer batches than that in an epoch
            found += islice(epoch(number), BATCHES - len(found))
            number += 1
        return found

    return load


def _bare_step(inputs: Tensor, target: Tensor) -> Callable[[], Tensor]:
    config = EncoderConfig(width=64, num_heads=4, num_layers=2, ff_width=128)
    project, encoder = nn.Linear(inputs.shape[2], config.width), Encoder(config)
    head = nn.Linear(config.width, target.shape[2])
    optimiser = torch.optim.Adam(nn.ModuleList([project, encoder, head]).parameters())

    def step() -> Tensor:
        optimiser.zero_grad()
        hidden, _ = encoder(project(inputs))
        loss = nn.functional.mse_loss(head(hidden), target)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        optimiser.step()
        return loss.detach()

    return step
