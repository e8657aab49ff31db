"""Train and evaluate a classifier of labelled series; its metric is the accuracy on TEST.

`ClassificationConfig` has two reporting rules. The test metrics hold the accuracy after every twentieth of
the series too: a causal model is evaluated along the series, any other gets every prefix as if the
series ended there.
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

from aaren.classification.baselines import ReferenceClassifier
from aaren.classification.batches import LabelledBatch, LabelledSeries, hold_out, prepare
from aaren.classification.config import ClassificationConfig
from aaren.classification.data import (
    Cases,
    find_files,
    find_test_part,
    label_numbers,
    normalise_across_channels,
    read_ts,
    require_trainable,
)
from aaren.classification.model import Classifier
from aaren.classification.random_convolutions import FeatureClassifier
from aaren.classification.ridge_classifier import choose_features, fit_features
from aaren.datasets.catalogue import lookup
from aaren.engine.batches import Mean
from aaren.engine.experiment import Experiment, Json, Part
from aaren.engine.plan import Criterion, Moment, Plan, epochs_in_motion
from aaren.errors import ConfigError, DataError
from aaren.files.archive import plain_name

CURVE_PREFIX = "accuracy_at_"  # and a fraction: the accuracy after that much of each series
FRACTIONS = tuple(round(0.05 * step, 2) for step in range(1, 21))
EVALUATION_BATCH = 64  # cases at once, without gradients
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
    deviation: NDArray[np.float64]  # standard deviations, likewise
    is_normalised_across_channels: bool = False


class ClassificationExperiment(Experiment[LabelledBatch]):
    """Labelled series in parts, and a model that gives a score per class."""

    def __init__(self, config: ClassificationConfig, parts: ClassificationParts, *, seed: int) -> None:
        self.config, self.parts, self.seed = config, parts, seed
        self.loader = parts.train.loader(batch_size=config.batch_size, seed=seed)
        self.plan = self.make_plan()
        self._reference_scores: Tensor | None = None

    def make_plan(self) -> Plan:
        """Plan the run: an evaluation after every epoch; a reference is evaluated once."""
        config, best = self.config, Criterion(metric="accuracy", goal="max")
        if not config.is_trained:
            return Plan(updates_per_epoch=1, max_updates=0, evaluate_every=1, selects=best)
        updates_per_epoch = min(len(self.loader), config.updates_per_epoch or len(self.loader))
        return Plan.in_epochs(
            epochs_in_motion(config.factors, at_most=config.epochs),
            updates_per_epoch=updates_per_epoch,
            selects=best,
            patience=config.patience,
            schedule=config.factors,
            clip_norm=config.clip_norm,
        )

    def build_model(self) -> nn.Module:
        """Build the model; a reference is given the training part at once."""
        train = self.parts.train
        cases, length, channels = train.values.shape
        if self.config.model == "aaren-features":
            sizes = choose_features(train, num_classes=len(self.parts.classes), seed=self.seed)
            return fit_features(train, sizes, seed=self.seed)[0]
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
        """Give the accuracy, 0 to 1, with the loss if trained; on test also after parts of the series."""
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

        A baseline selects nothing, so both rules evaluate it on TEST, once.
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
        if not self.config.is_trained:
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
        """Return sizes, and in words how the epoch was chosen and what was tested."""
        parts = self.parts
        chosen_by = parts.validation_is if self.config.is_trained else "nobody: nothing is trained"
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


def open_parts(config: ClassificationConfig, *, seed: int) -> ClassificationParts:
    """Read a dataset, or the user's own files, and part it as the reporting rule says.

    Args:
        config: Of the experiment.
        seed: Of the part of TRAIN that chooses the epoch; a part that stands in for TEST does not depend on
            it.
    """
    name, paths, is_odd, allow_irregular = _find(config)
    raw = [read_ts(path) for path in paths]
    require_trainable(
        dict(zip(map(plain_name, paths), raw, strict=True)),
        allow_irregular=allow_irregular,
        held_out=config.held_out,
    )
    test_is = "TEST"
    if len(raw) == 1:
        kept, held = hold_out(torch.from_numpy(label_numbers(raw[0])), config.held_out, seed=TEST_SEED)
        raw, test_is = [_pick(raw[0], kept), _pick(raw[0], held)], IN_TRAIN
    data = prepare(
        raw,
        name=name,
        standardise=config.standardise,
        allow_irregular=allow_irregular,
        finish=normalise_across_channels if is_odd else None,
    )
    assert data.test is not None  # there are two parts
    train, validation, validation_is = data.train, data.test, test_is
    if config.rule == "clean" and config.is_trained:
        kept, held = hold_out(train.labels, config.held_out, seed=seed)
        train, validation, validation_is = train.select(kept), train.select(held), IN_TRAIN
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
        for numbers in torch.split(torch.arange(len(series)), EVALUATION_BATCH):
            values, mask, labels = (
                part[numbers].to(device) for part in (series.values, series.mask, series.labels)
            )
            lengths = mask.sum(1)
            scores = None
            if isinstance(model, FeatureClassifier):
                asked = torch.stack([steps_of(lengths, fraction) for fraction in fractions], dim=1)
                found = model.score_prefixes(values, asked, mask=mask)
                for mean, prefix in zip(means, found.unbind(1), strict=True):
                    mean.add(prefix.argmax(-1) == labels)
                continue
            if is_followed:
                assert isinstance(model, Classifier)
                scores, _ = model.score_steps(values, mask=mask)
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
    return {f"{CURVE_PREFIX}{fraction:.2f}": accuracy for fraction, accuracy in curve.items()}


def curve_of(metrics: Mapping[str, float]) -> list[tuple[float, float]]:
    """Read the curve back from a record's test metrics: pairs of fraction seen and accuracy, in order.

    >>> curve_of({"accuracy": 0.75, "accuracy_at_1.00": 0.75, "accuracy_at_0.05": 0.5})
    [(0.05, 0.5), (1.0, 0.75)]
    """
    return sorted(
        (float(name.removeprefix(CURVE_PREFIX)), value)
        for name, value in metrics.items()
        if name.startswith(CURVE_PREFIX) and name.removeprefix(CURVE_PREFIX).replace(".", "", 1).isdecimal()
    )


def _find(config: ClassificationConfig) -> tuple[str, tuple[Path, ...], bool, bool]:
    """Return name, files, whether the odd normalisation is due, and whether irregular cases are allowed."""
    if config.dataset:
        dataset = lookup(config.dataset)
        is_odd = dataset.options.get("instance_norm") == "across-channels"
        return dataset.name, find_files(dataset), is_odd and config.standardise == "protocol", True
    if not config.data_file:
        raise ConfigError("name a dataset (aaren data list classification) or a data_file of your own.")
    train = Path(config.data_file)
    if not os.path.isfile(train):  # noqa: PTH113  # of names that no disk can hold, pathlib raises
        raise DataError(f"{train} is no file: give NAME_TRAIN.ts (plain, .gz or .xz).")
    test = find_test_part(train)
    paths = (train,) if test is None else (train, test)
    return train.name, paths, False, config.allow_irregular


def _pick(cases: Cases, numbers: Tensor) -> Cases:
    chosen = numbers.numpy()
    kept = np.zeros(len(cases), dtype=bool)
    kept[chosen] = True
    return Cases(
        values=cases.values[np.repeat(kept, cases.lengths.sum(axis=1))],
        lengths=cases.lengths[chosen],
        labels=cases.labels[chosen],
    )
