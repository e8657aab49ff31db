"""What one action costs: the record, its tables and its targets, judged on made-up times."""

from dataclasses import replace
from pathlib import Path

import pytest

import policy
from aaren.bench.record import BenchRecord, Row


@pytest.fixture(scope="module")
def record() -> BenchRecord:
    return policy.BENCHMARK.record(replace(policy.QUICK, budget_seconds=0.05))


def made_up(**seconds: float) -> BenchRecord:
    """Return a record of the whole run in which everything takes 1 ms but what is given."""
    rows: list[Row] = []
    for name in policy.CONTENDERS:
        for step in (policy.EARLY, policy.LATE):
            time = seconds.get(f"{name}|{step}", 1e-3)
            quartiles = {"lower_quartile_seconds": time, "upper_quartile_seconds": time}
            row: Row = {"contender": name, "step": step, "median_seconds": time, **quartiles, "repeats": 9}
            rows.append({**row, "state_bytes": 16_700})
    sizes = {"width": 512, "num_heads": 4, "num_layers": 4}
    return BenchRecord(kind="policy", command="made up", settings=sizes, measurements=rows)


def test_every_context_is_measured_at_every_step(record: BenchRecord) -> None:
    found = {(row["contender"], row["step"]) for row in record.measurements}
    assert found == {(name, step) for name in policy.CONTENDERS for step in (10, 60)}
    early, late = (record.find(contender=policy.CARRIED, step=step) for step in (10, 60))
    assert early["state_bytes"] == late["state_bytes"]
    early, late = (record.find(contender="Transformer, cache of all", step=step) for step in (10, 60))
    assert early["state_bytes"] < late["state_bytes"]


def test_a_quick_run_judges_nothing(record: BenchRecord) -> None:
    assert [target.verdict for target in policy.targets(record)][:3] == ["not run"] * 3
    assert len(policy.tables(record)) == 3


def test_targets_are_judged() -> None:
    slow = {f"{name}|{policy.LATE}": 3e-3 for name in policy.WINDOWS}
    assert {target.verdict for target in policy.targets(made_up(**slow))} == {"met"}
    late = {**slow, f"{policy.CARRIED}|{policy.LATE}": 1.2e-3}
    assert [target.verdict for target in policy.targets(made_up(**late))] == ["met", "met", "missed", "met"]
    assert policy.targets(made_up())[0].verdict == "missed"
    noisy = made_up(**slow)
    noisy.find(contender=policy.CARRIED, step=policy.EARLY)["upper_quartile_seconds"] = 2e-3
    verdicts = [target.verdict for target in policy.targets(noisy)]
    assert verdicts == ["met", "met", "void: noisy", "met"]


def test_the_figure_is_drawn(record: BenchRecord, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert all(path.stat().st_size > 1000 for path in policy.draw(record, tmp_path / "policy"))
