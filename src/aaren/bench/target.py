"""Targets of a benchmark: ratios within one run, each met, missed, not run, or void.

No verdict is given on times of a busy machine or on times whose quartiles lie far apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aaren.bench.record import BenchRecord, Row, number
from aaren.table import Table, format_ratio, format_seconds, text_table

NOISY_SPREAD = 1.5  # upper over lower quartile: beyond it other work on the machine decides the ratio


def format_quartiles(row: Row) -> str:
    """Write the quartiles of a measurement.

    >>> format_quartiles({"lower_quartile_seconds": 0.5, "upper_quartile_seconds": 2.0})
    '500 ms - 2.00 s'
    """
    low, high = (number(row, f"{side}_quartile_seconds") for side in ("lower", "upper"))
    return f"{format_seconds(low)} - {format_seconds(high)}"


class Ratio(NamedTuple):
    """How many times as much, and why that says nothing, if so."""

    value: float
    void: str = ""


def time_ratio(
    record: BenchRecord,
    slow: Row | None,
    fast: Row | None,
    *,
    field: str = "median_seconds",
    prefix: str | None = None,
) -> Ratio | None:
    """Return how many times longer one measurement took than another; None if one is missing.

    Args:
        record: Which they are of.
        slow: What should take longer.
        fast: What it is compared with.
        field: The time to compare.
        prefix: Of the quartiles that tell whether to trust it; default: what stands before `median_seconds`.
    """
    if slow is None or fast is None:
        return None
    quartiles = field.removesuffix("median_seconds") if prefix is None else prefix
    return Ratio(number(slow, field) / number(fast, field), doubt(record, slow, fast, prefix=quartiles))


def doubt(record: BenchRecord, *rows: Row, prefix: str = "") -> str:
    """Say why times of a record cannot be judged, busy machine or wide spread; "" if they can.

    >>> record = BenchRecord(kind="scan", command="", settings={}, measurements=[])
    >>> doubt(record, {"lower_quartile_seconds": 1.0, "upper_quartile_seconds": 1.6}), doubt(record, {})
    ('noisy', '')
    """
    if record.is_busy:
        return "busy machine"
    lower, upper = f"{prefix}lower_quartile_seconds", f"{prefix}upper_quartile_seconds"
    is_noisy = any(
        number(row, upper) > NOISY_SPREAD * number(row, lower)
        for row in rows
        if row.get(lower) is not None and row.get(upper) is not None
    )
    return "noisy" if is_noisy else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What should be reached and what was."""

    name: str
    wanted: str
    measured: str | None  # None: the record lacks it
    is_met: bool | None
    void: str = ""  # why there is no verdict

    @property
    def verdict(self) -> str:
        """Return the word for the table."""
        if self.is_met is None:
            return "not run"
        return f"void: {self.void}" if self.void else "met" if self.is_met else "missed"


def judge(
    name: str,
    wanted: str,
    value: Ratio | float | None,
    is_enough: Callable[[float], bool],
    write: Callable[[float], str],
) -> Target:
    """Compare a measured value with its target; None was not measured.

    Args:
        name: Of the target.
        wanted: What should be reached, in words.
        value: What was measured.
        is_enough: Whether a value reaches it.
        write: How to write a value.
    """
    if value is None:
        return Target(name=name, wanted=wanted, measured=None, is_met=None)
    found = value if isinstance(value, Ratio) else Ratio(value)
    return Target(
        name=name,
        wanted=wanted,
        measured=write(found.value),
        is_met=is_enough(found.value),
        void=found.void,
    )


def at_least(name: str, ratio: Ratio | float | None, limit: float) -> Target:
    """Want a ratio of at least so much.

    >>> at_least("Transformer / Aaren", 1.8, 1.7).verdict, at_least("Transformer / Aaren", None, 4).verdict
    ('met', 'not run')
    """
    return judge(name, f"at least {limit:g}x", ratio, lambda found: found >= limit, format_ratio)


def at_most(name: str, ratio: Ratio | float | None, limit: float) -> Target:
    """Want a ratio of at most so much.

    >>> target = at_most("kernel / copy", 6.1, 7.0)
    >>> target.wanted, target.measured, target.verdict
    ('at most 7x', '6.10x', 'met')
    """
    return judge(name, f"at most {limit:g}x", ratio, lambda found: found <= limit, format_ratio)


def within(name: str, ratio: Ratio | float | None, low: float, high: float) -> Target:
    """Want a ratio between two limits.

    >>> within("late / early", 1.3, 0.9, 1.1).verdict
    'missed'
    """
    wanted = f"{low:.2f}x to {high:.2f}x"
    return judge(name, wanted, ratio, lambda found: low <= found <= high, format_ratio)


def targets_table(
    targets: Sequence[Target], *, title: str = "Targets (ratios within this run)", whole_run: str = ""
) -> Table:
    """Return the section of targets; those missed are stressed, and those not measured are only counted.

    Args:
        targets: What should be reached.
        title: Of the section.
        whole_run: The command that measures them all.
    """
    measured = [target for target in targets if target.is_met is not None]
    absent = len(targets) - len(measured)
    note = f"{absent} of {len(targets)} targets need the whole run: {whole_run}" if absent else ""
    return text_table(
        title,
        ("target", "wanted", "measured", "verdict"),
        [(target.name, target.wanted, target.measured or "", target.verdict) for target in measured],
        bold_rows=[target.name for target in measured if target.verdict == "missed"],
        note=note,
    )
