"""Tables of text that go to the terminal or into a page alike, and how numbers with units are written.

Knows nothing of what was measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


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
