"""Train and evaluate models of irregular events: after each one, the distribution of the next.

Metrics are the negative log-likelihood per event, the root mean squared error of the mean gap and the
accuracy of the most probable mark, summed over any number of batches in float64. Both rules for a sequence's
end and both definitions of the root mean squared error are given, whatever the model was trained with; for
generated sets also the likelihood under the true process, over the very terms that a model is judged by.
"""

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.datasets.catalogue import lookup
from aaren.datasets.numbers import offsets_from_lengths
from aaren.engine.experiment import Experiment, Json, Part
from aaren.engine.plan import Criterion, Moment, Plan
from aaren.errors import DataError
from aaren.events import files as event_files
from aaren.events.batches import EventBatch, EventBatches
from aaren.events.config import EventsConfig, OwnEventsConfig
from aaren.events.data import PROCESSES, load, split, true_process
from aaren.events.distribution import Events
from aaren.events.forecaster import EventForecaster
from aaren.events.likelihood import (
    CENSORINGS,
    MOST_LOGITS,
    Censoring,
    Targets,
    find_targets,
    log_likelihood,
    time_terms,
)
from aaren.events.references import EventReference
from aaren.events.sequences import EventSequences

EVALUATION_BATCH = 16  # sequences at once, without gradients
PIT_BINS = 10
DRAWN_GAPS = 80  # of one test sequence, that a report draws
BAND = {"low": 0.1, "median": 0.5, "high": 0.9}  # of its forecasts
CONFIG_WORDS = {  # what the readers of files call their arguments, and how they are given here
    "Columns(...)": "--set own.sequence_column=NAME, own.time_column=NAME or own.mark_column=NAME",
    "sort=True": "--set own.sort=true",
    "drop_duplicates=True": "--set own.drop_duplicates=true",
    "drop_single=True": "--set own.drop_single=true",
}
# New data is read as the training data was: what can be chosen was chosen then.
PREDICTION_WORDS = {
    "Name the columns with Columns(...)": "Call them as the training file did",
    **{argument: f"{key} when training" for argument, key in CONFIG_WORDS.items()},
}


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
            before = marks[np.flatnonzero(is_known) - 1]
            parts = (torch.from_numpy(part) for part in (train.gaps[is_known], marks[is_known], before))
            model.fit(*parts)
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

    def _truth(self, events: EventSequences, scores: "EventScores") -> dict[str, float]:
        truth = {rule: true_log_likelihood(self.config.dataset, events, rule) for rule in CENSORINGS}
        return {
            "true_nll": -truth[self.config.censoring] / events.num_events,
            "true_nll_density": -true_log_density(self.config.dataset, events) / scores.num_targets,
            # Per event that has a term, by the exact rule, however the model was trained.
            "gap_to_truth": (truth["none"] - scores.time["none"]) / scores.num_targets,
        }

    def predictions(self, model: nn.Module) -> Mapping[str, Tensor]:
        """Return true gaps of the test part, their mean and median forecasts, and their levels (PIT)."""
        from aaren.events.likelihood import find_targets

        assert isinstance(model, EventForecaster)
        kept: dict[str, list[Tensor]] = {"gap": [], "mean": [], "median": [], "level": []}
        for batch in EventBatches(self.parts.test, batch_size=EVALUATION_BATCH, shuffle=False):
            targets = find_targets(model, events_of(batch), mask=batch.mask)
            distribution = model.decode_gap(targets.known)
            found = (
                targets.gaps,
                distribution.mean(),
                distribution.quantile(0.5),
                distribution.cdf(targets.gaps),
            )
            for name, values in zip(kept, found, strict=True):
                kept[name].append(values.cpu())
        return {name: torch.cat(values) for name, values in kept.items()}

    def figures(self, model: nn.Module) -> Mapping[str, Json]:
        """Return the gaps of one test sequence and, before each, the band they were expected in.

        The sequence is the longest one, or what is drawn of it; its first gap is given, not predicted. The
        calibration is in the record already: `pit_0` to `pit_9`.
        """
        from aaren.events.likelihood import find_targets

        assert isinstance(model, EventForecaster)
        test = self.parts.test
        number = int(test.lengths.argmax())
        batch = next(iter(EventBatches(test.select(np.array([number])), batch_size=1, shuffle=False)))
        targets = find_targets(model, events_of(batch), mask=batch.mask)
        distribution = model.decode_gap(targets.known[:DRAWN_GAPS])
        drawn = {
            "gap": targets.gaps[:DRAWN_GAPS],
            **{name: distribution.quantile(p) for name, p in BAND.items()},
        }
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


def open_events(config: EventsConfig) -> EventSequences:
    """Read a registered set, or the user's own file."""
    if config.dataset:
        events = load(config.dataset)
    else:
        own = config.own
        events = read_own(Path(config.data_file), own)
        begin, end = own.observed_from, own.observed_until
        events = replace(
            events,
            observed_from=events.observed_from if begin is None else np.full(len(events), begin),
            observed_until=events.observed_until if end is None else np.full(len(events), end),
        )
    if config.max_sequences is not None:
        events = events.select(np.arange(min(config.max_sequences, len(events))))
    is_single = events.lengths < 2
    if is_single.any() and not config.own.drop_single:
        raise DataError(
            f"{events.name}: {int(is_single.sum())} sequences have one event, so no gap to learn from; the "
            f"first is number {int(is_single.argmax())}. Leave them out with --set own.drop_single=true."
        )
    return events.select(~is_single) if is_single.any() else events


def read_own(
    path: Path,
    own: OwnEventsConfig,
    *,
    num_marks: int | None = None,
    mark_names: tuple[str, ...] = (),
    words: Mapping[str, str] = CONFIG_WORDS,
) -> EventSequences:
    """Read the user's own file; what a reader would be told to pass is named as the config calls it."""
    try:
        return event_files.read(
            path,
            columns=own.columns,
            repairs=own.repairs,
            num_marks=num_marks,
            mark_names=mark_names,
            unit=own.unit,
        )
    except DataError as error:
        message = str(error)
        for argument, key in words.items():
            message = message.replace(argument, key)
        raise DataError(message) from error


def comparable_numbers(dataset: str) -> tuple[list[str], str]:
    """Say which published numbers mean the same as ours, and why not the others."""
    if not dataset:
        return [], "own data"
    row = lookup(dataset)
    if dataset == "sin":
        return ["nll", "rmse"], "period and domain as published, so the unit is the same; our own generator"
    if row.is_generated:
        return [], "not among the published sets"
    if dataset == "mimic":
        reason = "their unit is probably ours, years: error and accuracy are at the published level"
        return ["nll", "rmse", "accuracy"], reason
    if row.facts.get("marks", 1) == 1:
        return [], "the unit of the published times is not known, and there are no marks"
    return ["accuracy"], "the unit of the published times is not known"


def events_of(batch: EventBatch) -> Events:
    """Return a batch's events as models take them: marks from 0."""
    return Events(batch.gaps, batch.marks - 1)


@dataclass(kw_only=True, slots=True)
class EventScores:
    """Sums over all sequences so far.

    An event's term is that of its time and its mark given all before it. First events have no term; the
    published code counts them all the same when it divides, so both quotients are given.
    """

    mean_gap: float = 1.0  # of the training part, for the likelihood at unit mean gap
    wants_calibration: bool = False
    num_sequences: int = 0
    num_targets: int = 0  # events that have a term: all but the first ones
    time: dict[Censoring, float] = field(default_factory=lambda: {"protocol": 0.0, "none": 0.0})
    density: float = 0.0  # of times alone, without the quiet time at the end
    marks: float = 0.0
    correct: int = 0
    is_marked: bool = False
    squared_errors: float = 0.0
    squared_sums: float = 0.0  # of each sequence's errors: the published code squares after summing
    levels: list[Tensor] = field(default_factory=list)  # probability integral transform

    @torch.no_grad()
    def add(self, model: EventForecaster, batch: EventBatch) -> None:
        """Take in a batch of whole sequences."""
        targets = find_targets(model, events_of(batch), mask=batch.mask)
        distribution = model.decode_gap(targets.known)
        self.num_sequences += len(batch)
        self.num_targets += len(targets.gaps)
        self.time["protocol"] += float(time_terms(distribution, targets, "protocol").sum())
        density = float(time_terms(distribution, targets, "none").sum())
        self.density += density
        self.time["none"] += density
        if batch.final_gaps is not None:
            at_end = model.decode_gap(targets.known_at_end)
            self.time["none"] += float(at_end.log_survival(batch.final_gaps).sum())
        errors = distribution.mean() - targets.gaps
        per_sequence = errors.new_zeros(len(batch)).index_add(0, targets.sequence, errors)
        self.squared_errors += float(errors.square().sum())
        self.squared_sums += float(per_sequence.square().sum())
        if self.wants_calibration:
            self.levels.append(distribution.cdf(targets.gaps).cpu())
        if model.num_marks > 1:
            self._add_marks(model, targets)

    def _add_marks(self, model: EventForecaster, targets: Targets) -> None:
        self.is_marked = True
        size = max(1, MOST_LOGITS // model.num_marks)
        for known, marks in zip(
            torch.split(targets.known, size), torch.split(targets.marks, size), strict=True
        ):
            logits = model.decode_marks(known)
            assert logits is not None
            self.marks -= float(torch.nn.functional.cross_entropy(logits, marks, reduction="sum"))
            self.correct += int((logits.argmax(-1) == marks).sum())

    def metrics(self, censoring: Censoring) -> dict[str, float]:
        """Return all numbers; those called plainly `nll` and `rmse` are defined as published."""
        entries = self.num_targets + self.num_sequences
        total = -(self.time[censoring] + self.marks)
        # Only densities have a unit: a censored last event is a probability.
        num_densities = self.num_targets - (self.num_sequences if censoring == "protocol" else 0)
        found = {
            "nll": total / entries,
            "nll_without_first": total / self.num_targets,
            "nll_time": -self.time[censoring] / entries,
            "nll_unit_gap": (total - num_densities * math.log(self.mean_gap)) / entries,
            "nll_protocol": -(self.time["protocol"] + self.marks) / entries,
            "nll_clean": -(self.time["none"] + self.marks) / entries,
            "nll_density": -self.density / self.num_targets,
            "rmse": math.sqrt(self.squared_sums / self.num_targets),
            "rmse_usual": math.sqrt(self.squared_errors / self.num_targets),
        }
        found["nll_mark"] = (0.0 - self.marks) / entries
        found["accuracy"] = self.correct / self.num_targets if self.is_marked else math.nan
        if self.levels:
            found.update(calibration(torch.cat(self.levels)))
        return found


def calibration(levels: Tensor) -> dict[str, float]:
    """Compare probability integral transforms with the uniform distribution of a perfect forecast.

    `pit_distance` is the largest difference between the two distribution functions (Kolmogorov-Smirnov);
    `pit_0` to `pit_9` are the shares of a histogram of ten bins, each 0.1 if perfect.

    >>> found = calibration((torch.arange(1000) + 0.5) / 1000)
    >>> round(found["pit_distance"], 4), round(found["pit_3"], 4)
    (0.0005, 0.1)
    """
    count = len(levels)
    ordered = levels.double().sort().values
    steps = torch.arange(count + 1, dtype=torch.float64) / count
    distance = torch.maximum((steps[1:] - ordered).max(), (ordered - steps[:-1]).max())
    bins = torch.histc(ordered, bins=PIT_BINS, min=0.0, max=1.0) / count
    return {"pit_distance": float(distance), **{f"pit_{i}": float(share) for i, share in enumerate(bins)}}


def has_truth(name: str) -> bool:
    """Tell whether the process behind a set is known."""
    return name in PROCESSES


def true_log_likelihood(name: str, events: EventSequences, censoring: Censoring) -> float:
    """Return the log-likelihood, given each first event, that the process itself gives to its events.

    By the rule "none" with the quiet time at the end, by "protocol" with the last event censored.
    """
    if events.observed_from is None:
        raise DataError(f"{events.name}: the true likelihood needs the start of observation.")
    process = true_process(name)
    if censoring == "none":
        final = 0.0 if events.final_gaps is None else float(process.log_survival(events).sum())
        return true_log_density(name, events) + final
    is_term = ~events.is_first
    is_term[events.offsets[1:] - 1] = False
    censored = process.log_survival(_without_last(events))
    return float(process.log_density(events)[is_term].sum() + censored.sum())


def true_log_density(name: str, events: EventSequences) -> float:
    """Return the log-density of all events but the first ones, without the quiet time at the end."""
    return float(true_process(name).log_density(events)[~events.is_first].sum())


def _without_last(events: EventSequences) -> EventSequences:
    """Leave out each last event and let observation end where it was, so that it counts as censored."""
    if events.lengths.min() < 2:
        raise DataError(f"{events.name}: a sequence of one event has nothing but a first event.")
    last = events.offsets[1:] - 1
    keep = np.ones(events.num_events, dtype=bool)
    keep[last] = False
    return replace(
        events,
        times=events.times[keep],
        offsets=offsets_from_lengths(events.lengths - 1),
        marks=None if events.marks is None else events.marks[keep],
        observed_until=events.times[last],
    )


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


ABSURD_BELOW, ABSURD_ABOVE = 1e-6, 1e6  # if all gaps are beyond, the unit of time is a strange one
