"""What `aaren bench scan` should reach, and whether a record did: wanted, measured, met or missed.

Judges records only. All targets are ratios within one run; a record without the cells that a target needs
leaves a gap.
"""

from dataclasses import replace
from typing import NamedTuple

from aaren.bench.record import BenchRecord, Row, number
from aaren.bench.scan import needed_bytes, shape_of
from aaren.bench.scan_contenders import FORWARD, FORWARD_BACKWARD
from aaren.bench.target import Target, are_noisy, at_least, at_most, within

LINEAR_WITHIN = 1.2


class Ratio(NamedTuple):
    """A ratio of two measurements and whether to trust it."""

    value: float
    is_noisy: bool = False


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record by every target of this benchmark."""
    found: list[Target] = []
    for length in (1024, 8192):
        kernel = _times(record, "kernel", "copy", FORWARD, length)
        found.append(_at_most("kernel forward / copy of the values", length, kernel, 1.5))
        both = _times(record, "kernel", "copy", FORWARD_BACKWARD, length)
        found.append(_at_most("kernel forward+backward / copy", length, both, 7.0, wish=5.0))
    for length, least in ((1024, 20.0), (8192, 40.0)):
        paper = _times(record, "hillis_steele", "fused", FORWARD_BACKWARD, length)
        found.append(_at_least("paper's scan (hillis_steele) / fused", length, paper, least))
    for length, least in ((1024, 30.0), (8192, 120.0)):
        sdpa = _times(record, "sdpa", "fused", FORWARD_BACKWARD, length)
        found.append(_at_least("causal SDPA / fused", length, sdpa, least))
    for length in (1024, 8192):
        found.append(
            _at_most("fused peak extra memory / what must exist", length, _memory(record, length), 1.4)
        )
    found.append(_linear(record, "fused", "peak extra memory of fused", "peak_extra_bytes"))
    found.append(_linear(record, "kernel", "time of the kernels", "median_seconds"))
    found.append(_linear(record, "fused", "time of fused through autograd", "median_seconds"))
    return found


def _row(record: BenchRecord, contender: str, direction: str, length: int) -> Row | None:
    row = record.find(contender=contender, direction=direction, length=length)
    return None if row is None or row["skipped"] is not None else row


def _times(record: BenchRecord, slow: str, fast: str, direction: str, length: int) -> Ratio | None:
    above, below = _row(record, slow, direction, length), _row(record, fast, direction, length)
    if above is None or below is None:
        return None
    value = number(above, "median_seconds") / number(below, "median_seconds")
    return Ratio(value, is_noisy=are_noisy(above, below))


def _memory(record: BenchRecord, length: int) -> Ratio | None:
    row = _row(record, "fused", FORWARD_BACKWARD, length)
    if row is None or row["peak_extra_bytes"] is None:
        return None
    return Ratio(number(row, "peak_extra_bytes") / needed_bytes(shape_of(row)))


def _linear(record: BenchRecord, contender: str, what: str, field: str) -> Target:
    """Compare the cost per item at the longest length with that at 1,024: linear if they are nearly equal."""
    rows = [
        row
        for row in record.measurements
        if row["contender"] == contender
        and row["direction"] == FORWARD_BACKWARD
        and row["skipped"] is None
        and row[field] is not None
        and number(row, "length") >= 1024
    ]
    by_length = {int(number(row, "length")): row for row in rows}
    longest = max(by_length, default=0)
    ratio, is_noisy = None, False
    if longest > 1024 and 1024 in by_length:
        last, first = by_length[longest], by_length[1024]
        ratio = _per_item(last, field) / _per_item(first, field)
        is_noisy = field == "median_seconds" and are_noisy(last, first)
    reach = f"from 1,024 to {longest:,}" if ratio is not None else "from 1,024 on"
    name = f"{what} linear, {reach}: per item, last / first"
    return replace(within(name, ratio, 1 / LINEAR_WITHIN, LINEAR_WITHIN), is_noisy=is_noisy)


def _per_item(row: Row, field: str) -> float:
    return number(row, field) / (number(row, "batch") * number(row, "length"))


def _at_most(name: str, length: int, ratio: Ratio | None, limit: float, wish: float | None = None) -> Target:
    target = at_most(f"{name}, t = {length:,}", ratio and ratio.value, limit, wish=wish)
    return replace(target, is_noisy=ratio is not None and ratio.is_noisy)


def _at_least(name: str, length: int, ratio: Ratio | None, limit: float) -> Target:
    target = at_least(f"{name}, t = {length:,}", ratio and ratio.value, limit)
    return replace(target, is_noisy=ratio is not None and ratio.is_noisy)
