"""One batch and one training step for each of the four settings: what `aaren bench data` compares.

The step is forward, backward and Adam of an Aaren encoder of the `cpu` profile's size with plain projections
around it: less than any real model of that profile does, so that the share of loading is not flattered.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from aaren.data import classification, events, forecasting
from aaren.data.event_batches import EventBatches
from aaren.data.registry import lookup
from aaren.data.source import on_disk
from aaren.data.trajectory_arrays import Trajectories
from aaren.data.trajectory_batches import TrajectoryBatches
from aaren.errors import DataError
from aaren.nn import Encoder, EncoderConfig

CPU_PROFILE = EncoderConfig(width=64, num_heads=4, num_layers=2, ff_width=128)
BATCHES = 16  # loaded in one call; the cost of beginning an epoch is shared among them


class Contest(NamedTuple):
    """A setting's two calls: load BATCHES batches; do one training step on a batch that is there already."""

    setting: str
    dataset: str
    batch_size: int
    load: Callable[[], object]
    step: Callable[[], object]


def forecasting_contest() -> Contest:
    """ETTm1 where it is on disk, else the generated series; horizon 96, batches of 32."""
    name = "ETTm1" if on_disk(lookup("ETTm1")) else "seasonal"
    loader = forecasting.load(name).loaders(horizon_steps=96).train
    batch = next(iter(loader))
    num_series = batch.past.shape[2]
    inputs = torch.cat([batch.past, batch.past_marks], dim=2)
    step = _step(inputs, 96 * num_series, batch.future.flatten(1), pool=True)
    return Contest("forecasting", name, len(batch), _first_batches(loader.epoch), step)


def classification_contest() -> Contest:
    """JapaneseVowels, on disk or inside aeon; batches of 16."""
    dataset = lookup("JapaneseVowels")
    if not on_disk(dataset, or_shipped=True):
        raise DataError(
            "JapaneseVowels is not on disk, and aeon is not installed: pip install 'aaren[classification]'"
        )
    data = classification.load(dataset)
    loader = data.train.loader(batch_size=16)
    batch = next(iter(loader))
    target = nn.functional.one_hot(batch.labels, len(data.classes)).float()
    step = _step(batch.values, len(data.classes), target, mask=batch.mask, pool=True)
    return Contest("classification", dataset.name, len(batch), _first_batches(loader.epoch), step)


def events_contest() -> Contest:
    """Our Sin; batches of 16 sequences."""
    loader = EventBatches(events.generate("sin"), batch_size=16)
    batch = next(iter(loader))
    inputs = torch.stack([batch.times, batch.gaps], dim=2).float()
    step = _step(inputs, 24, torch.zeros(*batch.mask.shape, 24), mask=batch.mask)
    return Contest("events", "sin", len(batch), _first_batches(loader.epoch), step)


def rl_contest() -> Contest:
    """Made-up trajectories of Hopper's sizes; batches of 64 windows of 20 steps, 60 tokens each."""
    generator = np.random.default_rng(0)
    steps = 100_000
    timeouts = (np.arange(steps) + 1) % 1000 == 0
    trajectories = Trajectories.from_flat(
        observations=generator.normal(size=(steps, 11)),
        actions=generator.uniform(-1, 1, size=(steps, 3)),
        rewards=generator.normal(size=steps),
        terminals=np.zeros(steps),
        timeouts=timeouts,
    )
    loader = TrajectoryBatches(trajectories, batch_size=64, context_steps=20)
    batch = next(iter(loader))
    inputs = batch.observations.repeat_interleave(3, dim=1)
    step = _step(inputs, 3, torch.zeros(len(batch), 60, 3))
    return Contest("rl", "Hopper's sizes", len(batch), _first_batches(loader.epoch), step)


CONTESTS: Sequence[Callable[[], Contest]] = (
    forecasting_contest,
    classification_contest,
    events_contest,
    rl_contest,
)


class _Reference(nn.Module):
    def __init__(self, inputs: int, outputs: int, *, pool: bool) -> None:
        super().__init__()
        self.project = nn.Linear(inputs, CPU_PROFILE.width)
        self.encoder = Encoder(CPU_PROFILE)
        self.head = nn.Linear(CPU_PROFILE.width, outputs)
        self.pool = pool

    def forward(self, inputs: Tensor, mask: Tensor | None) -> Tensor:
        hidden, _ = self.encoder(self.project(inputs), mask=mask)
        outputs: Tensor = self.head(hidden[:, -1] if self.pool else hidden)
        return outputs


def _step(
    inputs: Tensor, outputs: int, target: Tensor, *, mask: Tensor | None = None, pool: bool = False
) -> Callable[[], object]:
    model = _Reference(inputs.shape[2], outputs, pool=pool)
    optimiser = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.mse_loss(model(inputs, mask), target).backward()  # type: ignore[no-untyped-call]  # torch's own
        optimiser.step()

    return step


def _first_batches(epoch: Callable[[int], Iterator[object]]) -> Callable[[], object]:
    number = 0

    def load() -> int:
        nonlocal number
        count = 0
        while count < BATCHES:  # a small set has fewer batches than that in an epoch
            count += len(list(islice(epoch(number), BATCHES - count)))
            number += 1
        return count

    return load
