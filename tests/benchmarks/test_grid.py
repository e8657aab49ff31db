import pytest

import grid
from aaren.bench.record import BenchRecord, number


@pytest.mark.long
def test_a_short_measurement_is_shown_and_not_judged() -> None:
    steps: list[int] = []
    record = grid.BENCHMARK.record(
        grid.GridSettings(runs=2, seconds=0.05),
        on_step=lambda done, _total, _what: steps.append(done),
    )
    assert [row["workers"] for row in record.measurements] == [1, 2]
    for row in record.measurements:
        assert 0.0 < number(row, "run_seconds") < number(row, "workers") * number(row, "wall_seconds")
        assert 0.0 < number(row, "scheduling_share") < 1.0
        assert 0.0 <= number(row, "idle_share") < 1.0
    assert record.measurements[0]["idle_share"] == 0.0  # a worker alone is the last one
    assert steps[-1] == 4
    assert grid.targets(record) == []
    assert [table.title for table in grid.tables(record)] == ["2 equal runs of about 0.05 s"]


def test_targets() -> None:
    def row(workers: int, wall: float, share: float) -> dict[str, float]:
        return {
            "workers": workers,
            "wall_seconds": wall,
            "run_seconds": 480.0,
            "start_seconds": 2.0,
            "idle_share": 0.01,
            "scheduling_share": share,
        }

    record = BenchRecord(
        kind="grid",
        command="aaren bench grid",
        settings={"runs": 16, "seconds": 30.0},
        measurements=[row(1, 484.0, 0.008), row(2, 250.0, 0.04)],
    )
    assert [(target.measured, target.verdict) for target in grid.targets(record)] == [
        ("0.80%", "met"),
        ("4.00%", "missed"),
        ("1.94x", "met"),
    ]
    assert len(grid.tables(record)) == 2
