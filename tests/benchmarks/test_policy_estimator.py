"""The table of policies: what it judges, and by which numbers."""

import pytest

import policy_estimator
from harness import run
from records import BenchRecord, Row


def made_up(policy: float, clone: float, *, environments: tuple[str, ...]) -> BenchRecord:
    rows: list[Row] = []
    for environment in environments:
        for seed in range(2):
            common: Row = {"environment": environment, "seed": seed}
            for contender, value in ((policy_estimator.POLICY, policy), (policy_estimator.CLONE, clone)):
                episodes = {f"return_{place}": value + place for place in range(3)}
                rows.append({**common, "contender": contender, "return": value, **episodes})
            cost = {"fit_cpu_seconds": 20.0, "state_bytes": 649.0, "action_seconds": 1e-5}
            rows[-2] |= {**cost, "updates": 300, "target_return": 500.0}
            recorded = {"contender": policy_estimator.RECORDED, "return": 100.0, "best_third": 200.0}
            rows.append({**common, **recorded})
    return BenchRecord(kind="policy-estimator", command="made up", settings={}, measurements=rows)


@pytest.mark.parametrize(("policy", "clone", "winner"), [(500, 400, "AarenPolicy"), (400, 499, "the clone")])
def test_a_winner_is_named_beyond_two_standard_errors(policy: float, clone: float, winner: str) -> None:
    returns, _ = policy_estimator.tables(made_up(policy, clone, environments=("CartPole-v1",)))
    assert returns.splitlines()[4].endswith(f"{winner} |")
    equal, _ = policy_estimator.tables(made_up(500.0, 500.0, environments=("CartPole-v1",)))
    assert equal.splitlines()[4].endswith("neither |")


def test_a_quick_run_has_every_row() -> None:
    pytest.importorskip("gymnasium")
    record = run(policy_estimator.BENCHMARK, policy_estimator.BENCHMARK.quick)
    assert [row["contender"] for row in record.measurements] == list(policy_estimator.CONTENDERS)
    assert len(policy_estimator.tables(record)) == 2
