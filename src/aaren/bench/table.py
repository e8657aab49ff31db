"""Tables of text that go to the terminal or into a page alike, and how numbers with units are written.

Knows nothing of what was measured.

A promise about a measurement and what became of it: the section of targets that ends a report.

Knows nothing of what is measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from aaren.bench.record import Row, number


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
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
        table = Table(title=self.title, title_justify="left", title_style="bold", header_style="dim")
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


def _three_digits(number: float) -> str:
    if number >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"


NOISY_SPREAD = 1.5  # upper over lower quartile: beyond it other work on the machine decides the ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One promise and what became of it."""

    name: str
    wanted: str
    measured: str | None  # None: the record lacks a cell
    is_met: bool | None
    is_noisy: bool = False  # a time that it rests on spread too far to be trusted

    @property
    def verdict(self) -> str:
        """Return the word for the table; a measurement that is too noisy says neither met nor missed."""
        if self.is_noisy and self.is_met is not None:
            return "void: noisy"
        return {True: "met", False: "missed", None: "not run"}[self.is_met]


def are_noisy(*rows: Row | None, prefix: str = "") -> bool:
    """Tell whether the quartiles of any of these measurements lie too far apart to judge by them.

    >>> are_noisy({"lower_quartile_seconds": 1.0, "upper_quartile_seconds": 1.6}), are_noisy({})
    (True, False)
    """
    lower, upper = f"{prefix}lower_quartile_seconds", f"{prefix}upper_quartile_seconds"
    return any(
        number(row, upper) > NOISY_SPREAD * number(row, lower)
        for row in rows
        if row is not None and row.get(lower) is not None and row.get(upper) is not None
    )


def at_least(name: str, ratio: float | None, limit: float) -> Target:
    """Promise a ratio of at least so much; a ratio of None was not measured.

    >>> at_least("Transformer / Aaren", 1.8, 1.7).verdict, at_least("Transformer / Aaren", None, 4).verdict
    ('met', 'not run')
    """
    return _judged(name, f"at least {limit:g}x", ratio, lambda found: found >= limit)


def at_most(name: str, ratio: float | None, limit: float, *, wish: float | None = None) -> Target:
    """Promise a ratio of at most so much, perhaps with a wish beyond it.

    >>> target = at_most("kernel / copy", 6.1, 7.0, wish=5.0)
    >>> target.wanted, target.measured, target.verdict
    ('at most 7x (5x wished)', '6.10x', 'met')
    """
    wanted = f"at most {limit:g}x" + (f" ({wish:g}x wished)" if wish is not None else "")
    return _judged(name, wanted, ratio, lambda found: found <= limit)


def within(name: str, ratio: float | None, low: float, high: float) -> Target:
    """Promise a ratio between two limits.

    >>> within("late / early", 1.3, 0.9, 1.1).verdict
    'missed'
    """
    return _judged(name, f"{low:.2f}x to {high:.2f}x", ratio, lambda found: low <= found <= high)


def targets_sheet(
    targets: Sequence[Target], *, title: str = "Targets (ratios within this run)", whole_run: str = ""
) -> Sheet:
    """Return the section of targets; those missed are stressed, and those not measured are only counted.

    Args:
        targets: The promises.
        title: Of the section.
        whole_run: The command that measures them all.
    """
    measured = [target for target in targets if target.is_met is not None]
    absent = len(targets) - len(measured)
    note = f"{absent} of {len(targets)} targets need the whole run: {whole_run}" if absent else ""
    return Sheet(
        title=title,
        columns=("target", "wanted", "measured", "verdict"),
        rows=[(target.name, target.wanted, target.measured or "", target.verdict) for target in measured],
        bold_rows=frozenset(target.name for target in measured if target.verdict == "missed"),
        note=note,
    )


def _judged(name: str, wanted: str, ratio: float | None, is_enough: Callable[[float], bool]) -> Target:
    if ratio is None:
        return Target(name=name, wanted=wanted, measured=None, is_met=None)
    return Target(name=name, wanted=wanted, measured=format_ratio(ratio), is_met=is_enough(ratio))
