"""What the rest of a grid costs: measured where it was run, estimated by updates where it was not."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from aaren.engine.record import RunRecord
from aaren.engine.run import blank_record
from aaren.lab.cost import Costs, dataset_costs
from aaren.lab.plan import GridStatus, PlannedRun

Planned = Callable[..., PlannedRun]


def record(run: PlannedRun, seconds: float, updates: int = 10, profile: str = "custom") -> RunRecord:
    blank = blank_record(run.config, command="")
    return replace(
        blank, status="finished", profile=profile, updates=updates, seconds={"training": 99.0, "cpu": seconds}
    )


def test_the_same_cell_is_measured(planned: Planned) -> None:
    costs = Costs([record(planned(0), 8.0), record(planned(1), 12.0)])
    assert costs.of(planned(2)) == (10.0, "measured")


def test_other_cells_are_estimated_by_updates_and_by_another_profile(planned: Planned) -> None:
    known, other = planned(0), planned(0, dataset="curve", epochs=3)
    costs = Costs([record(known, 20.0)])
    seconds, basis = costs.of(other)
    assert (seconds % 2.0, seconds > 0.0, basis) == (0.0, True, "estimated")  # 2 s for every planned update
    assert costs.of(other, has_data=False) == (0.0, "unknown")
    # At another profile an update of the other dataset costs three times as much.
    more = [record(known, 5.0, profile="cpu"), record(other, 15.0, profile="cpu")]
    assert Costs([record(known, 20.0), *more]).of(other) == (pytest.approx(3.0 * seconds), "estimated")
    assert Costs(more).of(other) == (0.0, "unknown")


def test_a_grid_is_summed_up_by_dataset(planned: Planned) -> None:
    runs = [planned(0), planned(1), planned(2)]
    status = GridStatus(finished=[runs[0]], waiting=runs[1:2], without_data={"line": [runs[2]]})
    (one,) = dataset_costs(runs, status, [record(runs[0], 36.0)])
    assert (one.runs, one.done, one.hours) == (3, 1, pytest.approx(0.02))
    assert one.basis == "measured, 1 without data"
