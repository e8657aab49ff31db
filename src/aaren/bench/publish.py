"""From a record to all that is shown: tables on stdout, and on request the JSON, the figure and the page.

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
from aaren.bench.page import read_generated, write_generated
from aaren.bench.record import BenchRecord, check_writable, describe
from aaren.bench.table import Sheet
from aaren.errors import ConfigError, unknown_name

VIEWS: dict[str, str] = {
    "scan": "aaren.bench.scan_view",
    "token": "aaren.bench.token_cost",
    "stream": "aaren.bench.stream_view",
    "train": "aaren.bench.train_view",
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
