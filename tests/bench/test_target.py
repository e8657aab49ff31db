from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.bench import scan, stream_view, train
from aaren.bench.record import BenchRecord, number, read_record
from aaren.bench.target import Ratio, Target, at_least, at_most, targets_table, within
from aaren.table import to_markdown


def test_limits_belong_to_what_is_promised() -> None:
    judged = [at_least("a", 2.0, 2.0), at_most("b", 2.0, 2.0), within("c", 2.0, 1.0, 2.0)]
    assert [target.verdict for target in judged] == ["met"] * 3
    judged = [at_least("a", 1.99, 2.0), at_most("b", 2.01, 2.0), within("c", 2.01, 1.0, 2.0)]
    assert [target.verdict for target in judged] == ["missed"] * 3


def test_a_ratio_of_scattered_times_says_so() -> None:
    assert at_least("a", Ratio(1.0, "noisy"), 1.0).verdict == "void: noisy"
    assert at_least("a", None, 1.0).verdict == "not run"  # nothing to distrust


def test_table_stresses_what_was_missed_and_counts_what_was_not_measured() -> None:
    judged = [at_least("slow", 1.0, 2.0), at_least("absent", None, 2.0), at_least("fast", 3.0, 2.0)]
    table = targets_table(judged, whole_run="aaren bench it")
    assert [row[0].text for row in table.rows] == ["slow", "fast"]
    assert [row[0].text for row in table.rows if row[0].is_bold] == ["slow"]
    assert "| **1.00x** | **missed** |" in to_markdown(table)
    assert table.notes == ["1 of 3 targets need the whole run: aaren bench it"]
    assert targets_table(judged[:1]).notes == []


def test_a_missed_target_of_a_noisy_measurement_is_void_and_not_stressed() -> None:
    noisy = Target(name="a", wanted="w", measured="117x", is_met=False, void="noisy")
    table = targets_table([noisy, Target(name="b", wanted="w", measured="2x", is_met=False)])
    assert [row[-1].text for row in table.rows] == ["void: noisy", "missed"]
    assert [row[0].text for row in table.rows if row[0].is_bold] == ["b"]


@pytest.mark.parametrize(
    ("kind", "judge", "fields"),
    [
        ("scan", scan.targets, "upper_quartile_seconds"),
        ("stream", stream_view.targets, "token_upper_quartile_seconds"),
        ("stream", stream_view.targets, "step_upper_quartile_seconds"),
        ("train", train.targets, "upper_quartile_seconds"),
    ],
)
def test_no_benchmark_judges_by_times_that_spread(
    kind: str, judge: Callable[[BenchRecord], list[Target]], fields: str
) -> None:
    record = read_record(Path(__file__).parents[2] / "results" / "bench" / f"{kind}.json", kind=kind)
    for row in record.measurements:  # quiet, whatever the machine was
        for name in [name for name in row if name.endswith("er_quartile_seconds")]:
            row[name] = row[name.replace("upper_quartile", "median").replace("lower_quartile", "median")]
    assert "void: noisy" not in [target.verdict for target in judge(record)]
    for row in record.measurements:
        if row.get(fields) is not None:
            row[fields] = 100.0 * number(row, fields)
    after = judge(record)
    void = [target for target in after if target.verdict == "void: noisy"]
    assert void
    assert not [target for target in void if "memory" in target.name or "bytes of state" in target.name]
