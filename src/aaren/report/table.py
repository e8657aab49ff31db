"""Tables as values: columns and cells, written as HTML or Markdown. Knows nothing of what is in them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
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
    """What stands in one place."""

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


def to_html(table: Table) -> str:
    """Write a table whose columns sort on a click (by the script of the page)."""
    parts = [f'<div class="table" id="{escape(table.name)}">']
    if table.title:
        parts.append(f"<h4>{escape(table.title)}</h4>")
    hidden = sum(table.is_dim)
    if hidden:
        words = "1 gap" if hidden == 1 else f"{hidden} gaps"
        is_checked = "" if hidden * 2 > len(table.rows) else " checked"
        parts.append(f'<label class="gaps"><input type="checkbox"{is_checked}> show {words}</label>')
    parts.append('<div class="scroll"><table>')
    parts.append(f"<thead>{_groups(table.columns)}<tr>")
    for column in table.columns:
        title = f' title="{escape(column.help)}"' if column.help else ""
        button = f'<button type="button">{escape(column.label)}</button>'
        parts.append(f'<th scope="col" class="{column.kind}"{title}>{button}</th>')
    parts.append("</tr></thead><tbody>")
    for row, is_dim in zip(table.rows, table.is_dim, strict=True):
        parts.append('<tr class="gap">' if is_dim else "<tr>")
        parts += [_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)]
        parts.append("</tr>")
    parts.append("</tbody></table></div>")
    parts += [f'<p class="note">{escape(note)}</p>' for note in table.notes]
    return "".join(parts) + "</div>\n"


def to_markdown(table: Table) -> str:
    """Write a table as Markdown, its title as bold text above and its notes below."""
    heads = [f"{column.group}: {column.label}" if column.group else column.label for column in table.columns]
    heads = [_in_a_row(markdown_text(head)) for head in heads]
    lines = [f"**{markdown_text(table.title)}**", ""] if table.title else []
    lines.append(_markdown_row(heads))
    lines.append(_markdown_row(["--:" if column.kind == "number" else ":--" for column in table.columns]))
    for row in table.rows:
        lines.append(_markdown_row([_markdown_cell(cell) for cell in row]))
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


def _groups(columns: Sequence[Column]) -> str:
    if not any(column.group for column in columns):
        return ""
    spans: list[list[str | int]] = []
    for column in columns:
        if spans and spans[-1][0] == column.group:
            spans[-1][1] = int(spans[-1][1]) + 1
        else:
            spans.append([column.group, 1])
    cells = "".join(
        f'<th colspan="{span}" class="{"group" if label else ""}">{escape(str(label))}</th>'
        for label, span in spans
    )
    return f'<tr class="groups">{cells}</tr>'


def _cell(cell: Cell, column: Column) -> str:
    text = escape(cell.text)
    if cell.is_code:
        text = f"<code>{text}</code>"
    if cell.link:
        text = f'<a href="{escape(cell.link)}">{text}</a>'
    if cell.is_bold:
        text = f"<b>{text}</b>"
    if cell.kind.startswith("outcome"):
        text = f'<span class="{escape(cell.kind)}">{text}</span>'
    if cell.note:
        text += f"<small>{escape(cell.note)}</small>"
    key = "" if cell.key is None else f' data-key="{escape(str(cell.key))}"'
    title = f' title="{escape(cell.help)}"' if cell.help else ""
    return f'<td class="{column.kind}"{key}{title}>{text}</td>'


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    text = markdown_code(cell.text) if cell.is_code else markdown_text(cell.text)
    if cell.is_bold and text:
        text = f"**{text}**"
    return _in_a_row(f"{text} ({markdown_text(cell.note)})" if cell.note else text)


def _in_a_row(text: str) -> str:
    return text.replace("|", "\\|")
