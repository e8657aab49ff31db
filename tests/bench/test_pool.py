"""`aaren bench pool`: its keys, its verdicts, and that it runs."""

from collections import Counter
from dataclasses import replace

import pytest

from aaren.bench.pool import BENCHMARK, COMMAND, QUICK, draw_keys, merge, tables, targets
from aaren.bench.record import BenchRecord
from aaren.errors import ConfigError


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


def part(name: str, rate: float, others: float = 0.0) -> BenchRecord:
    row = {"part": name, "what": name, "items_per_second": rate, "others_share": others}
    return BenchRecord(kind="pool", command=COMMAND, settings={"keys": 9}, measurements=[row])


def test_a_part_measured_again_replaces_its_rows_alone() -> None:
    both = merge(part("torch", 1.0, others=0.9), part("native", 2.0))
    assert [row["part"] for row in both.measurements] == ["native", "torch"]
    assert (both.command, both.is_busy) == (COMMAND, True)
    again = merge(both, part("torch", 3.0))
    assert [row["items_per_second"] for row in again.measurements] == [2.0, 3.0]
    assert not again.is_busy


def test_parts_of_other_machines_or_sizes_are_not_mixed() -> None:
    other = replace(part("native", 1.0), settings={"keys": 10})
    with pytest.raises(ConfigError, match="other settings: its parts cannot stand beside these"):
        merge(other, part("torch", 1.0))
    with pytest.raises(ConfigError, match="unknown --part 'naive'; did you mean 'native'"):
        replace(QUICK, parts=("naive",))


def test_a_part_of_a_busy_machine_is_void_by_itself() -> None:
    facts = {"engine": "native", "is_durable": False, "items_per_second": 60_000.0, "what": "pool"}
    rows = [
        {**facts, "keys": "uniform", "part": "native", "others_share": 0.9},
        {**facts, "keys": "zipf", "part": "native", "others_share": 0.0},
    ]
    record = BenchRecord(
        kind="pool", command="", settings={"keys": 100_000, "capacity": 50_000}, measurements=rows,
        other_work={"share_during": 0.9},
    )  # fmt: skip
    assert [target.verdict for target in targets(record)[:2]] == ["void: busy machine", "met"]


@pytest.mark.long
def test_it_runs() -> None:
    record = BENCHMARK.record(QUICK)
    found = {row["what"] for row in record.measurements} - {"spark"}
    assert found == {"pool", "events", "lines", "requests", "batches", "memory"}
    assert len(tables(record)) == 3
