"""The table of policies: what it judges, and by which numbers."""

import pytest

import policy_estimator
from aaren.bench.record import BenchRecord, Row


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


def test_targets_are_judged() -> None:
    both = policy_estimator.TUNED_ON
    good = policy_estimator.targets(made_up(500.0, 499.0, environments=both))
    assert [target.verdict for target in good] == ["met"] * 4
    bad = policy_estimator.targets(made_up(400.0, 499.0, environments=both))
    assert [target.verdict for target in bad] == ["missed", "missed", "missed", "met"]
    unknown = policy_estimator.targets(made_up(1.0, 0.0, environments=policy_estimator.KEPT_ASIDE))
    assert [target.verdict for target in unknown] == ["not run"] * 4


def test_a_quick_run_has_every_row() -> None:
    pytest.importorskip("gymnasium")
    record = policy_estimator.BENCHMARK.record(policy_estimator.QUICK)
    assert [row["contender"] for row in record.measurements] == list(policy_estimator.CONTENDERS)
    assert len(policy_estimator.tables(record)) == 3
