"""What the training engine needs to fit a classifier to arrays: batches, loss and a short plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.data.classification.batch import LabelledBatch
from aaren.data.classification.loading import LabelledSeries
from aaren.errors import ConfigError
from aaren.models import Classifier, ClassifierConfig
from aaren.tasks.base import Experiment, Part
from aaren.tasks.metrics import Mean
from aaren.tasks.optimiser import OptimiserConfig
from aaren.tasks.plan import Criterion, Moment, Plan, Schedule

EVALUATION_BATCH = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class FitSettings:
    """How an estimator trains."""

    epochs: int
    batch_size: int
    learning_rate: float
    validation_fraction: float
    patience: int

    def __post_init__(self) -> None:
        """Report every number that cannot be."""
        faults = []
        for name in ("epochs", "batch_size", "patience"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral):
                faults.append(f"{name} must be an integer; got {value!r}")
            elif value < 1:
                faults.append(f"{name} must be at least 1; got {value}")
        if not 0.0 <= self.validation_fraction < 1.0:
            faults.append(
                f"validation_fraction must be at least 0 and below 1; got {self.validation_fraction}"
            )
        if faults:
            raise ConfigError("; ".join(faults) + ".")


class ArrayExperiment(Experiment[LabelledBatch]):
    """Train on some cases; if others are held out, they choose the epoch, otherwise the last one is kept."""

    def __init__(
        self,
        model: ClassifierConfig,
        settings: FitSettings,
        train: LabelledSeries,
        held_out: LabelledSeries | None,
        *,
        seed: int,
    ) -> None:
        self.model_config, self.settings, self.held_out = model, settings, held_out
        self.loader = train.loader(batch_size=settings.batch_size, seed=seed)
        updates = settings.epochs * len(self.loader)
        self.plan = Plan.in_epochs(
            settings.epochs,
            updates_per_epoch=len(self.loader),
            selects=Criterion(metric="updates" if held_out is None else "accuracy", goal="max"),
            patience=None if held_out is None else settings.patience,
            schedule=falling(updates),
            clip_norm=4.0,
        )

    def build_model(self) -> nn.Module:
        """Build the untrained classifier."""
        return Classifier(self.model_config)

    def build_optimiser(self, model: nn.Module) -> Optimizer:
        """Build Adam."""
        return OptimiserConfig(learning_rate=self.settings.learning_rate).build(model)

    def batches(self, epoch: int) -> Iterator[LabelledBatch]:
        """Walk through the cases in this epoch's order."""
        return self.loader.epoch(epoch)

    def loss(self, model: nn.Module, batch: LabelledBatch) -> Tensor:
        """Return the mean cross-entropy."""
        return F.cross_entropy(model(batch.values, mask=batch.mask), batch.labels)

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Score the held-out cases; without any, the longer trained is the better."""
        del part
        if self.held_out is None:
            return {"updates": float(moment.update)}
        is_right = Mean()
        device = next(model.parameters()).device
        for numbers in torch.split(torch.arange(len(self.held_out)), EVALUATION_BATCH):
            batch = self.held_out.take(numbers)
            scores = model(batch.values.to(device), mask=batch.mask.to(device))
            is_right.add(scores.argmax(-1).cpu() == batch.labels)
        return {"accuracy": is_right.value}


def falling(updates: int) -> Schedule:
    """Let the learning rate fall in a straight line to 0 at the last update.

    >>> [falling(4)(Moment(update, 0)) for update in range(4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    return lambda moment: 1.0 - moment.update / updates
