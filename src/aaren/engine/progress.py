"""Who watches a run: nobody, a progress bar, one line per look, or JSON lines.

Watching must not slow the run down, so a watcher is told of every update but asks for the loss only when it
wants to show it. Nor must it end the run: where nothing can be written (a full disk, a closed pipe), nothing
is. Knows nothing of how a run trains.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from aaren.engine.plan import Plan
from aaren.engine.record import strict_json
from aaren.engine.status import Look, RunStatus
from aaren.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import TaskID


REFRESH_SECONDS = 0.5
LINE_SECONDS = 1.0  # epochs shorter than this do not get a line each


class Observer(Protocol):
    """What the loop tells."""

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        """The run begins, or goes on."""

    def updated(self, status: RunStatus, loss: Callable[[], float]) -> None:
        """An update was made; `loss` gives the mean since the last look."""

    def looked(self, status: RunStatus, look: Look) -> None:
        """The validation part was looked at."""

    def say(self, message: str) -> None:
        """Something happened that a person should know."""

    def end(self) -> None:
        """The run is over, well or not."""


class Silent:
    """Say nothing: for tests and for use as a library."""

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        """See Observer."""

    def updated(self, status: RunStatus, loss: Callable[[], float]) -> None:
        """See Observer."""

    def looked(self, status: RunStatus, look: Look) -> None:
        """See Observer."""

    def say(self, message: str) -> None:
        """See Observer."""

    def end(self) -> None:
        """See Observer."""


class Several:
    """Tell several observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        """See Observer."""
        for observer in self.observers:
            observer.begin(name, plan, status)

    def updated(self, status: RunStatus, loss: Callable[[], float]) -> None:
        """See Observer."""
        for observer in self.observers:
            observer.updated(status, loss)

    def looked(self, status: RunStatus, look: Look) -> None:
        """See Observer."""
        for observer in self.observers:
            observer.looked(status, look)

    def say(self, message: str) -> None:
        """See Observer."""
        for observer in self.observers:
            observer.say(message)

    def end(self) -> None:
        """See Observer."""
        for observer in self.observers:
            observer.end()


class Pace:
    """How fast updates go, looks included, and how long the rest will take."""

    def __init__(self, plan: Plan, status: RunStatus) -> None:
        self.total, self.first, self.begin = plan.max_updates, status.update, time.monotonic()

    def rate(self, update: int) -> float:
        """Return updates per second since this process began."""
        return (update - self.first) / max(1e-9, time.monotonic() - self.begin)

    def left(self, update: int) -> str:
        """Return the time to the last planned update, in words."""
        rate = self.rate(update)
        return duration((self.total - update) / rate) if rate else "?"


class Lines(Silent):
    """One line per look, for logs; at most one per second, but always the last."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.shown = 0.0

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        """Say what begins."""
        self.plan, self.pace = plan, Pace(plan, status)
        self.say(
            f"{name}: {plan.max_updates} updates"
            + (f", going on at {status.update}" if status.update else "")
        )

    def looked(self, status: RunStatus, look: Look) -> None:
        """Print the look."""
        if time.monotonic() - self.shown < LINE_SECONDS and not status.is_done:
            return
        self.shown = time.monotonic()
        metrics = ", ".join(f"{key} {value:.4g}" for key, value in look["validation"].items())
        self.say(
            f"epoch {look['epoch']}, update {look['update']}/{self.plan.max_updates}: "
            f"loss {look['loss']:.4g}, validation {metrics}{' (best)' if look['is_best'] else ''}, "
            f"{self.pace.rate(status.update):.1f} updates/s, {self.pace.left(status.update)} left"
        )

    def say(self, message: str) -> None:
        """Print a line."""
        write_line(message, self.stream)


class JsonLines(Silent):
    """One JSON object per event, for machines: begin, look, message, end."""

    def __init__(self, path: str) -> None:
        try:
            self.file = sys.stderr if path == "-" else Path(path).open("a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"--json-log {path}: it cannot be written ({reason}).") from error

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        """Write what begins."""
        self._write("begin", {"name": name, "max_updates": plan.max_updates, "update": status.update})

    def looked(self, status: RunStatus, look: Look) -> None:
        """Write the look."""
        self._write("look", {**look, "is_done": status.is_done})

    def say(self, message: str) -> None:
        """Write a message."""
        self._write("message", {"text": message})

    def end(self) -> None:
        """Write that it is over."""
        self._write("end", {})
        if self.file is not sys.stderr:
            with contextlib.suppress(OSError, ValueError):  # what it still holds cannot be written either
                self.file.close()

    def _write(self, event: str, values: dict[str, object]) -> None:
        line = strict_json({"event": event, "time": round(time.time(), 3), **values})
        write_line(line, self.file)


class Bar(Silent):
    """A progress bar on the terminal: updates, loss, validation metric, rate, time left."""

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        """Show the bar."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self.plan, self.pace, self.shown, self.metric = plan, Pace(plan, status), 0.0, ""
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            console=Console(stderr=True, highlight=False),
            auto_refresh=False,  # a thread that draws would take time from the training
        )
        self.task: TaskID = self.bar.add_task(name, total=plan.max_updates, completed=status.update, facts="")
        with contextlib.suppress(OSError, ValueError):
            self.bar.start()

    def updated(self, status: RunStatus, loss: Callable[[], float]) -> None:
        """Move the bar, now and then."""
        if time.monotonic() - self.shown < REFRESH_SECONDS:
            return
        self.shown = time.monotonic()
        facts = (
            f"epoch {self.plan.moment(status.update).epoch + 1}  loss {loss():.4g}  {self.metric}"
            f"{self.pace.rate(status.update):.1f}/s  {self.pace.left(status.update)} left"
        )
        with contextlib.suppress(OSError, ValueError):
            self.bar.update(self.task, completed=status.update, facts=facts, refresh=True)

    def looked(self, status: RunStatus, look: Look) -> None:
        """Take up the metric that selects."""
        name = self.plan.selects.metric
        best = status.best["validation"][name] if status.best else float("nan")
        self.metric = f"{name} {look['validation'][name]:.4g} (best {best:.4g})  "
        with contextlib.suppress(OSError, ValueError):
            self.bar.update(self.task, completed=status.update, refresh=True)

    def say(self, message: str) -> None:
        """Print above the bar."""
        if hasattr(self, "bar"):
            with contextlib.suppress(OSError, ValueError):
                self.bar.console.print(message, markup=False)
        else:
            write_line(message, sys.stderr)

    def end(self) -> None:
        """Leave the bar as it stands."""
        if hasattr(self, "bar"):
            with contextlib.suppress(OSError, ValueError):
                self.bar.refresh()
                self.bar.stop()


def choose_observer(json_log: str | None) -> Observer:
    """Watch as the place asks for: JSON lines on request, a bar on a terminal, lines elsewhere."""
    if json_log is not None:
        return JsonLines(json_log)
    return Bar() if sys.stderr is not None and sys.stderr.isatty() else Lines()


def write_line(text: str, stream: TextIO | None) -> None:
    """Write a line if there is somewhere to write it to."""
    if stream is not None:  # None: closed by whoever started us
        with contextlib.suppress(OSError, ValueError):  # a full disk, a closed pipe, a closed file
            print(text, file=stream, flush=True)


def duration(seconds: float) -> str:
    """Write a time for people.

    >>> duration(42.4), duration(150), duration(7300)
    ('42 s', '2 min 30 s', '2 h 1 min')
    """
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
    )
