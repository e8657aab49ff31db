"""Tables as values: columns and cells, written as Markdown here and as HTML by the page's template."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import Literal


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

    name: str  # unique on a page
    title: str
    columns: Sequence[Column]
    rows: list[list[Cell]] = field(default_factory=list)
    is_dim: list[bool] = field(default_factory=list)  # per row: a gap
    notes: list[str] = field(default_factory=list)  # below the table

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


def to_markdown(table: Table) -> str:
    """Write a table as Markdown, its title as bold text above and its notes below."""
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
