"""The progress of a run: a bar on the terminal, one line per evaluation in a log, or JSON lines.

Showing it must not slow the run down, so an observer is called after every update but reads the loss only
when it shows it. Nor must it end the run: where writing fails (a full disk, a closed pipe), it is left out.
"""

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from aaren.engine.plan import Evaluation, Plan, RunStatus
from aaren.errors import ConfigError
from aaren.files.stdio import write_line
from aaren.files.strict_json import strict_json

if TYPE_CHECKING:
    from rich.progress import TaskID


REFRESH_SECONDS = 0.5
LINE_SECONDS = 1.0  # epochs shorter than this do not get a line each
SILENT_SECONDS = 60.0  # epochs longer than this get lines in between


class Observer:
    """Receives the progress of a run; this one shows nothing, for tests and for use as a library."""

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        """The run begins or resumes."""

    def updated(self, status: RunStatus, loss: Callable[[], float]) -> None:
        """An update was made; `loss` gives the mean since the last evaluation."""

    def evaluated(self, status: RunStatus, evaluation: Evaluation) -> None:
        """The model was evaluated on the validation part."""

    def say(self, message: str) -> None:
        """Something happened that a person should know."""

    def end(self) -> None:
        """The run is over, well or not."""


class Observers(Observer):
    """Several observers as one."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        for observer in self.observers:
            observer.begin(name, plan, status)

    def updated(self, status: RunStatus, loss: Callable[[], float]) -> None:
        for observer in self.observers:
            observer.updated(status, loss)

    def evaluated(self, status: RunStatus, evaluation: Evaluation) -> None:
        for observer in self.observers:
            observer.evaluated(status, evaluation)

    def say(self, message: str) -> None:
        for observer in self.observers:
            observer.say(message)

    def end(self) -> None:
        for observer in self.observers:
            observer.end()


class LogLines(Observer):
    """For logs: a line per evaluation, at most one a second, always the last; between them, one a minute."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.shown = 0.0

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        self.plan, self.pace = plan, Pace(plan, status)
        words = f"{plan.max_updates} updates" if plan.max_updates else "fitted at once, without updates"
        self.say(f"{name}: {words}" + (f", resuming at {status.update}" if status.update else ""))
        self.spoken = time.monotonic()

    def updated(self, status: RunStatus, loss: Callable[[], float]) -> None:
        if time.monotonic() - self.spoken < SILENT_SECONDS:
            return
        self.spoken = time.monotonic()
        epoch = -(-status.update // self.plan.updates_per_epoch)
        self.say(
            f"epoch {epoch}, {self._place(status.update)}: loss {loss():.4g}, {self._speed(status.update)}"
        )

    def evaluated(self, status: RunStatus, evaluation: Evaluation) -> None:
        if time.monotonic() - self.shown < LINE_SECONDS and not status.is_done:
            return
        self.shown = self.spoken = time.monotonic()
        # What chooses weights and what stops; all other metrics are in the record.
        names = dict.fromkeys(one.metric for one in (self.plan.selects, self.plan.watches) if one is not None)
        metrics = ", ".join(f"{name} {evaluation['validation'][name]:.4g}" for name in names) or "none"
        if not self.plan.max_updates:
            self.say(f"validation {metrics}")
            return
        best = " (best)" if evaluation["is_best"] and names else ""
        self.say(
            f"epoch {evaluation['epoch']}, {self._place(evaluation['update'])}: "
            f"loss {evaluation['loss']:.4g}, validation {metrics}{best}, {self._speed(status.update)}"
        )

    def _place(self, update: int) -> str:
        return f"update {update}/{self.plan.max_updates}"

    def _speed(self, update: int) -> str:
        return f"{self.pace.rate(update):.3g} updates/s, {self.pace.left(update)} left"

    def say(self, message: str) -> None:
        write_line(message, self.stream)


class JsonLines(Observer):
    """One JSON object per event, for machines: begin, evaluation, message, end."""

    def __init__(self, path: str) -> None:
        try:
            self.file = sys.stderr if path == "-" else Path(path).open("a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"--json-log {path}: it cannot be written ({reason}).") from error

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        self._write("begin", {"name": name, "max_updates": plan.max_updates, "update": status.update})

    def evaluated(self, status: RunStatus, evaluation: Evaluation) -> None:
        self._write("evaluation", {**evaluation, "is_done": status.is_done})

    def say(self, message: str) -> None:
        self._write("message", {"text": message})

    def end(self) -> None:
        self._write("end", {})
        if self.file is not sys.stderr:
            with contextlib.suppress(OSError, ValueError):  # what it still holds cannot be written either
                self.file.close()

    def _write(self, event: str, values: dict[str, object]) -> None:
        line = strict_json({"event": event, "time": round(time.time(), 3), **values})
        write_line(line, self.file)


class ProgressBar(Observer):
    """A progress bar on the terminal: updates, loss, validation metric, rate, time left."""

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
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

    def evaluated(self, status: RunStatus, evaluation: Evaluation) -> None:
        if self.plan.selects is not None:
            name = self.plan.selects.metric
            best = status.best["validation"][name] if status.best else float("nan")
            self.metric = f"{name} {evaluation['validation'][name]:.4g} (best {best:.4g})  "
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
        if hasattr(self, "bar"):
            with contextlib.suppress(OSError, ValueError):
                self.bar.refresh()
                self.bar.stop()


def choose_observer(json_log: str | None) -> Observer:
    """Choose how to show progress: JSON lines on request, a bar on a terminal, lines elsewhere."""
    if json_log is not None:
        return JsonLines(json_log)
    return ProgressBar() if sys.stderr is not None and sys.stderr.isatty() else LogLines()


def duration(seconds: float) -> str:
    """Write a time in words.

    >>> duration(42.4), duration(150), duration(7300)
    ('42 s', '2 min 30 s', '2 h 1 min')
    """
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
    )


class Pace:
    """How fast updates go, evaluations included, and how long the rest will take."""

    def __init__(self, plan: Plan, status: RunStatus) -> None:
        self.total, self.first, self.begin = plan.max_updates, status.update, time.monotonic()

    def rate(self, update: int) -> float:
        """Return updates per second since this process began."""
        return (update - self.first) / max(1e-9, time.monotonic() - self.begin)

    def left(self, update: int) -> str:
        """Return the time to the last planned update, in words."""
        rate = self.rate(update)
        return duration((self.total - update) / rate) if rate else "?"
