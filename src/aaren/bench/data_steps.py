"""One batch and one training step for each of the four settings: what `aaren bench data` compares.

The step is the real one: the setting's own model of the run's profile, its loss and optimiser, moved by the
training engine's `Update`. Knows no setting.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from typing import NamedTuple

from torch import Tensor

from aaren.errors import DataError
from aaren.tasks import find_task
from aaren.tasks.base import Batch, Experiment
from aaren.train.config import RunConfig
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
        moments = map(experiment.plan.moment, cycle(range(experiment.plan.max_updates)))
        load = _first_batches(lambda epoch: _epoch(experiment, epoch))
        batches = load()
        coming = cycle(batches)  # lengths differ from batch to batch: a step on one of them would mislead
        cell = run.cell()
        yield Contest(
            dataset=str(cell["dataset"]),
            model=f"{cell['model']}, {run.profile}",
            batch_size=len(batches[0]),
            load=load,
            step=lambda: update(next(coming), next(moments)),
        )


def not_here(run: RunConfig) -> str:
    """Say what is missing, for a record, where paths do not belong."""
    name = run.cell()["dataset"]
    return f"{name} cannot be opened here: aaren data verify {name}"


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
