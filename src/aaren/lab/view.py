"""How a grid is shown while it runs: a live board on a terminal, lines in a log.

Both write to stderr: stdout is for results.
"""

import contextlib
import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from aaren.engine.progress import duration, write_line
from aaren.lab.grid import Board, Entry, View

if TYPE_CHECKING:
    from rich.console import Console, Group


REFRESH_SECONDS = 0.5
STATUS_SECONDS = 60.0  # between two lines of a log that say how far all is
BAR_WIDTH = 20
NARROW = 110  # columns below which the bar is short
_OTHER_COLUMNS = 40  # for the count of updates and the latest metric


class GridView(View, AbstractContextManager["GridView"]):
    """A view that is shown for the time of a block."""

    def __enter__(self) -> Self:
        """Begin to show."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave what was shown last."""


class Lines(GridView):
    """One line for everything that happens, and now and then one on the whole."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.shown = time.monotonic()

    def note(self, text: str) -> None:
        """Print a line."""
        write_line(text, self.stream)

    def refresh(self, board: Board) -> None:
        """Print how far all is, once a minute."""
        if time.monotonic() - self.shown >= STATUS_SECONDS:
            self.shown = time.monotonic()
            self.note(summary(board))
            for entry in board.in_state("running"):
                self.note(f"  {entry.run.name}: {progress(entry)}")


class LiveBoard(GridView):
    """A board that is drawn again and again at the foot of the terminal; notes scroll by above it."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self.console = Console(stderr=True, highlight=False) if console is None else console
        self.live: Live = Live(console=self.console, auto_refresh=False)
        self.board: Board | None = None
        self.shown = 0.0

    def __enter__(self) -> Self:
        """Begin to draw."""
        with contextlib.suppress(OSError, ValueError):
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the board as it stands at the end."""
        self._draw()
        with contextlib.suppress(OSError, ValueError):
            self.live.stop()

    def note(self, text: str) -> None:
        """Print above the board."""
        from rich.text import Text

        with contextlib.suppress(OSError, ValueError):  # what cannot be shown must not end the grid
            self.console.print(Text(text), soft_wrap=True)

    def refresh(self, board: Board) -> None:
        """Draw again, twice a second."""
        self.board = board
        if time.monotonic() - self.shown >= REFRESH_SECONDS:
            self._draw()

    def _draw(self) -> None:
        if self.board is not None:
            self.shown = time.monotonic()
            with contextlib.suppress(OSError, ValueError):
                self.live.update(draw(self.board, self.console.width), refresh=True)


def choose_view(*, plain: bool) -> GridView:
    """Show a live board on a terminal, unless lines are wanted."""
    return Lines() if plain or sys.stderr is None or not sys.stderr.isatty() else LiveBoard()


def draw(board: Board, width: int) -> "Group":
    """Draw the board: one row per running run, how far all is below."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    bar_width = BAR_WIDTH if width >= NARROW else BAR_WIDTH // 4
    table = Table(box=None, padding=(0, 1), show_header=False)
    # On a narrow terminal the name gives way, and never the numbers.
    table.add_column(
        no_wrap=True, overflow="ellipsis", max_width=min(52, max(12, width - bar_width - _OTHER_COLUMNS))
    )
    for _ in range(3):
        table.add_column(no_wrap=True)
    for entry in board.in_state("running"):
        filled = round(bar_width * entry.share)
        table.add_row(
            Text(entry.run.name),
            Text("━" * filled).append("━" * (bar_width - filled), style="dim"),
            Text(f"{entry.update}/{entry.max_updates}" if entry.max_updates else _without_updates(entry)),
            Text(entry.text),
        )
    return Group(table, Text(f" {summary(board)}", style="bold"))


def _without_updates(entry: Entry) -> str:
    return "fitting" if entry.has_begun else "opening"


def summary(board: Board) -> str:
    """Say in one line how far all is."""
    left = board.seconds_left()
    words = [
        f"{board.done_before + board.count('finished')} done",
        f"{board.count('running')} running",
        f"{board.count('waiting')} waiting",
        f"{board.count('failed')} failed",
        f"{duration(board.now() - board.began)} so far",
        "time left not known yet" if left is None else f"about {duration(left)} left",
    ]
    return " · ".join(words)


def progress(entry: Entry) -> str:
    """Say how far one run is."""
    if not entry.max_updates:
        return _without_updates(entry)
    return f"update {entry.update}/{entry.max_updates}" + (f", {entry.text}" if entry.text else "")
