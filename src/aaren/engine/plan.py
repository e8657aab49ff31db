"""The course of a training run in numbers: how long, how fast, when to look, what to keep, when to stop.

Everything is counted in updates (optimiser steps). Knows nothing of data, models or settings.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

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
    its own size no longer changes. What follows could only repeat the same look.

    >>> epochs_in_motion(halving(every_epochs=5), at_most=100), epochs_in_motion(constant, at_most=100)
    (25, 100)
    """
    is_still = (schedule(Moment(0, epoch)) < FLOAT32_DIGIT for epoch in range(at_most))
    return next((epoch for epoch, still in enumerate(is_still) if still), at_most)


def warm_up(updates: int) -> Schedule:
    """Rise in a straight line to the full rate at the given update, then stay (rl).

    >>> [warm_up(4)(Moment(update, 0)) for update in (0, 1, 3, 100)]
    [0.25, 0.5, 1.0, 1.0]
    """
    return lambda moment: min((moment.update + 1) / updates, 1.0)


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

    Epochs of 100 batches, at most 10 of them, a look after each, patience 3:

    >>> Plan.in_epochs(10, updates_per_epoch=100, selects=Criterion(metric="mse"), patience=3).max_updates
    1000
    """

    updates_per_epoch: int
    max_updates: int  # 0: nothing to learn, as in a baseline that repeats the last value
    evaluate_every: (
        int  # updates between two looks at the validation part; the last update is always followed by one
    )
    selects: Criterion  # whose best look gives the weights that are kept
    stops: Criterion | None = None  # what patience watches; default: the same as selects
    patience: int | None = None  # looks without improvement before training ends; default: never
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
        selects: Criterion,
        stops: Criterion | None = None,
        patience: int | None = None,
        schedule: Schedule = constant,
        clip_norm: float | None = None,
    ) -> "Plan":
        """Plan a run that looks at the validation part after every epoch."""
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
    def watches(self) -> Criterion:
        """Return what patience watches, its default resolved."""
        return self.selects if self.stops is None else self.stops

    def moment(self, update: int) -> Moment:
        """Say where a run stands after so many updates."""
        return Moment(update, update // self.updates_per_epoch)

    def is_look_due(self, update: int) -> bool:
        """Say whether the validation part is looked at after so many updates."""
        return update % self.evaluate_every == 0 or update >= self.max_updates
