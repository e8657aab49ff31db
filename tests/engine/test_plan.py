import math

import pytest

from aaren.engine.plan import Criterion, Moment, Plan, constant, halving, warm_up
from aaren.errors import ConfigError


def test_forecasting_rate_halves_after_the_second_epoch() -> None:
    assert [halving()(Moment(0, epoch)) for epoch in range(5)] == [1.0, 1.0, 0.5, 0.25, 0.125]


def test_classification_rate_falls_every_fifth_epoch() -> None:
    schedule = halving(every_epochs=5)
    assert [schedule(Moment(0, epoch)) for epoch in (0, 4, 5, 9, 10)] == [1.0, 1.0, 2**-4, 2**-4, 2**-9]


def test_warm_up_rises_in_a_line() -> None:
    assert warm_up(10_000)(Moment(0, 0)) == pytest.approx(1e-4)
    assert warm_up(10_000)(Moment(20_000, 3)) == 1.0


def test_constant_is_constant() -> None:
    assert constant(Moment(123, 4)) == 1.0


@pytest.mark.parametrize(
    ("goal", "ties", "value", "best", "improves"),
    [
        ("min", True, 1.0, 2.0, True),
        ("min", True, 2.0, 2.0, True),
        ("min", False, 2.0, 2.0, False),
        ("max", True, 1.0, 2.0, False),
        ("max", False, 3.0, 2.0, True),
        ("max", True, math.nan, None, False),
        ("min", True, 5.0, None, True),
    ],
)
def test_criterion(goal: str, ties: bool, value: float, best: float | None, improves: bool) -> None:
    assert Criterion(metric="m", goal=goal, ties=ties).improves(value, best=best) is improves


def test_plan_in_epochs_looks_after_each() -> None:
    plan = Plan.in_epochs(3, updates_per_epoch=10, selects=Criterion(metric="mse"))
    assert [update for update in range(1, 31) if plan.is_look_due(update)] == [10, 20, 30]
    assert plan.moment(10) == Moment(10, 1)
    assert plan.watches.metric == "mse"


def test_the_last_update_is_looked_at() -> None:
    plan = Plan(updates_per_epoch=4, max_updates=25, evaluate_every=10, selects=Criterion(metric="mse"))
    assert [update for update in range(1, 26) if plan.is_look_due(update)] == [10, 20, 25]


def test_every_fault_is_reported() -> None:
    with pytest.raises(
        ConfigError, match=r"updates_per_epoch .* got 0; patience .* got 0; max_updates .* got -1"
    ):
        Plan(
            updates_per_epoch=0, max_updates=-1, evaluate_every=1, selects=Criterion(metric="mse"), patience=0
        )
