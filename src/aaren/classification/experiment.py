"""How early a classifier knows: accuracy against the fraction of each series that it has seen.

A causal model is read as it goes along; any other is given every prefix anew, as if the series ended there.

The parts of a classification experiment: who trains, who chooses the epoch, who is tested.

Reads files and holds out what the reporting rule needs. Knows nothing of models.

The classification task: a labelled series in, its class out; accuracy on TEST is the number.

Two reporting rules (see `ClassificationConfig`). The test metrics hold the accuracy after every twentieth of
the series too. Parts are made in `classification_parts`, new data is read in `classification_files`.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.classification.config import ClassificationConfig
from aaren.classification.data import (
    Irregular,
    LabelledBatch,
    LabelledSeries,
    find_test_part,
    hold_out,
    label_numbers,
    normalise_across_channels,
    prepare,
    require_trainable,
)
from aaren.classification.model import Classifier
from aaren.classification.references import ReferenceClassifier
from aaren.classification.ts import Cases, read_ts
from aaren.datasets.catalogue import lookup
from aaren.datasets.fetch import on_disk
from aaren.engine.experiment import Experiment, Json, Part
from aaren.engine.metrics import Mean
from aaren.engine.plan import Criterion, Moment, Plan, epochs_in_motion
from aaren.errors import ConfigError, DataError
from aaren.files import folders
from aaren.files.archive import plain_name

FRACTIONS = tuple(round(0.05 * step, 2) for step in range(1, 21))
BATCH = 64  # cases at once
PREFIX = "accuracy_at_"


def accuracy_by_fraction(
    model: nn.Module, series: LabelledSeries, fractions: Sequence[float] = FRACTIONS
) -> dict[float, float]:
    """Return the accuracy after each fraction of every series, rounded up to whole steps.

    Args:
        model: takes (values, mask=...) as `Classifier` does; in evaluation mode.
        series: the cases.
        fractions: above 0 and at most 1.
    """
    device = next(model.parameters()).device
    is_followed = isinstance(model, Classifier) and model.config.is_causal
    means = [Mean() for _ in fractions]
    with torch.no_grad():
        for numbers in torch.split(torch.arange(len(series)), BATCH):
            values, mask, labels = (
                part[numbers].to(device) for part in (series.values, series.mask, series.labels)
            )
            lengths = mask.sum(1)
            scores = None
            if is_followed:
                assert isinstance(model, Classifier)
                scores, _ = model.follow(values, mask=mask)
            for mean, fraction in zip(means, fractions, strict=True):
                steps = steps_of(lengths, fraction)
                if scores is not None:
                    found = scores[torch.arange(len(labels), device=device), steps - 1]
                else:
                    found = model(
                        values, mask=mask & (torch.arange(mask.shape[1], device=device) < steps[:, None])
                    )
                mean.add(found.argmax(-1) == labels)
    return {fraction: mean.value for fraction, mean in zip(fractions, means, strict=True)}


def steps_of(lengths: Tensor, fraction: float) -> Tensor:
    """Return how many steps a fraction of each length is, rounded up and at least one.

    >>> steps_of(torch.tensor([7, 20, 29]), 0.05)
    tensor([1, 1, 2])
    """
    # A hundredth of a millionth less, because 0.15 * 20 is a little more than 3.
    return torch.ceil(lengths.double() * fraction - 1e-8).long().clamp(min=1)


def as_metrics(curve: Mapping[float, float]) -> dict[str, float]:
    """Name the points of a curve as they stand in a record.

    >>> as_metrics({0.05: 0.5, 1.0: 0.75})
    {'accuracy_at_0.05': 0.5, 'accuracy_at_1.00': 0.75}
    """
    return {f"{PREFIX}{fraction:.2f}": accuracy for fraction, accuracy in curve.items()}


def curve_of(metrics: Mapping[str, float]) -> list[tuple[float, float]]:
    """Read the curve back from a record's test metrics: pairs of fraction seen and accuracy, in order.

    >>> curve_of({"accuracy": 0.75, "accuracy_at_1.00": 0.75, "accuracy_at_0.05": 0.5})
    [(0.05, 0.5), (1.0, 0.75)]
    """
    return sorted(
        (float(name.removeprefix(PREFIX)), value)
        for name, value in metrics.items()
        if name.startswith(PREFIX) and name.removeprefix(PREFIX).replace(".", "", 1).isdecimal()
    )


TEST_SEED = 0  # of the test part where the archive has none: the same for all runs
IN_TRAIN = "held-out part of TRAIN"


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ClassificationParts:
    """Standardised and padded series, and what was learned from TRAIN to standardise new ones."""

    name: str
    classes: tuple[str, ...]
    train: LabelledSeries
    validation: LabelledSeries  # chooses the epoch
    test: LabelledSeries
    validation_is: str  # TEST, or a part of TRAIN
    test_is: str
    mean: NDArray[np.float64]  # (channels,), over all steps of TRAIN
    deviation: NDArray[np.float64]
    is_normalised_across_channels: bool = False


def open_parts(config: ClassificationConfig, *, seed: int) -> ClassificationParts:
    """Read a dataset, or the user's own files, and part it as the reporting rule says.

    Args:
        config: Of the experiment.
        seed: Of the part of TRAIN that chooses the epoch; a part that stands in for TEST does not depend on
            it.
    """
    name, paths, is_odd, irregular = _find(config)
    raw = [read_ts(path) for path in paths]
    require_trainable(
        dict(zip(map(plain_name, paths), raw, strict=True)), irregular=irregular, held_out=config.held_out
    )
    test_is = "TEST"
    if len(raw) == 1:
        kept, held = hold_out(label_numbers(raw[0]), config.held_out, seed=TEST_SEED)
        raw, test_is = [_pick(raw[0], kept), _pick(raw[0], held)], IN_TRAIN
    data = prepare(
        raw,
        name=name,
        standardise=config.standardise,
        irregular=irregular,
        finish=normalise_across_channels if is_odd else None,
    )
    assert data.test is not None  # there are two parts
    train, validation, validation_is = data.train, data.test, test_is
    if config.rule == "clean" and not config.is_reference:
        kept, held = hold_out(train.labels, config.held_out, seed=seed)
        train, validation, validation_is = select(train, kept), select(train, held), IN_TRAIN
    return ClassificationParts(
        name=name,
        classes=data.classes,
        train=train,
        validation=validation,
        test=data.test,
        validation_is=validation_is,
        test_is=test_is,
        mean=data.mean,
        deviation=data.deviation,
        is_normalised_across_channels=is_odd,
    )


def select(series: LabelledSeries, numbers: Tensor) -> LabelledSeries:
    """Return the cases with these numbers."""
    return LabelledSeries(
        values=series.values[numbers], mask=series.mask[numbers], labels=series.labels[numbers]
    )


def _find(config: ClassificationConfig) -> tuple[str, tuple[Path, ...], bool, Irregular]:
    """Return name, files, whether the odd normalisation is due, and what to do with irregular cases."""
    if config.dataset:
        dataset = lookup(config.dataset)
        paths = on_disk(dataset, or_shipped=True) or tuple(
            folders.require(dataset.setting, file, cure=f"Run: aaren data fetch {dataset.name}")
            for file in dataset.files
        )
        is_odd = dataset.options.get("instance_norm") == "across-channels"
        return dataset.name, paths, is_odd and config.standardise == "protocol", "protocol"
    if not config.data_file:
        raise ConfigError("name a dataset (aaren data list classification) or a data_file of your own.")
    train = Path(config.data_file)
    if not os.path.isfile(train):  # noqa: PTH113  # of names that no disk can hold, pathlib raises
        raise DataError(f"{train} is no file: give NAME_TRAIN.ts (plain, .gz or .xz).")
    test = find_test_part(train)
    paths = (train,) if test is None else (train, test)
    return train.name, paths, False, "protocol" if config.allow_irregular else "strict"


def _pick(cases: Cases, numbers: Tensor) -> Cases:
    chosen: Sequence[list[NDArray[np.float64]]] = [
        case for case, is_kept in zip(cases, _flags(numbers, len(cases)), strict=True) if is_kept
    ]
    return Cases(
        values=np.concatenate([channel for case in chosen for channel in case]),
        lengths=cases.lengths[numbers.numpy()],
        labels=cases.labels[numbers.numpy()],
    )


def _flags(numbers: Tensor, count: int) -> list[bool]:
    flags = torch.zeros(count, dtype=torch.bool)
    flags[numbers] = True
    return [bool(flag) for flag in flags.tolist()]


EVALUATION_BATCH = 64  # cases at once, without gradients


class ClassificationExperiment(Experiment[LabelledBatch]):
    """Labelled series in parts, and a model that gives a score per class."""

    def __init__(self, config: ClassificationConfig, parts: ClassificationParts, *, seed: int) -> None:
        self.config, self.parts, self.seed = config, parts, seed
        self.loader = parts.train.loader(batch_size=config.batch_size, seed=seed)
        self.plan = self.make_plan()
        self._reference_scores: Tensor | None = None

    def make_plan(self) -> Plan:
        """Plan the run: a look after every epoch; a reference is looked at once."""
        config = self.config
        best = Criterion(metric="accuracy", goal="max")
        if config.is_reference:
            return Plan(updates_per_epoch=1, max_updates=0, evaluate_every=1, selects=best)
        return Plan.in_epochs(
            epochs_in_motion(config.factors, at_most=config.epochs),
            updates_per_epoch=min(len(self.loader), config.updates_per_epoch or len(self.loader)),
            selects=best,
            patience=config.patience,
            schedule=config.factors,
            clip_norm=config.clip_norm,
        )

    def build_model(self) -> nn.Module:
        """Build the model; a reference is given the training part at once."""
        train = self.parts.train
        cases, length, channels = train.values.shape
        model = self.config.build_model(
            num_channels=channels,
            num_classes=len(self.parts.classes),
            length=length,
            num_cases=cases,
            seed=self.seed,
        )
        if isinstance(model, ReferenceClassifier):
            model.fit(train.values, train.mask, train.labels)
        return model

    def build_optimiser(self, model: nn.Module) -> Optimizer:
        """Build the optimiser of the recipe."""
        return self.config.optimiser.build(model)

    def batches(self, epoch: int) -> Iterator[LabelledBatch]:
        """Walk through the training part in this epoch's order."""
        return self.loader.epoch(epoch)

    def loss(self, model: nn.Module, batch: LabelledBatch) -> Tensor:
        """Return the mean cross-entropy."""
        return F.cross_entropy(model(batch.values, mask=batch.mask), batch.labels)

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Give the accuracy, 0 to 1, and of a trained model the loss; on test also how early it knows."""
        del moment
        series = self.parts.validation if part == "validation" else self.parts.test
        scores = self.score(model, series)
        is_right, losses = Mean(), Mean()
        is_right.add(scores.argmax(-1) == series.labels)
        if self.config.is_reference:
            return {"accuracy": is_right.value}
        losses.add(F.cross_entropy(scores, series.labels, reduction="none"))
        found = {"accuracy": is_right.value, "loss": losses.value}
        return found | (as_metrics(accuracy_by_fraction(model, series)) if part == "test" else {})

    def score(self, model: nn.Module, series: LabelledSeries) -> Tensor:
        """Return the scores of all cases, (cases, classes), on the CPU.

        A reference chooses nothing by what it sees, so that both rules look at TEST; it does so only once.
        """
        if self._reference_scores is not None:
            return self._reference_scores
        device = next((tensor.device for tensor in model.state_dict().values()), torch.device("cpu"))
        scores = torch.cat(
            [
                model(series.values[numbers].to(device), mask=series.mask[numbers].to(device)).cpu()
                for numbers in torch.split(torch.arange(len(series)), EVALUATION_BATCH)
            ]
        )
        if self.config.is_reference:
            self._reference_scores = scores
        return scores

    def predictions(self, model: nn.Module) -> Mapping[str, Tensor]:
        """Return scores, labels and lengths of the test cases."""
        test = self.parts.test
        return {"scores": self.score(model, test), "labels": test.labels, "lengths": test.mask.sum(1)}

    def preprocessing(self) -> Mapping[str, Json]:
        """Return the classes, and the scales of TRAIN that new data is brought to."""
        return {
            "classes": list(self.parts.classes),
            "mean": cast("list[Json]", self.parts.mean.tolist()),
            "deviation": cast("list[Json]", self.parts.deviation.tolist()),
            "is_normalised_across_channels": self.parts.is_normalised_across_channels,
        }

    def facts(self) -> Mapping[str, Json]:
        """Return sizes, and in words who chose the epoch and what was tested."""
        parts = self.parts
        chosen_by = "nobody: nothing is trained" if self.config.is_reference else parts.validation_is
        return {
            "train_cases": len(parts.train),
            "validation_cases": len(parts.validation),
            "test_cases": len(parts.test),
            "channels": parts.train.values.shape[2],
            "length": parts.train.values.shape[1],
            "classes": len(parts.classes),
            "epoch_chosen_by": chosen_by,
            "tested_on": parts.test_is,
            "stands_for": lookup(self.config.dataset).stands_for if self.config.dataset else "",
        }
