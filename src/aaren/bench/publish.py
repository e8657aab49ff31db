"""Put what a record says into a documentation page, between two marks; the rest of the page stays.

From a record to all that is shown: tables on stdout, and on request the JSON, the figure and the page.

Every kind of record has a module with `sheets`, and `draw` if it has a figure; VIEWS names it, so that a
record can be shown again later without measuring.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, TypeAlias, cast

from rich.console import Console

from aaren.bench import figure
from aaren.bench.record import BenchRecord, check_writable, describe
from aaren.bench.table import Sheet
from aaren.errors import ConfigError, DataError, unknown_name


def begin_mark(kind: str) -> str:
    """Return the line above the generated part."""
    return f"<!-- begin: written by aaren bench {kind} --page; do not edit -->"


def end_mark(kind: str) -> str:
    """Return the line below it."""
    return f"<!-- end: aaren bench {kind} -->"


def read_generated(path: Path, kind: str) -> str:
    """Return what stands between the marks."""
    _, body, _ = _split(path, kind)
    return body


def write_generated(path: Path, kind: str, body: str) -> None:
    """Replace what stands between the marks."""
    head, _, tail = _split(path, kind)
    path.write_text(f"{head}{body}{tail}", encoding="utf-8")


def _split(path: Path, kind: str) -> tuple[str, str, str]:
    """Return the page up to and with the first mark, the generated part, and the rest."""
    if not path.is_file():
        raise DataError(f"no page at {path}; --page needs an existing Markdown file with the marks in it.")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text in UTF-8; --page rewrites Markdown.") from error
    begin, end = begin_mark(kind) + "\n", end_mark(kind)
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise DataError(
            f"{path} must hold these two lines, once each and in this order: {begin.strip()} and {end}"
        )
    start, stop = text.index(begin) + len(begin), text.index(end)
    return text[:start], text[start:stop], text[stop:]


VIEWS: dict[str, str] = {
    "scan": "aaren.bench.scan",
    "token": "aaren.bench.token_cost",
    "stream": "aaren.bench.stream_view",
    "train": "aaren.bench.train",
    "train-events": "aaren.bench.train_events",
    "train-engine": "aaren.bench.train_engine",
    "data": "aaren.bench.data",
    "startup": "aaren.bench.startup",
    "policy": "aaren.bench.policy",
    "grid": "aaren.lab.bench_grid",  # above this layer, hence by name alone
}
_FILE_WIDTH = 120  # columns when stdout is no terminal


class RecordView(Protocol):
    """What a module that draws records offers."""

    def sheets(self, record: BenchRecord) -> list[Sheet]:
        """Return the tables."""


Draw: TypeAlias = Callable[[BenchRecord, Path], tuple[Path, Path]]  # saves the figure as PNG and SVG


@dataclass(frozen=True, kw_only=True, slots=True)
class Destinations:
    """Where results go besides stdout; None: nowhere."""

    record: Path | None = None
    figure: Path | None = None  # without suffix: .png and .svg are made
    page: Path | None = None  # an existing Markdown page with marks

    def check(self, kind: str) -> None:
        """Fail now rather than after minutes of measuring."""
        png = None if self.figure is None else figure.figure_paths(self.figure)[0]
        check_writable({"--record": self.record, "--figure": png})
        if self.figure is not None:
            _drawing_of(kind)
            figure.require_matplotlib()
        if self.page is not None:
            read_generated(self.page, kind)


def view_of(kind: str) -> RecordView:
    """Return the module that draws this kind of record."""
    if kind not in VIEWS:
        raise unknown_name("kind of record", kind, VIEWS)
    return cast(RecordView, import_module(VIEWS[kind]))


def page_text(record: BenchRecord) -> str:
    """Return the generated part of a documentation page."""
    tables = "\n".join(sheet.to_markdown() for sheet in view_of(record.kind).sheets(record))
    return f"\n{describe(record)}\n\n{tables}\n"


def publish(record: BenchRecord, destinations: Destinations) -> None:
    """Print the tables and write what was asked for; the record first, so that nothing measured is lost."""
    view = view_of(record.kind)
    written: list[Path] = []
    if destinations.record is not None:
        record.write(destinations.record)
        written.append(destinations.record)
    console = Console(highlight=False) if sys.stdout.isatty() else Console(width=_FILE_WIDTH, highlight=False)
    for sheet in view.sheets(record):
        console.print(sheet.to_rich())
        console.print()
    console.print(describe(record), soft_wrap=True)
    if destinations.figure is not None:
        written += _drawing_of(record.kind)(record, destinations.figure)
    if destinations.page is not None:
        write_generated(destinations.page, record.kind, page_text(record))
        written.append(destinations.page)
    for path in written:
        print(f"wrote {path}", file=sys.stderr)


def _drawing_of(kind: str) -> Draw:
    draw: Draw | None = getattr(view_of(kind), "draw", None)
    if draw is None:
        raise ConfigError(f"a record of {kind!r} is tables and has no figure: leave out --figure.")
    return draw
