import json
import math

import pytest

from aaren.engine.plan import Criterion, Evaluation, Moment, Plan, RunStatus, constant, halving, warm_up
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
    assert [update for update in range(1, 31) if plan.is_evaluation_due(update)] == [10, 20, 30]
    assert plan.moment(10) == Moment(10, 1)
    assert plan.watches.metric == "mse"


def test_the_last_update_is_looked_at() -> None:
    plan = Plan(updates_per_epoch=4, max_updates=25, evaluate_every=10, selects=Criterion(metric="mse"))
    assert [update for update in range(1, 26) if plan.is_evaluation_due(update)] == [10, 20, 25]


def test_every_fault_is_reported() -> None:
    with pytest.raises(
        ConfigError, match=r"updates_per_epoch .* got 0; patience .* got 0; max_updates .* got -1"
    ):
        Plan(
            updates_per_epoch=0, max_updates=-1, evaluate_every=1, selects=Criterion(metric="mse"), patience=0
        )


def evaluation(**validation: float) -> Evaluation:
    return {
        "update": 1,
        "epoch": 1,
        "loss": 0.0,
        "learning_rate_factor": 1.0,
        "seconds": 0.0,
        "is_best": False,
        "validation": validation,
    }


def plan(**choices: object) -> Plan:
    return Plan.in_epochs(100, updates_per_epoch=1, **choices)


def test_patience_ends_after_so_many_evaluations_without_improvement() -> None:
    status, course = RunStatus(), plan(selects=Criterion(metric="mse"), patience=3)
    for value in (2.0, 1.0, 1.5, 1.0, 1.2, 1.3):
        status.add(evaluation(mse=value), course)
    assert not status.is_done  # the second 1.0 is a tie, which counts
    status.add(evaluation(mse=1.1), course)
    assert (status.is_done, status.ended_by, status.best_index) == (True, "patience", 3)


def test_a_tie_need_not_count() -> None:
    status, course = RunStatus(), plan(selects=Criterion(metric="mse", ties=False), patience=1)
    status.add(evaluation(mse=1.0), course)
    assert not status.add(evaluation(mse=1.0), course)
    assert status.is_done


def test_one_metric_selects_and_another_stops() -> None:
    status = RunStatus()
    course = plan(selects=Criterion(metric="rmse"), stops=Criterion(metric="nll"), patience=2)
    for rmse, nll in ((5.0, 1.0), (4.0, 2.0), (3.0, 3.0)):
        status.add(evaluation(rmse=rmse, nll=nll), course)
    assert status.is_done
    assert status.best["validation"] == {"rmse": 3.0, "nll": 3.0}


def test_higher_can_be_better() -> None:
    status, course = RunStatus(), plan(selects=Criterion(metric="accuracy", goal="max"))
    assert [status.add(evaluation(accuracy=value), course) for value in (0.5, 0.4, 0.5)] == [
        True,
        False,
        True,
    ]


def test_nan_is_never_the_best() -> None:
    status, course = RunStatus(), plan(selects=Criterion(metric="mse"), patience=2)
    assert not status.add(evaluation(mse=float("nan")), course)
    assert status.best is None
    status.add(evaluation(mse=float("nan")), course)
    assert status.is_done


def test_a_metric_that_nobody_measures() -> None:
    with pytest.raises(
        ConfigError, match="selects or stops by 'mae', but the validation part gives only: mse"
    ):
        RunStatus().add(evaluation(mse=1.0), plan(selects=Criterion(metric="mae")))


def test_json_and_back() -> None:
    status = RunStatus(update=7, loss_total=0.1 + 0.2)
    status.add(evaluation(mse=1 / 3), plan(selects=Criterion(metric="mse")))
    assert RunStatus.from_json(json.loads(json.dumps(status.to_json()))) == status


def test_without_a_metric_the_last_weights_are_kept_and_nothing_stops() -> None:
    status, course = RunStatus(), plan()
    assert [status.add(evaluation(), course) for _ in range(3)] == [True, True, True]
    assert (status.best_index, status.best_value, status.without_improvement) == (2, None, 0)
    with pytest.raises(ConfigError, match="patience needs a metric to watch: give selects or stops"):
        plan(patience=2)
