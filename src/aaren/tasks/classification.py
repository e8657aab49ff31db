"""The classification task: a labelled series in, its class out; accuracy on TEST is the number.

Two reporting rules (see `ClassificationConfig`). The test metrics hold the accuracy after every twentieth of
the series too. Parts are made in `classification_parts`, new data is read in `classification_files`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.data.classification.batch import LabelledBatch
from aaren.data.classification.loading import LabelledSeries
from aaren.data.files.packed import noting_checksums
from aaren.data.registry import lookup
from aaren.models import ReferenceClassifier
from aaren.tasks.base import Experiment, Json, Part, Task
from aaren.tasks.classification_config import ClassificationConfig
from aaren.tasks.classification_earliness import accuracy_by_fraction, as_metrics
from aaren.tasks.classification_parts import ClassificationParts, open_parts
from aaren.tasks.metrics import Mean
from aaren.tasks.plan import Criterion, Moment, Plan, epochs_in_motion

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


class ClassificationTask(Task[ClassificationConfig, LabelledBatch]):
    """Classification as the paper's section 4.4 and the Time-Series-Library do it."""

    name = "classification"
    config_type = ClassificationConfig
    reports = ("test.accuracy",)
    higher_is_better = reports

    def open(self, config: ClassificationConfig, *, seed: int) -> ClassificationExperiment:
        """Read the series and part them as the reporting rule says."""
        with noting_checksums() as checksums:
            experiment = ClassificationExperiment(config, open_parts(config, seed=seed), seed=seed)
        experiment.data_checksums = checksums
        return experiment

    def cell(self, config: ClassificationConfig) -> Mapping[str, str | int]:
        """Say where in the table this run stands."""
        dataset = config.dataset or Path(config.data_file).name.split(".")[0]
        return {"dataset": dataset, "model": config.model, "rule": config.rule, "recipe": config.recipe}

    def predict(
        self,
        model: nn.Module,
        config: ClassificationConfig,
        preprocessing: Mapping[str, Json],
        *,
        source: Path,
        target: Path,
    ) -> None:
        """Classify the cases of a `.ts` file; the result is a CSV file with a row per case."""
        from aaren.tasks.classification_files import classify_file

        classify_file(model, config, preprocessing, source=source, target=target)


TASK = ClassificationTask()
