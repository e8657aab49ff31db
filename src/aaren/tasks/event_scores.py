"""How well a model explains event sequences: likelihood, point forecasts, marks, calibration.

Sums over any number of batches, in float64; both rules for a sequence's end and both definitions of the root
mean squared error, whatever the model was trained with. Knows nothing of datasets.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from aaren.data.events.batches import EventBatch
from aaren.models.event_distribution import Events
from aaren.models.event_forecaster import EventForecaster
from aaren.models.event_likelihood import MOST_LOGITS, Censoring, Targets, find_targets, time_terms

PIT_BINS = 10


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
        law = model.decode_gap(targets.known)
        self.num_sequences += len(batch)
        self.num_targets += len(targets.gaps)
        self.time["protocol"] += float(time_terms(law, targets, "protocol").sum())
        density = float(time_terms(law, targets, "none").sum())
        self.density += density
        self.time["none"] += density
        if batch.final_gaps is not None:
            at_end = model.decode_gap(targets.known_at_end)
            self.time["none"] += float(at_end.log_survival(batch.final_gaps).sum())
        errors = law.mean() - targets.gaps
        per_sequence = errors.new_zeros(len(batch)).index_add(0, targets.sequence, errors)
        self.squared_errors += float(errors.square().sum())
        self.squared_sums += float(per_sequence.square().sum())
        if self.wants_calibration:
            self.levels.append(law.cdf(targets.gaps).cpu())
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
    """Compare probability integral transforms with the uniform law that a perfect forecast gives them.

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
