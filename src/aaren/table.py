"""Tables for the terminal."""

import os
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
        labels: heads of the columns; none: without a head.
        rows: texts of the cells.
        title: above the table.
        num_left: so many columns are words, the last of them in lines if need be; the others are numbers.
    """
    style = {"title": title or None, "title_justify": "left", "title_style": "bold", "box": None}
    table = Table(**style, padding=(0, 2, 0, 0), show_header=bool(labels))  # type: ignore[arg-type]  # by name
    for place, label in enumerate(labels or [""] * len(rows[0])):
        justify: Literal["left", "right"] = "left" if place < num_left else "right"
        table.add_column(Text(label), justify=justify, overflow="fold", no_wrap=place != num_left - 1)
    for row in rows:
        table.add_row(*map(Text, row))
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    Console(width=None if has_width else FILE_WIDTH, highlight=False).print(table)
