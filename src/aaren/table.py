"""Tables for the terminal; times and sizes with their units."""

import sys
from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

FILE_WIDTH = 160  # columns where stdout is no terminal


def print_table(
    labels: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", num_left: int = 1
) -> None:
    """Print a table to stdout, within the terminal's width.

    Args:
        labels: heads of the columns.
        rows: texts of the cells.
        title: above the table.
        num_left: so many columns are words, the last of them in lines if need be; the others are numbers.
    """
    style = {"title": title or None, "title_justify": "left", "title_style": "bold", "box": None}
    table = Table(**style, padding=(0, 2, 0, 0))  # type: ignore[arg-type]  # by name
    for place, label in enumerate(labels):
        justify: Literal["left", "right"] = "left" if place < num_left else "right"
        table.add_column(Text(label), justify=justify, overflow="fold", no_wrap=place != num_left - 1)
    for row in rows:
        table.add_row(*map(Text, row))
    Console(width=None if sys.stdout.isatty() else FILE_WIDTH, highlight=False).print(table)


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


def _three_digits(number: float) -> str:
    if number >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"
