"""Tables as values, written as Markdown and for the terminal; times, sizes and ratios with their units."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import Literal, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

FILE_WIDTH = 160  # columns where stdout is no terminal


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """The head of a column."""

    label: str
    group: str = ""  # a head above the head, shared by neighbours
    kind: Literal["text", "prose", "number"] = "number"  # prose may be broken into lines
    help: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """What stands in one cell."""

    text: str = ""
    key: float | str | None = None  # what the column is sorted by; gaps last
    is_bold: bool = False
    kind: str = ""  # a CSS class
    note: str = ""  # small, below the text
    help: str = ""
    link: str = ""  # to a place on the page; not in Markdown
    is_code: bool = False

    @classmethod
    def of(cls, value: float | str, *, is_code: bool = False) -> "Cell":
        """Show a value as it is, and sort by it."""
        return cls(text=str(value), key=value, is_code=is_code)


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A titled table."""

    title: str
    columns: Sequence[Column]
    rows: list[list[Cell]] = field(default_factory=list)
    is_dim: list[bool] = field(default_factory=list)  # per row: a gap
    notes: list[str] = field(default_factory=list)  # below the table, or in its place if it has no rows
    name: str = ""  # unique on a page

    def add(self, *cells: Cell, is_dim: bool = False) -> None:
        """Append a row."""
        self.rows.append(list(cells))
        self.is_dim.append(is_dim)

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Return the heads above the heads, each with the number of columns below it; empty without any."""
        spans = [
            (group, len(list(below))) for group, below in groupby(column.group for column in self.columns)
        ]
        return spans if any(group for group, _ in spans) else []


def text_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    bold_rows: Sequence[str] = (),
    note: str = "",
) -> Table:
    """Make a table of finished text: the first column is left-aligned, the others right-aligned.

    Args:
        title: Above the table.
        columns: Their heads.
        rows: Their cells.
        bold_rows: First cells of the rows to stress.
        note: Below the table.
    """
    table = Table(
        title=title,
        columns=[
            Column(label=label, kind="number" if place else "text") for place, label in enumerate(columns)
        ],
        notes=[note] if note else [],
    )
    for row in rows:
        table.add(*(Cell(text=text, is_bold=row[0] in bold_rows) for text in row))
    return table


def to_rich(table: Table, *, title: str = "") -> RenderableType:
    """Draw a table for the terminal, gaps dim.

    Numbers and words are never cut: a table that is too wide is drawn in parts, each with the first column.
    """
    notes = [Text(note, style="dim") for note in table.notes]
    return Group(*notes) if notes and not table.rows else Group(_Fitted(table, title or table.title), *notes)


_FRAME = 3  # columns of a terminal between two columns of a table

_LEAST_NAME = 20  # a first column is broken into lines before it is narrower than this


class _Fitted(NamedTuple):
    """A table in as many parts as the terminal's width asks for."""

    table: Table
    title: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield each part; rich calls it with the width that there is."""
        widths = [self._width(place) for place in range(len(self.table.columns))]
        available = options.max_width - 1 - _FRAME
        first = max(min(widths[0], available - sum(width + _FRAME for width in widths[1:])), 0)
        if first < min(widths[0], _LEAST_NAME):
            first = min(widths[0], available // 2)
        part: list[int] = []
        used, title = first, self.title
        for place, width in enumerate(widths[1:], start=1):
            if part and used + width + _FRAME > available:
                yield self._part(part, first, widths, title)
                part, used, title = [], first, ""
            part.append(place)
            used += width + _FRAME
        yield self._part(part, first, widths, title)

    def _width(self, place: int) -> int:
        """Return what a column needs: heads are broken between words, cells only where they are prose."""
        column, cells = self.table.columns[place], [_rich_cell(row[place]).plain for row in self.table.rows]
        texts = [text for cell in cells for text in (cell.split() if column.kind == "prose" else [cell])]
        return max(cell_len(text) for text in [*_head(column).split(), *texts, ""])

    def _part(self, part: list[int], first: int, widths: list[int], title: str) -> RichTable:
        drawn = RichTable(
            title=Text(title) if title else None, title_justify="left", title_style="bold", box=SIMPLE_HEAD
        )
        for place in [0, *part]:
            column = self.table.columns[place]
            justify: Literal["left", "right"] = "left" if column.kind == "text" else "right"
            least = widths[place] if place else first
            most = None if place else first  # else rich takes from all and gives the others their least again
            drawn.add_column(
                Text(_head(column)), justify=justify, overflow="fold", min_width=least, max_width=most
            )
        for row, is_dim in zip(self.table.rows, self.table.is_dim, strict=True):
            drawn.add_row(*(_rich_cell(row[place]) for place in [0, *part]), style="dim" if is_dim else None)
        return drawn


def _head(column: Column) -> str:
    """Our own models need no group: what stands beside them says that it was published."""
    return f"{column.group}: {column.label}" if column.group.startswith("published") else column.label


def _rich_cell(cell: Cell) -> Text:
    return Text(
        f"{cell.text} ({cell.note})" if cell.note else cell.text, style="bold" if cell.is_bold else ""
    )


def to_markdown(table: Table) -> str:
    """Write a table as Markdown, its title as bold text above and its notes below."""
    if table.notes and not table.rows:
        return "".join(f"{markdown_text(note)}\n" for note in table.notes)
    heads = [f"{column.group}: {column.label}" if column.group else column.label for column in table.columns]
    lines = [f"**{markdown_text(table.title)}**", ""] if table.title else []
    lines.append(_markdown_row([markdown_text(head) for head in heads]))
    lines.append(_markdown_row(["--:" if column.kind == "number" else ":--" for column in table.columns]))
    lines += [_markdown_row([_markdown_cell(cell) for cell in row]) for row in table.rows]
    for note in table.notes:
        lines += ["", markdown_text(note)]
    return "\n".join(lines) + "\n"


def markdown_text(text: str) -> str:
    r"""Write text into Markdown so that it stays text: no HTML, no link, one line.

    >>> markdown_text("<img src=x> [a](javascript:b)")
    '&lt;img src=x&gt; [a]\\(javascript:b)'
    """
    return escape(" ".join(text.split()), quote=False).replace("](", "]\\(")


def markdown_code(text: str) -> str:
    """Write text as code in one line of Markdown; a backtick in it cannot end it.

    >>> markdown_code("a`b<i>")
    "`a'b<i>`"
    """
    return "`" + " ".join(text.replace("`", "'").split()) + "`"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    text = markdown_code(cell.text) if cell.is_code else markdown_text(cell.text)
    if cell.is_bold and text:
        text = f"**{text}**"
    return f"{text} ({markdown_text(cell.note)})" if cell.note else text


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
    table = RichTable(**style, padding=(0, 2, 0, 0))  # type: ignore[arg-type]  # by name
    for place, label in enumerate(labels):
        justify: Literal["left", "right"] = "left" if place < num_left else "right"
        table.add_column(Text(label), justify=justify, overflow="fold", no_wrap=place != num_left - 1)
    for row in rows:
        table.add_row(*map(Text, row))
    Console(width=None if sys.stdout.isatty() else FILE_WIDTH, highlight=False).print(table)
