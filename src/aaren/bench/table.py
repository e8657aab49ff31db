"""Tables for the terminal and for pages, numbers with their units, and targets: what should be reached.

A target is met, missed, not run, or void: no verdict is given on times of a busy machine or on times whose
quartiles lie far apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from aaren.bench.record import BenchRecord, Row, number

NOISY_SPREAD = 1.5  # upper over lower quartile: beyond it other work on the machine decides the ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A titled table of finished text; the first column is left-aligned, the others right-aligned.

    Without rows, its note stands in the table's place.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    bold_rows: frozenset[str] = frozenset()  # first cells of the rows to stress
    note: str = ""  # one line below

    def to_rich(self) -> RenderableType:
        """Return the table for the terminal."""
        if self.note and not self.rows:
            return Text(self.note)
        table = RichTable(title=self.title, title_justify="left", title_style="bold", header_style="dim")
        for index, column in enumerate(self.columns):
            # Text right-aligned and never cut: a number without its end is a wrong number.
            table.add_column(
                column, justify="left" if index == 0 else "right", overflow="fold", no_wrap=index == 0
            )
        for row in self.rows:
            table.add_row(*row, style="bold" if row[0] in self.bold_rows else None)
        return Group(table, Text(self.note)) if self.note else table

    def to_markdown(self) -> str:
        """Return the table for a page, its title as bold text above."""
        if self.note and not self.rows:
            return f"{self.note}\n"
        lines = [f"**{self.title}**", "", _markdown_row(self.columns)]
        lines.append(_markdown_row([":--", *["--:"] * (len(self.columns) - 1)]))
        for row in self.rows:
            cells = [f"**{cell}**" if cell and row[0] in self.bold_rows else cell for cell in row]
            lines.append(_markdown_row(cells))
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines) + "\n"


def format_seconds(seconds: float) -> str:
    """Write a time with three digits and its unit.

    >>> format_seconds(0.00123), format_seconds(12.5), format_seconds(4.2e-5)
    ('1.23 ms', '12.5 s', '42.0 µs')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{_three_digits(seconds / 1e-6)} µs"


def format_bytes(count: float) -> str:
    """Write a size with three digits and its decimal unit.

    >>> format_bytes(34_300_000), format_bytes(1152), format_bytes(0)
    ('34.3 MB', '1.15 kB', '0 B')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{_three_digits(count / size)} {unit}"
    return f"{count:.0f} B"


def format_ratio(ratio: float) -> str:
    """Write how many times as much.

    >>> format_ratio(1.0), format_ratio(23.456), format_ratio(170.2)
    ('1.00x', '23.5x', '170x')
    """
    return f"{_three_digits(ratio)}x"


def format_quartiles(row: Row, prefix: str = "") -> str:
    """Write the quartiles of a measurement.

    >>> format_quartiles({"lower_quartile_seconds": 0.5, "upper_quartile_seconds": 2.0})
    '500 ms - 2.00 s'
    """
    low, high = (number(row, f"{prefix}{side}_quartile_seconds") for side in ("lower", "upper"))
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
    """Hold a measured value to what was wanted; None was not measured.

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


def at_most(name: str, ratio: Ratio | float | None, limit: float, *, wish: float | None = None) -> Target:
    """Want a ratio of at most so much, perhaps with a wish beyond it.

    >>> target = at_most("kernel / copy", 6.1, 7.0, wish=5.0)
    >>> target.wanted, target.measured, target.verdict
    ('at most 7x (5x wished)', '6.10x', 'met')
    """
    wanted = f"at most {limit:g}x" + (f" ({wish:g}x wished)" if wish is not None else "")
    return judge(name, wanted, ratio, lambda found: found <= limit, format_ratio)


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
    return Table(
        title=title,
        columns=("target", "wanted", "measured", "verdict"),
        rows=[(target.name, target.wanted, target.measured or "", target.verdict) for target in measured],
        bold_rows=frozenset(target.name for target in measured if target.verdict == "missed"),
        note=note,
    )


def _three_digits(number: float) -> str:
    if number >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"
