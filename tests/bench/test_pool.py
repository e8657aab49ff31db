"""`aaren bench pool`: its keys, its verdicts, and that it runs."""

from collections import Counter

import pytest

from aaren.bench.pool import QUICK, draw_keys, measure, tables, targets
from aaren.bench.record import BenchRecord


def test_zipf_has_a_favourite_and_uniform_has_none() -> None:
    even, zipf = (Counter(draw_keys(how, 1000, 5000)) for how in ("uniform", "zipf"))
    assert even.most_common(1)[0][1] < 30
    assert zipf.most_common(1)[0][0] == "key 0"
    assert zipf.most_common(1)[0][1] > 500


def test_small_runs_are_not_judged_by_the_targets_of_the_whole_one() -> None:
    row = {
        "what": "pool",
        "engine": "native",
        "keys": "zipf",
        "is_durable": False,
        "items_per_second": 60_000.0,
    }
    whole, small = (
        BenchRecord(
            kind="pool", command="", settings={"keys": keys, "capacity": 50_000}, measurements=[row]
        )
        for keys in (100_000, 2_000)
    )  # fmt: skip
    assert [target.verdict for target in targets(whole) if target.is_met is not None] == ["met"]
    assert all(target.is_met is None for target in targets(small))


@pytest.mark.long
def test_it_runs() -> None:
    record = measure(QUICK)
    found = {row["what"] for row in record.measurements} - {"spark"}
    assert found == {"pool", "events", "lines", "requests", "batches", "memory"}
    assert len(tables(record)) == 3
