"""Ten minutes of a durable pool; here two seconds, and all of them in the long run."""

import pytest

import pool_soak
from aaren.bench import memory


@pytest.mark.skipif(not memory.can_measure(), reason="needs /proc")
def test_a_short_soak_is_measured_and_not_judged() -> None:
    record = pool_soak.BENCHMARK.record(pool_soak.QUICK)
    assert [row["streams"] <= 2_000 for row in record.measurements] == [True, True]
    assert sum(int(str(row["items"])) for row in record.measurements) > 0
    assert [target.is_met for target in pool_soak.targets(record)] == [None, None]
    assert len(pool_soak.tables(record)) == 2


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not memory.can_measure(), reason="needs /proc")
def test_memory_stays_over_ten_minutes() -> None:
    _, target = pool_soak.targets(pool_soak.BENCHMARK.record(pool_soak.SoakSettings()))
    assert target.is_met, target
