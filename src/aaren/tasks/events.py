"""The events task: irregular sequences of marked events, and after each the law of the next one.

Metrics are the negative log-likelihood per event, the root mean squared error of the mean gap and the
accuracy of the most probable mark; `event_scores` defines them, `event_truth` what a perfect model would
reach.
"""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.data.events.batches import EventBatch, EventBatches
from aaren.data.events.loading import split
from aaren.data.events.sequences import EventSequences
from aaren.data.files.packed import noting_checksums
from aaren.data.registry import lookup
from aaren.models.event_forecaster import EventForecaster
from aaren.models.event_likelihood import CENSORINGS, log_likelihood
from aaren.models.event_references import EventReference
from aaren.tasks.base import Experiment, Json, Part, Task
from aaren.tasks.event_config import EventsConfig
from aaren.tasks.event_scores import EventScores, events_of
from aaren.tasks.event_sources import comparable_numbers, open_events
from aaren.tasks.event_truth import has_truth, true_log_density, true_log_likelihood
from aaren.tasks.plan import Criterion, Moment, Plan

EVALUATION_BATCH = 16  # sequences at once, without gradients
DRAWN_GAPS = 80  # of one test sequence, that a report draws
BAND = {"low": 0.1, "median": 0.5, "high": 0.9}  # of its forecasts
ABSURD_BELOW, ABSURD_ABOVE = 1e-6, 1e6  # if all gaps are beyond, the unit of time is a strange one


class EventsExperiment(Experiment[EventBatch]):
    """Sequences in three parts, and a model that explains each event by those before it."""

    def __init__(self, config: EventsConfig, events: EventSequences, *, seed: int) -> None:
        self.config = config
        self.events = events
        self.parts = split(events, rule=config.split)
        self.mean_gap = self.parts.train.mean_gap
        self.time_scale = self.mean_gap if config.time_scale == "mean-gap" else config.time_scale
        _warn_of_absurd_unit(self.parts.train, self.time_scale)
        self.training = EventBatches(self.parts.train, batch_size=config.batch_size, seed=seed)
        self.plan = Plan.in_epochs(
            0 if config.is_reference else config.epochs,
            updates_per_epoch=len(self.training),
            selects=Criterion(metric=config.selection, ties=False),
            stops=Criterion(metric="nll", ties=False),
            patience=config.patience,
        )

    def build_model(self) -> nn.Module:
        """Build the model; a reference is fitted at once, to all known gaps of the training part."""
        train = self.parts.train
        model = self.config.build_model(num_marks=self.events.num_marks, time_scale=self.time_scale)
        if isinstance(model, EventReference):
            marks = np.zeros(train.num_events, dtype=np.int64) if train.marks is None else train.marks
            is_known = ~train.is_first
            model.fit(torch.from_numpy(train.gaps[is_known]), torch.from_numpy(marks[is_known]))
        return model

    def build_optimiser(self, model: nn.Module) -> Optimizer:
        """Build Adam; its weight decay is the gradient of the published penalty."""
        return self.config.optimiser.build(model)

    def batches(self, epoch: int) -> Iterator[EventBatch]:
        """Walk through the training sequences, those of similar length together."""
        return self.training.epoch(epoch)

    def loss(self, model: nn.Module, batch: EventBatch) -> Tensor:
        """Return the negative log-likelihood, a sum over all events of the batch."""
        assert isinstance(model, EventForecaster)
        return -log_likelihood(
            model,
            events_of(batch),
            mask=batch.mask,
            final_gaps=batch.final_gaps,
            censoring=self.config.censoring,
        )

    def weight(self, batch: EventBatch) -> float:
        """Say that losses are sums: parts of a batch simply add up."""
        del batch
        return 1.0

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Score a part; the test part also for calibration and, if the process is known, against it."""
        del moment
        assert isinstance(model, EventForecaster)
        events = self.parts.validation if part == "validation" else self.parts.test
        device = next(model.parameters()).device
        scores = EventScores(mean_gap=self.mean_gap, wants_calibration=part == "test")
        for batch in EventBatches(events, batch_size=EVALUATION_BATCH, shuffle=False):
            scores.add(model, batch.to(device))
        found = scores.metrics(self.config.censoring)
        if part == "test" and has_truth(self.config.dataset):
            found.update(self._truth(events, scores))
        return found

    def _truth(self, events: EventSequences, scores: EventScores) -> dict[str, float]:
        truth = {rule: true_log_likelihood(self.config.dataset, events, rule) for rule in CENSORINGS}
        return {
            "true_nll": -truth[self.config.censoring] / events.num_events,
            "true_nll_density": -true_log_density(self.config.dataset, events) / scores.num_targets,
            # Per event that has a term, by the exact rule, however the model was trained.
            "gap_to_truth": (truth["none"] - scores.time["none"]) / scores.num_targets,
        }

    def predictions(self, model: nn.Module) -> Mapping[str, Tensor]:
        """Return true gaps of the test part, their mean and median forecasts, and their levels (PIT)."""
        from aaren.models.event_likelihood import find_targets

        assert isinstance(model, EventForecaster)
        kept: dict[str, list[Tensor]] = {"gap": [], "mean": [], "median": [], "level": []}
        for batch in EventBatches(self.parts.test, batch_size=EVALUATION_BATCH, shuffle=False):
            targets = find_targets(model, events_of(batch), mask=batch.mask)
            law = model.decode_gap(targets.known)
            found = (targets.gaps, law.mean(), law.quantile(0.5), law.cdf(targets.gaps))
            for name, values in zip(kept, found, strict=True):
                kept[name].append(values.cpu())
        return {name: torch.cat(values) for name, values in kept.items()}

    def figures(self, model: nn.Module) -> Mapping[str, Json]:
        """Return the gaps of one test sequence and, before each, the band they were expected in.

        The sequence is the longest one, or what is drawn of it; its first gap is given, not foretold. The
        calibration is in the record already: `pit_0` to `pit_9`.
        """
        from aaren.models.event_likelihood import find_targets

        assert isinstance(model, EventForecaster)
        test = self.parts.test
        number = int(test.lengths.argmax())
        batch = next(iter(EventBatches(test.select(np.array([number])), batch_size=1, shuffle=False)))
        targets = find_targets(model, events_of(batch), mask=batch.mask)
        law = model.decode_gap(targets.known[:DRAWN_GAPS])
        drawn = {"gap": targets.gaps[:DRAWN_GAPS], **{name: law.quantile(p) for name, p in BAND.items()}}
        return {
            "sequence": number,
            "unit": self.events.unit,
            **{name: [float(f"{value:.4g}") for value in found.tolist()] for name, found in drawn.items()},
        }

    def preprocessing(self) -> Mapping[str, Json]:
        """Return the kinds of events and the unit, which new data must share."""
        return {"mark_names": list(self.events.mark_names), "unit": self.events.unit}

    def facts(self) -> Mapping[str, Json]:
        """Return sizes, unit and ends, and which published numbers may stand beside these."""
        row = lookup(self.config.dataset) if self.config.dataset else None
        comparable, reason = comparable_numbers(self.config.dataset)
        sizes = {
            f"{name}_{what}": count
            for name, part in zip(("train", "validation", "test"), self.parts[:3], strict=True)
            for what, count in (("sequences", len(part)), ("events", part.num_events))
        }
        return {
            **sizes,
            "split": self.parts.rule,
            "marks": self.events.num_marks,
            "unit": self.events.unit,
            "mean_gap": self.mean_gap,
            "time_scale": self.time_scale,
            "knows_start": self.events.observed_from is not None,
            "knows_end": self.events.observed_until is not None,
            "padding_share": round(self.training.padding_share(), 4),
            "stands_for": row.stands_for if row else "",
            "remark": row.remark if row else "",
            "comparable": cast("list[Json]", comparable),
            "comparable_reason": reason,
        }


class EventsTask(Task[EventsConfig, EventBatch]):
    """Event forecasting as the paper's section 4.2 and its base code do it."""

    name = "events"
    config_type = EventsConfig
    reports = ("test.nll", "test.rmse", "test.accuracy")  # the last is NaN where there are no marks
    higher_is_better = ("test.accuracy",)

    def open(self, config: EventsConfig, *, seed: int) -> Experiment[EventBatch]:
        """Read the events and split them."""
        with noting_checksums() as checksums:
            experiment = EventsExperiment(config, open_events(config), seed=seed)
        experiment.data_checksums = checksums
        return experiment

    def cell(self, config: EventsConfig) -> Mapping[str, str | int]:
        """Say where in the table this run stands."""
        cell = {"dataset": config.dataset or Path(config.data_file).stem, "model": config.model}
        return cell if config.censoring == "protocol" else {**cell, "rule": "clean"}

    def predict(
        self,
        model: nn.Module,
        config: EventsConfig,
        preprocessing: Mapping[str, Json],
        *,
        source: Path,
        target: Path,
    ) -> None:
        """Say for every sequence of a file when its next event comes and of which kind, as CSV."""
        from aaren.tasks.event_forecasts import forecast_file

        forecast_file(model, config, preprocessing, source=source, target=target)


def _warn_of_absurd_unit(events: EventSequences, time_scale: float) -> None:
    gaps = events.gaps[~events.is_first] / time_scale
    for is_absurd, where in ((gaps < ABSURD_BELOW, "below 1e-06"), (gaps > ABSURD_ABOVE, "above 1e+06")):
        if is_absurd.all():
            warnings.warn(
                f"{events.name}: all gaps are {where} {events.unit}, on average {events.mean_gap:.3g}: too "
                "far from 1 for a model to learn well. Let it count in mean gaps, --set time_scale=mean-gap, "
                f"or in a unit of your own, --set time_scale={events.mean_gap:.1g}; what it says stays in "
                "the unit of the data.",
                stacklevel=2,
            )


TASK = EventsTask()
