"""RunStatus: how far a run has come, in numbers and words that fit in JSON. The tensors are elsewhere."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TypedDict, cast

from aaren.engine.plan import Criterion, Plan
from aaren.errors import ConfigError


class Look(TypedDict):
    """One row of the learning curve: what a look at the validation part found."""

    update: int
    epoch: int
    loss: float  # mean training loss since the look before
    learning_rate_factor: float
    seconds: float  # of the whole run so far
    is_best: bool
    validation: dict[str, float]


@dataclass(slots=True)
class RunStatus:
    """What the loop must remember beside weights, optimiser and random numbers."""

    update: int = 0
    is_done: bool = False
    ended_by: str = ""  # "patience", "max_updates" or, cut short, "request"
    best_value: float | None = None
    best_look: int | None = None  # its place in the curve
    watched_value: float | None = None  # the best of what patience watches
    looks_in_vain: int = 0
    loss_total: float = 0.0  # since the last look
    loss_count: int = 0
    seconds: dict[str, float] = field(
        default_factory=lambda: {"training": 0.0, "inside_updates": 0.0, "looking": 0.0, "saving": 0.0}
    )
    curve: list[Look] = field(default_factory=list)
    resumed: int = 0  # how often the run was stopped and went on

    @property
    def best(self) -> Look | None:
        """Return the look whose weights are kept."""
        return None if self.best_look is None else self.curve[self.best_look]

    @property
    def total_seconds(self) -> float:
        """Return the time spent on the run by all processes that worked on it, one after the other."""
        return sum(self.seconds[account] for account in ("training", "looking", "saving"))

    def take(self, look: Look, plan: Plan) -> bool:
        """Take in a look, decide whether to stop, and say whether it is the best so far."""
        value = _metric(look["validation"], plan.selects)
        is_best = plan.selects.improves(value, best=self.best_value)
        self.curve.append({**look, "is_best": is_best})
        if is_best:
            self.best_value, self.best_look = value, len(self.curve) - 1
        watched = _metric(look["validation"], plan.watches)
        if plan.watches.improves(watched, best=self.watched_value):
            self.watched_value, self.looks_in_vain = watched, 0
        else:
            self.looks_in_vain += 1
        if plan.patience is not None and self.looks_in_vain >= plan.patience:
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
