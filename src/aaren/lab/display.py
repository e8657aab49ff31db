"""How a grid is shown: what it will do, a live table on a terminal or lines in a log, and how it ended.

All of it goes to stderr: stdout is for results.
"""

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Self, TextIO

from aaren.datasets.catalogue import lookup
from aaren.engine.progress import duration
from aaren.files.stdio import write_line
from aaren.lab.plan import GridStatus, how_to_get
from aaren.lab.schedule import Display, Schedule, ScheduledRun
from aaren.lab.workers import Resources

if TYPE_CHECKING:
    from rich.console import Console, Group


REFRESH_SECONDS = 0.5
STATUS_SECONDS = 60.0  # between two lines of a log that say how far all is
IDLE_SECONDS = 300.0  # without progress from which on a run is said to make none
_OTHER_COLUMNS = 60  # for the time, the updates and the latest metric


def announcement(status: GridStatus, resources: Resources) -> list[str]:
    """Say what was found and what will be done, a line each."""
    waiting, without_data = len(status.waiting), sum(map(len, status.without_data.values()))
    total = waiting + without_data + len(status.finished) + len(status.failed) + len(status.unreadable)
    lines = [
        f"{total} runs: {len(status.finished)} finished already, {waiting} to run, {without_data} without "
        f"data, {len(status.failed)} failed before, {len(status.unreadable)} not to be touched"
    ]
    for dataset, runs in status.without_data.items():
        lines.append(f"  no data for {dataset} ({len(runs)} runs): {how_to_get(lookup(dataset))}")
    for run, reason in status.failed:
        lines.append(f"  {run.name}: {reason} (--set retry_failed=true tries it again)")
    for run, reason in status.unreadable:
        lines.append(
            f"  {run.folder / 'record.json'} is left alone: {reason}. To run it again, remove the file"
        )
    if waiting:
        where = f"on Ray ({resources.ray})" if resources.ray else "on this machine"
        lines.append(
            f"{_expected_time(status, resources.workers)} with {_count(resources.workers, 'worker')} of "
            f"{_count(resources.threads, 'thread')} {where}"
        )
    return lines


def outcome(schedule: Schedule) -> list[str]:
    """Summarise how a grid ended, failures by name."""
    counts = ", ".join(
        f"{schedule.count(state)} {state}"
        for state in ("finished", "failed", "stopped")
        if state == "finished" or schedule.count(state)
    )
    lines = [f"{counts} in {duration(schedule.now() - schedule.began)}"]
    lines += [f"  failed: {item.run.name}: {item.text}" for item in schedule.in_state("failed")]
    return lines


class Lines(Display):
    """One line per event, and now and then one on the whole grid."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.shown = time.monotonic()

    def note(self, text: str) -> None:
        write_line(text, self.stream)

    def refresh(self, schedule: Schedule) -> None:
        """Print how far all is, once a minute."""
        if time.monotonic() - self.shown >= STATUS_SECONDS:
            self.shown = time.monotonic()
            self.note(summary(schedule))
            for item in schedule.in_state("running"):
                self.note(f"  {item.run.name}: {', '.join(filter(None, progress(schedule, item)))}")


class LiveTable(Display):
    """A table that is drawn again and again at the foot of the terminal; notes scroll by above it."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self.console = Console(stderr=True, highlight=False) if console is None else console
        self.live: Live = Live(console=self.console, auto_refresh=False)
        self.schedule: Schedule | None = None
        self.shown = 0.0

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError, ValueError):
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._draw()
        with contextlib.suppress(OSError, ValueError):
            self.live.stop()

    def note(self, text: str) -> None:
        """Print above the table."""
        from rich.text import Text

        with contextlib.suppress(OSError, ValueError):  # what cannot be shown must not end the grid
            self.console.print(Text(text), soft_wrap=True)

    def refresh(self, schedule: Schedule) -> None:
        """Draw again, twice a second."""
        self.schedule = schedule
        if time.monotonic() - self.shown >= REFRESH_SECONDS:
            self._draw()

    def _draw(self) -> None:
        if self.schedule is not None:
            self.shown = time.monotonic()
            with contextlib.suppress(OSError, ValueError):
                self.live.update(draw(self.schedule, self.console.width), refresh=True)


def choose_display() -> Display:
    """Show a live table on a terminal, unless lines are wanted."""
    return Lines() if sys.stderr is None or not sys.stderr.isatty() else LiveTable()


def draw(schedule: Schedule, width: int) -> "Group":
    """Draw one row per running run, and how far all is below."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), show_header=False)
    # On a narrow terminal the name gives way, and never the numbers.
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=min(52, max(12, width - _OTHER_COLUMNS)))
    for _ in range(3):
        table.add_column(no_wrap=True)
    for item in schedule.in_state("running"):
        table.add_row(*map(Text, (item.run.name, *progress(schedule, item))))
    return Group(table, Text(f" {summary(schedule)}", style="bold"))


def summary(schedule: Schedule) -> str:
    """Say in one line how far all is."""
    left = schedule.seconds_left()
    words = [
        f"{schedule.done_before + schedule.count('finished')} done",
        f"{schedule.count('running')} running",
        f"{schedule.count('waiting')} waiting",
        f"{schedule.count('failed')} failed",
        f"{duration(schedule.now() - schedule.began)} so far",
        "time left not known yet" if left is None else f"about {duration(left)} left",
    ]
    return " · ".join(words)


def progress(schedule: Schedule, item: ScheduledRun) -> tuple[str, str, str]:
    """Return how far a run is, for how long it has been running, and its latest metric or that it is idle."""
    idle = schedule.idle_seconds(item)
    return (
        f"update {item.update}" if item.update else "started",
        duration(schedule.now() - item.started),
        f"no progress for {duration(idle)}" if idle >= IDLE_SECONDS else item.text,
    )


def _expected_time(status: GridStatus, workers: int) -> str:
    known, unknown = list(status.estimates.values()), len(status.waiting) - len(status.estimates)
    if not known:
        is_smoke = all(run.config.profile == "smoke" for run in status.waiting)
        return "seconds a run" if is_smoke else "for an unknown time (no records of the same cells)"
    text = f"about {duration(max(sum(known) / workers, *known))}"
    measured = _count(len(known), "run")
    return (
        f"{text} for {measured} with records of the same cells (not known for {unknown} others)"
        if unknown
        else text
    )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + "s" * (number != 1)
