"""The tables of a report on the terminal, at the end of a grid. Parses nothing and computes nothing."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from aaren.report.table import Cell, Table

NAME_WIDTH = 32  # of the first column: the names of datasets are not cut up
_FILE_WIDTH = 140  # columns when stdout is no terminal


def print_tables(out: Path, settings: Sequence[str], profile: str) -> None:
    """Print the paper's table of every setting that was run at a profile; what was not run is a gap.

    Of smoke runs, which show that things turn, one number of each setting is enough: one screen in all.
    """
    from rich.console import Console

    from aaren.report.gathered import gather
    from aaren.report.tables import main_tables, reference_table

    gathered = gather(out)
    console = Console(highlight=False) if sys.stdout.isatty() else Console(width=_FILE_WIDTH, highlight=False)
    for setting in settings:
        found: list[Table | None] = [*main_tables(gathered, setting, profile)]
        if profile == "smoke":
            found = found[:1]
        else:
            found += [
                reference_table(gathered, setting, profile, number) for number in gathered.metrics(setting)
            ]
        if not any(found):
            console.print(f"{setting}, {profile}: nothing was run, so there is no table.")
        for table in found:
            if table is not None:
                console.print(to_rich(table, f"{setting}, {profile}: {table.title}"))
                for note in table.notes:
                    console.print(note, style="dim", markup=False)
    for problem in gathered.problems:
        print(f"left out {problem.path}: {problem.reason}", file=sys.stderr)


def to_rich(table: "Table", title: str) -> "RichTable":
    """Draw a table for the terminal; gaps are dim."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    drawn = RichTable(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for column in table.columns:
        # Our own models need no group: what stands beside them says that it was published.
        label = f"{column.group}: {column.label}" if column.group.startswith("published") else column.label
        justify: Literal["left", "right"] = "left" if column.kind == "text" else "right"
        width = NAME_WIDTH if not drawn.columns and column.kind == "text" else None
        drawn.add_column(label, justify=justify, min_width=width, overflow="fold")
    for row, is_dim in zip(table.rows, table.is_dim, strict=True):
        drawn.add_row(*map(_text, row), style="dim" if is_dim else None)
    return drawn


def _text(cell: "Cell") -> str:
    from rich.markup import escape

    text = escape(f"{cell.text} ({cell.note})" if cell.note else cell.text)
    return f"[bold]{text}[/]" if cell.is_bold else text
