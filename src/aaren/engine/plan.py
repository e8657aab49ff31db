"""What a training run will do (Plan), and how far it is (RunStatus).

Everything is counted in updates (optimiser steps).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, NamedTuple, TypeAlias, TypedDict, cast

from aaren.errors import ConfigError

FLOAT32_DIGIT = 2.0**-23  # between 1 and the next larger number


class Moment(NamedTuple):
    """Where a run stands: updates made so far, and the epoch (from 0) that the next one belongs to."""

    update: int
    epoch: int


Schedule: TypeAlias = Callable[
    [Moment], float
]  # the factor on the optimiser's learning rate at the next update


def constant(_moment: Moment) -> float:
    """Keep the learning rate as it is."""
    return 1.0


def halving(*, every_epochs: int = 1) -> Schedule:
    """Follow the Time-Series-Library: after epoch e (from 1), if e is a multiple, the factor is 0.5^(e - 1).

    With `every_epochs=1` the first two epochs share the full rate (forecasting); with 5 the rate falls by 16
    after epoch 5 and by 512 after epoch 10 (classification).

    >>> [halving()(Moment(0, epoch)) for epoch in range(4)]
    [1.0, 1.0, 0.5, 0.25]
    >>> [halving(every_epochs=5)(Moment(0, epoch)) for epoch in (4, 5, 9, 10)]
    [1.0, 0.0625, 0.0625, 0.001953125]
    """

    def factor(moment: Moment) -> float:
        finished = moment.epoch // every_epochs * every_epochs
        return 0.5 ** max(0, finished - 1)

    return factor


def epochs_in_motion(schedule: Schedule, *, at_most: int) -> int:
    """Count the epochs before a falling learning rate has become too small to matter.

    That is where its factor drops below the last digit of float32: a weight that a full step would move by
    its own size no longer changes. What follows could only repeat the same evaluation.

    >>> epochs_in_motion(halving(every_epochs=5), at_most=100), epochs_in_motion(constant, at_most=100)
    (25, 100)
    """
    is_still = (schedule(Moment(0, epoch)) < FLOAT32_DIGIT for epoch in range(at_most))
    return next((epoch for epoch, still in enumerate(is_still) if still), at_most)


def warm_up(updates: int, *, end: int | None = None) -> Schedule:
    """Rise linearly to the full rate at the given update, then stay, or fall to 0 at the end (rl).

    >>> [warm_up(4)(Moment(update, 0)) for update in (0, 1, 3, 100)]
    [0.25, 0.5, 1.0, 1.0]
    >>> [warm_up(4, end=12)(Moment(update, 0)) for update in (1, 3, 7, 11)]
    [0.5, 1.0, 0.625, 0.125]
    """

    def rate(moment: Moment) -> float:
        risen = min((moment.update + 1) / updates, 1.0)
        if end is None or end <= updates:
            return risen
        return min(risen, max(0.0, (end - moment.update) / (end - updates)))

    return rate


@dataclass(frozen=True, kw_only=True, slots=True)
class Criterion:
    """A validation metric and its good direction.

    >>> Criterion(metric="mse").improves(0.4, best=0.4)
    True
    >>> Criterion(metric="accuracy", goal="max", ties=False).improves(0.4, best=0.4)
    False
    """

    metric: str
    goal: Literal["min", "max"] = "min"
    ties: bool = True  # an equal value counts as an improvement, as in the Time-Series-Library

    def improves(self, value: float, *, best: float | None) -> bool:
        """Compare a value with the best so far; NaN never improves."""
        if math.isnan(value):
            return False
        if best is None or (self.ties and value == best):
            return True
        return value < best if self.goal == "min" else value > best


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How a run goes.

    Epochs of 100 batches, at most 10 of them, an evaluation after each, patience 3:

    >>> Plan.in_epochs(10, updates_per_epoch=100, selects=Criterion(metric="mse"), patience=3).max_updates
    1000
    """

    updates_per_epoch: int
    max_updates: int  # 0: nothing to learn, as in a baseline that repeats the last value
    evaluate_every: int  # updates between two evaluations on the validation part; the last update has one
    selects: Criterion | None = None  # whose best evaluation gives the weights that are kept; None: the last
    stops: Criterion | None = None  # what patience watches; default: the same as selects
    patience: int | None = None  # evaluations without improvement before training ends; default: never
    schedule: Schedule = constant
    clip_norm: float | None = None  # of the gradient of all parameters together

    def __post_init__(self) -> None:
        """Report every number that cannot be."""
        counts = {
            "updates_per_epoch": self.updates_per_epoch,
            "evaluate_every": self.evaluate_every,
            "patience": 1 if self.patience is None else self.patience,
        }
        faults = [f"{name} must be at least 1; got {count}" for name, count in counts.items() if count < 1]
        if self.patience is not None and self.watches is None:
            faults.append("patience needs a metric to watch: give selects or stops")
        if self.max_updates < 0:
            faults.append(f"max_updates must be 0 or more; got {self.max_updates}")
        if self.clip_norm is not None and not self.clip_norm > 0.0:
            faults.append(f"clip_norm must be above 0, or left out; got {self.clip_norm}")
        if faults:
            raise ConfigError("; ".join(faults) + ".")

    @classmethod
    def in_epochs(
        cls,
        epochs: int,
        *,
        updates_per_epoch: int,
        selects: Criterion | None = None,
        stops: Criterion | None = None,
        patience: int | None = None,
        schedule: Schedule = constant,
        clip_norm: float | None = None,
    ) -> "Plan":
        """Plan a run that is evaluated after every epoch."""
        return cls(
            updates_per_epoch=updates_per_epoch,
            max_updates=epochs * updates_per_epoch,
            evaluate_every=updates_per_epoch,
            selects=selects,
            stops=stops,
            patience=patience,
            schedule=schedule,
            clip_norm=clip_norm,
        )

    @property
    def watches(self) -> Criterion | None:
        """Return what patience watches, its default resolved; None: nothing."""
        return self.selects if self.stops is None else self.stops

    def moment(self, update: int) -> Moment:
        """Say where a run stands after so many updates."""
        return Moment(update, update // self.updates_per_epoch)

    def is_evaluation_due(self, update: int) -> bool:
        """Say whether the model is evaluated on the validation part after so many updates."""
        return update % self.evaluate_every == 0 or update >= self.max_updates


class Evaluation(TypedDict):
    """One row of the learning curve: the model on the validation part."""

    update: int
    epoch: int
    loss: float  # mean training loss since the evaluation before
    learning_rate_factor: float
    seconds: float  # of the whole run so far
    is_best: bool
    validation: dict[str, float]


@dataclass(slots=True)
class RunStatus:
    """What the loop must remember beside weights, optimiser and random numbers."""

    update: int = 0
    is_done: bool = False
    ended_by: str = ""  # "patience", "max_updates" or, stopped early by a person, "request"
    best_value: float | None = None
    best_index: int | None = None  # its place in the curve
    watched_value: float | None = None  # the best of what patience watches
    without_improvement: int = 0  # evaluations since the last one
    loss_total: float = 0.0  # since the last evaluation
    loss_count: int = 0
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("training", "evaluation", "saving", "cpu"), 0.0)
    )  # wall time by account; beside it the CPU time of the run
    curve: list[Evaluation] = field(default_factory=list)
    resumed: int = 0  # how often the run was stopped and resumed

    @property
    def best(self) -> Evaluation | None:
        """Return the evaluation whose weights are kept."""
        return None if self.best_index is None else self.curve[self.best_index]

    @property
    def total_seconds(self) -> float:
        """Return the time spent on the run by all processes that worked on it, one after the other."""
        return sum(self.seconds[account] for account in ("training", "evaluation", "saving"))

    def add(self, evaluation: Evaluation, plan: Plan) -> bool:
        """Add an evaluation to the curve, decide whether to stop, and say whether it is the best so far."""
        metrics, watches = evaluation["validation"], plan.watches
        value = None if plan.selects is None else _metric(metrics, plan.selects)
        is_best = plan.selects is None or value is None or plan.selects.improves(value, best=self.best_value)
        self.curve.append({**evaluation, "is_best": is_best})
        if is_best:
            self.best_value, self.best_index = value, len(self.curve) - 1
        watched = None if watches is None else _metric(metrics, watches)
        if watches is None or watched is None or watches.improves(watched, best=self.watched_value):
            self.watched_value, self.without_improvement = watched, 0
        else:
            self.without_improvement += 1
        if plan.patience is not None and self.without_improvement >= plan.patience:
            self.is_done, self.ended_by = True, "patience"
        elif self.update >= plan.max_updates:
            self.is_done, self.ended_by = True, "max_updates"
        self.loss_total, self.loss_count = 0.0, 0
        return is_best

    def to_json(self) -> dict[str, object]:
        """Return everything as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> "RunStatus":
        """Read back what `to_json` gave."""
        return cls(**cast("dict[str, object]", dict(values)))  # type: ignore[arg-type]  # as written by to_json


def _metric(metrics: Mapping[str, float], criterion: Criterion) -> float:
    if criterion.metric not in metrics:
        raise ConfigError(
            f"the plan selects or stops by {criterion.metric!r}, but the validation part gives only: "
            f"{', '.join(sorted(metrics))}."
        )
    return metrics[criterion.metric]
