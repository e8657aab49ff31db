import pytest

from aaren.bench.record import BenchRecord, Row
from aaren.bench.scan import _empty_row, needed_bytes, targets
from aaren.bench.scan_contenders import FORWARD, FORWARD_BACKWARD, Shape

SHAPES = {1024: Shape(8, 1024, 8, 64), 8192: Shape(2, 8192, 8, 64), 65536: Shape(2, 65536, 8, 64)}


def row(
    name: str, length: int, seconds: float, direction: str = FORWARD_BACKWARD, extra: float | None = None
) -> Row:
    made = _empty_row(name, SHAPES[length], direction)
    made["lower_quartile_seconds"] = made["upper_quartile_seconds"] = seconds
    return {**made, "median_seconds": seconds, "peak_extra_bytes": None if extra is None else int(extra)}


def record(*rows: Row) -> BenchRecord:
    return BenchRecord(kind="scan", command="aaren bench scan", settings={}, measurements=list(rows))


def verdicts(made: BenchRecord) -> dict[str, str]:
    return {target.name: target.verdict for target in targets(made)}


def test_every_target_of_an_empty_record_is_a_gap() -> None:
    assert set(verdicts(record()).values()) == {"not run"}


def test_a_skipped_cell_is_a_gap() -> None:
    skipped = {**row("paper_scan", 1024, 1.0), "median_seconds": None, "skipped": "needs about 9 GB"}
    found = verdicts(record(skipped, row("fused", 1024, 0.01)))
    assert found["paper's scan (float32) / fused, t = 1,024"] == "not run"


@pytest.mark.parametrize(("kernel_seconds", "verdict"), [(1.5, "met"), (1.51, "missed")])
def test_kernel_forward_is_held_to_the_copy(kernel_seconds: float, verdict: str) -> None:
    made = record(row("copy", 1024, 1.0, FORWARD), row("kernel", 1024, kernel_seconds, FORWARD))
    assert verdicts(made)["kernel forward / copy of the values, t = 1,024"] == verdict


@pytest.mark.parametrize(
    ("name", "length", "least"),
    [("paper_scan", 1024, 30), ("paper_scan", 8192, 100), ("sdpa", 1024, 70), ("sdpa", 8192, 300)],
)
def test_peers_must_be_slower_by_far(name: str, length: int, least: int) -> None:
    fused = row("fused", length, 1.0)
    enough, little = record(fused, row(name, length, least)), record(fused, row(name, length, 0.99 * least))
    place = f"at least {least}x"
    assert [target.verdict for target in targets(enough) if target.is_met is not None] == ["met"]
    assert [(target.verdict, target.wanted) for target in targets(little) if target.is_met is not None] == [
        ("missed", place)
    ]


def test_memory_is_held_to_what_must_exist() -> None:
    needed = needed_bytes(SHAPES[1024])
    name = "fused peak extra memory / what must exist, t = 1,024"
    assert verdicts(record(row("fused", 1024, 1.0, extra=1.39 * needed)))[name] == "met"
    assert verdicts(record(row("fused", 1024, 1.0, extra=1.41 * needed)))[name] == "missed"


def test_linear_means_equal_cost_per_item_whatever_the_batch() -> None:
    # 8 x 1,024 items in 1 s; 2 x 65,536 are sixteen times as many.
    linear = record(row("kernel", 1024, 1.0), row("kernel", 8192, 9.0), row("kernel", 65536, 17.0))
    name = "time of the kernels linear, from 1,024 to 65,536: per item, last / first"
    assert verdicts(linear)[name] == "met"
    assert verdicts(record(row("kernel", 1024, 1.0), row("kernel", 65536, 20.0)))[name] == "missed"


def test_a_ratio_of_scattered_times_says_so() -> None:
    copy = {**row("copy", 1024, 1.0, FORWARD), "lower_quartile_seconds": 0.5}
    found = verdicts(record(copy, row("kernel", 1024, 1.0, FORWARD)))
    assert found["kernel forward / copy of the values, t = 1,024"] == "void: noisy"
