import json

import pytest

from aaren.engine.plan import Criterion, Plan
from aaren.engine.status import Look, RunStatus
from aaren.errors import ConfigError


def look(**validation: float) -> Look:
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


def test_patience_ends_after_so_many_looks_in_vain() -> None:
    status, course = RunStatus(), plan(selects=Criterion(metric="mse"), patience=3)
    for value in (2.0, 1.0, 1.5, 1.0, 1.2, 1.3):
        status.take(look(mse=value), course)
    assert not status.is_done  # the second 1.0 is a tie, which counts
    status.take(look(mse=1.1), course)
    assert (status.is_done, status.ended_by, status.best_look) == (True, "patience", 3)


def test_a_tie_need_not_count() -> None:
    status, course = RunStatus(), plan(selects=Criterion(metric="mse", ties=False), patience=1)
    status.take(look(mse=1.0), course)
    assert not status.take(look(mse=1.0), course)
    assert status.is_done


def test_one_metric_selects_and_another_stops() -> None:
    status = RunStatus()
    course = plan(selects=Criterion(metric="rmse"), stops=Criterion(metric="nll"), patience=2)
    for rmse, nll in ((5.0, 1.0), (4.0, 2.0), (3.0, 3.0)):
        status.take(look(rmse=rmse, nll=nll), course)
    assert status.is_done
    assert status.best["validation"] == {"rmse": 3.0, "nll": 3.0}


def test_higher_can_be_better() -> None:
    status, course = RunStatus(), plan(selects=Criterion(metric="accuracy", goal="max"))
    assert [status.take(look(accuracy=value), course) for value in (0.5, 0.4, 0.5)] == [True, False, True]


def test_nan_is_never_the_best() -> None:
    status, course = RunStatus(), plan(selects=Criterion(metric="mse"), patience=2)
    assert not status.take(look(mse=float("nan")), course)
    assert status.best is None
    status.take(look(mse=float("nan")), course)
    assert status.is_done


def test_a_metric_that_nobody_measures() -> None:
    with pytest.raises(
        ConfigError, match="selects or stops by 'mae', but the validation part gives only: mse"
    ):
        RunStatus().take(look(mse=1.0), plan(selects=Criterion(metric="mae")))


def test_json_and_back() -> None:
    status = RunStatus(update=7, loss_total=0.1 + 0.2)
    status.take(look(mse=1 / 3), plan(selects=Criterion(metric="mse")))
    assert RunStatus.from_json(json.loads(json.dumps(status.to_json()))) == status
