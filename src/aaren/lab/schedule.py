"""The scheduler: one process per run; a failure of one does not stop the others.

Progress is read from the run's own folder. A worker that dies, or is killed because its run makes no
progress, is replaced, and the run resumes from its checkpoint. A run that repeatedly loses its workers
without progress is given up, and its record says so.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self, TypeAlias

from aaren.engine.progress import duration
from aaren.engine.record import RunRecord, parse_json, read_record
from aaren.engine.run import CHECKPOINTS, CURVE, RECORD, blank_record
from aaren.errors import DataError, StateError, UnwritableError
from aaren.files.lock import InUseError, locked
from aaren.lab.plan import PlannedRun
from aaren.lab.workers import Ended, Exit, Workers

MAX_DEATHS = 3  # workers that a run may lose without progress
MAX_ATTEMPTS = 5  # at a run that another process holds
IN_USE_SECONDS = 3.0  # between two attempts
WAIT_SECONDS = 0.2
PROGRESS_SECONDS = 1.0  # between two readings of the running runs' folders
MIN_ESTIMATE = 5.0  # seconds of an estimate that says how good estimates are
LOCK_FOLDER = ".grid"

State: TypeAlias = Literal["waiting", "running", "finished", "failed", "stopped"]


@dataclass(kw_only=True, slots=True, eq=False)
class ScheduledRun:
    """A run of the grid while the grid runs."""

    run: PlannedRun
    estimate: float | None = None  # seconds
    state: State = "waiting"
    text: str = ""  # the latest metrics, or the error
    update: int = 0  # of the newest checkpoint or evaluation
    resumed_at: int = 0  # the update from which its present worker began
    started: float = 0.0  # when its present worker began
    seconds: float = 0.0  # of the workers that it had before; of all once it is finished
    progressed: float = 0.0  # when something in its folder changed last
    deaths: int = 0  # workers that it lost
    deaths_in_vain: int = 0  # of them, since its last progress
    attempts: int = 0  # at a folder that others hold
    not_before: float = 0.0
    kill_reason: str = ""  # why its worker had to be killed
    change: object = None  # the folder at the last reading
    record_stamp: int = 0  # of the record before its present worker


@dataclass(kw_only=True, slots=True, eq=False)
class Schedule:
    """All runs of a grid, and how far they are."""

    runs: list[ScheduledRun]
    workers: int = 1
    done_before: int = 0  # runs whose records were there already
    now: Callable[[], float] = time.monotonic
    began: float = field(default=0.0)

    @classmethod
    def of(
        cls,
        runs: Sequence[PlannedRun],
        *,
        estimates: Mapping[Path, float] | None = None,
        workers: int = 1,
        done_before: int = 0,
    ) -> "Schedule":
        """Queue runs."""
        queue = [ScheduledRun(run=run, estimate=(estimates or {}).get(run.folder)) for run in runs]
        schedule = cls(runs=queue, workers=workers, done_before=done_before)
        schedule.began = schedule.now()
        return schedule

    def count(self, state: State) -> int:
        """Count the runs in a state."""
        return len(self.in_state(state))

    def in_state(self, state: State) -> list[ScheduledRun]:
        """List the runs in a state."""
        return [item for item in self.runs if item.state == state]

    def idle_seconds(self, item: ScheduledRun) -> float:
        """Return for how long a running run has made no progress."""
        return max(0.0, self.now() - item.progressed)

    def seconds_left(self) -> float | None:
        """Estimate the time to the end; None while a run's is unknown.

        Estimates are corrected by how the finished runs of this grid compare with theirs. Those of short runs
        say nothing: opening data and testing, which no estimate counts, is most of them.
        """
        finished = self.in_state("finished")
        known = [
            (item.seconds, item.estimate)
            for item in finished
            if item.estimate is not None and item.estimate >= MIN_ESTIMATE
        ]
        correction = sum(took for took, _ in known) / sum(guess for _, guess in known) if known else 1.0
        guesses = [item.estimate * correction for item in self.runs if item.estimate is not None]
        guesses += [item.seconds for item in finished if item.estimate is None]
        usual = sum(guesses) / len(guesses) if guesses else None
        left: list[float] = []
        for item in self.runs:
            if item.state in ("running", "waiting"):
                guess = usual if item.estimate is None else item.estimate * correction
                if guess is None:
                    return None
                spent = self.now() - item.started if item.state == "running" else 0.0
                left.append(max(0.0, guess - spent))
        return max(sum(left) / max(1, self.workers), *left) if left else 0.0


class Display:
    """Shows the progress of a grid for the time of a block; this one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave what was shown last."""

    def note(self, text: str) -> None:
        """Show something that stays to be read."""

    def refresh(self, schedule: Schedule) -> None:
        """Show how far the runs are."""


class Scheduler:
    """Runs a schedule on workers.

    Args:
        schedule: The runs.
        workers: They carry the runs out.
        display: It shows the progress.
        timeout: Seconds that a run may take in all; then it has failed. 0: any time.
        stall: Seconds without progress after which a run's worker is killed and replaced. 0: never.
    """

    def __init__(
        self,
        schedule: Schedule,
        workers: Workers,
        display: Display,
        *,
        timeout: float = 0.0,
        stall: float = 0.0,
    ) -> None:
        self.schedule, self.workers, self.display = schedule, workers, display
        self.timeout, self.stall = timeout, stall
        self.failed_starts = 0  # in a row
        self.is_stopping = False
        self.error: StateError | None = None  # why no run can continue
        self.read_at = 0.0

    def run(self, is_pause_wanted: Callable[[], bool] = lambda: False) -> None:
        """Run everything that waits; when asked to pause, let running runs save a checkpoint and return.

        Raises:
            StateError: The disk is full or closed, or workers cannot be started at all.
        """
        try:
            while self.schedule.count("running") or (self.schedule.count("waiting") and not self.is_stopping):
                if is_pause_wanted() and not self.is_stopping:
                    self.display.note("stopping: every running run saves a checkpoint ...")
                    self._stop()
                self._submit_waiting()
                for ended in self.workers.wait(WAIT_SECONDS):
                    self._take_end(ended)
                self._watch_running()
                self.display.refresh(self.schedule)
            if self.error is not None:
                raise self.error
        finally:
            self.workers.close()
            for item in self.schedule.runs:
                if item.state in ("running", "waiting"):
                    item.state = "stopped"

    def _stop(self) -> None:
        self.is_stopping = True
        self.workers.pause()

    def _submit_waiting(self) -> None:
        now = self.schedule.now()
        for item in self.schedule.in_state("waiting"):
            if self.is_stopping or self.schedule.count("running") >= self.workers.size:
                return
            if item.not_before > now:
                continue
            item.update = newest_checkpoint(item.run.folder)
            if item.update > item.resumed_at:
                item.deaths_in_vain = 0  # it made progress: nodes may come and go
            if item.update:
                self.display.note(f"{item.run.name}: resumes at update {item.update}")
            item.resumed_at, item.kill_reason = item.update, ""
            item.state, item.started, item.progressed = "running", self.schedule.now(), self.schedule.now()
            item.record_stamp, item.change = _stamp(item.run.folder / RECORD), None
            self.workers.submit(item.run)

    def _watch_running(self) -> None:
        """Read from the runs' folders how far they are, and kill what is over its time or stands still."""
        now = self.schedule.now()
        if now - self.read_at < min(PROGRESS_SECONDS, self.timeout or PROGRESS_SECONDS):
            return
        self.read_at = now
        for item in self.schedule.in_state("running"):
            change = last_change(item.run.folder)
            if change != item.change:
                item.change, item.progressed = change, now
                item.update = max(item.resumed_at, newest_checkpoint(item.run.folder))
                update, item.text = last_evaluation(item.run.folder)
                item.update = max(item.update, update)
            if item.kill_reason:
                continue
            if self.timeout and item.seconds + now - item.started > self.timeout:
                item.kill_reason = f"it took longer than its timeout ({duration(self.timeout)})"
            # Of a run on a node that does not see the results folder nothing is known until it ends.
            elif self.stall and self.schedule.idle_seconds(item) > self.stall and item.run.folder.is_dir():
                item.kill_reason = f"it made no progress for {duration(self.stall)}"
            if item.kill_reason:
                self.workers.kill(item.run.folder)

    def _take_end(self, ended: Ended) -> None:
        item = next(item for item in self.schedule.runs if item.run.folder == ended.folder)
        item.seconds += self.schedule.now() - item.started
        for note in ended.notes:
            self.display.note(f"{item.run.name}: {note}")
        if not ended.has_started and not item.kill_reason:
            item.state, item.not_before = "waiting", self.schedule.now() + IN_USE_SECONDS
            self.failed_starts += 1
            if self.failed_starts >= MAX_DEATHS:
                self.error = StateError(f"workers cannot be started: {ended.text}")
                self._stop()
            return
        self.failed_starts = 0
        if ended.code not in set(Exit):
            self._take_death(item, ended.text)
            return
        code = Exit(ended.code)
        if code is Exit.FINISHED:
            item.state, item.text = "finished", _reported(item.run.folder)
            self.display.note(f"finished  {item.run.name}: {item.text}")
        elif code is Exit.PAUSED:
            # Somebody else may have asked the worker alone: then its run resumes.
            item.state, item.text = "stopped" if self.is_stopping else "waiting", ended.text
        elif code is Exit.IN_USE:
            item.attempts += 1
            item.state, item.text = "waiting", ended.text
            item.not_before = self.schedule.now() + IN_USE_SECONDS
            if item.attempts >= MAX_ATTEMPTS:
                item.state = "stopped"
                self.display.note(f"left to the process that holds it: {item.run.name}")
        else:
            self._fail(item, self._error_of(item, ended))
            if code is Exit.UNWRITABLE:
                self.error = UnwritableError(
                    f"cannot write to {item.run.folder}: the disk is full or read-only. Free some "
                    "space or choose another folder (--out); the same command then resumes."
                )
                self._stop()

    def _take_death(self, item: ScheduledRun, text: str) -> None:
        """Queue a run whose worker died again, unless it died too often."""
        text = item.kill_reason or text
        item.deaths += 1
        item.deaths_in_vain += 1
        is_over_time = bool(item.kill_reason and self.timeout and item.seconds > self.timeout)
        if is_over_time:
            write_failure(item, f"TimeoutError: {text}")
            self._fail(item, f"TimeoutError: {text}")
        elif self.is_stopping:
            item.state, item.text = "stopped", text
        elif item.deaths_in_vain < MAX_DEATHS or newest_checkpoint(item.run.folder) > item.resumed_at:
            item.state = "waiting"
            self.display.note(f"{item.run.name}: its worker was lost ({text}); another one resumes it")
        else:
            error = f"its worker process died {item.deaths_in_vain} times, the last time: {text}"
            write_failure(item, f"WorkerDiedError: {error}")
            self._fail(item, error)

    def _fail(self, item: ScheduledRun, error: str) -> None:
        item.state, item.text = "failed", error
        self.display.note(f"failed    {item.run.name}: {error}")

    def _error_of(self, item: ScheduledRun, ended: Ended) -> str:
        """Return what the run's record says if this worker wrote it, else the worker's own words."""
        path = item.run.folder / RECORD
        record = _failure(path) if _stamp(path) != item.record_stamp else None
        return (record.error if record is not None else None) or ended.text


def newest_checkpoint(folder: Path) -> int:
    """Return the update of a run's newest checkpoint; 0 if there is none."""
    updates = [path.name.removeprefix("update-") for path in (folder / CHECKPOINTS).glob("update-*")]
    return max((int(update) for update in updates if update.isdecimal() and len(update) < 20), default=0)


def last_evaluation(folder: Path) -> tuple[int, str]:
    """Return the update of a run's last evaluation, and its metrics as text; 0 and nothing before the first.

    Invalid lines of a curve are left out.
    """
    try:
        lines = (folder / CURVE).read_text(encoding="utf-8").splitlines()
        rows = [parse_json(line) for line in lines[-1:]]
        best = next((row for line in reversed(lines) if (row := parse_json(line))["is_best"]), None)
        if not rows:
            return 0, ""
        update, (name, value) = int(rows[0]["update"]), next(iter(rows[0]["validation"].items()))
        least = f" (best {float(best['validation'][name]):.4g})" if best is not None else ""
        return update, f"{name} {float(value):.4g}{least}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return 0, ""


def last_change(folder: Path) -> object:
    """Return something that differs as soon as a file of a run, or a checkpoint, was written."""
    found = set()
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):  # it was removed meanwhile
                about = path.stat()
                found.add((path.name, about.st_mtime_ns, about.st_size))
    return found


def write_failure(item: ScheduledRun, error: str) -> None:
    """Leave a failed record in a run's folder; where even that fails, the summary still says it.

    A finished run, which was only to be swept, keeps its record, and so does a newer version's.
    """
    path = item.run.folder / RECORD
    if path.exists() and _failure(path) is None:
        return
    record = replace(
        blank_record(item.run.config, command=item.run.command),
        updates=item.update,
        resumed=max(0, item.deaths - 1),
        error=error,
    )
    with contextlib.suppress(OSError):
        record.write(path)


def _reported(folder: Path) -> str:
    """Write the numbers by which a run is judged, without those that are not finite."""
    try:
        record = read_record(folder / RECORD)
        found = {name: record.metric(name) for name in record.reports}
    except (DataError, OSError):
        return ""
    return ", ".join(f"{name} {value:.4g}" for name, value in found.items() if value == value)


def _failure(path: Path) -> RunRecord | None:
    """Read the record of a run that failed; None for any other."""
    try:
        record = read_record(path)
    except (DataError, OSError):
        return None
    return record if record.status == "failed" else None


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@contextmanager
def holding(out: Path, settings: Sequence[str], shard: tuple[int, int]) -> Iterator[None]:
    """Keep other grids of these settings out of a results folder; shards may share it, each once."""
    part, parts = shard
    with contextlib.ExitStack() as stack:
        for setting in settings:
            folder = out / LOCK_FOLDER / setting
            try:
                stack.enter_context(locked(folder / f"{part}-of-{parts}"))
                for other in folder.glob("*-of-*"):
                    if not other.name.endswith(f"-of-{parts}"):
                        with locked(other):  # raises if a grid that is divided otherwise holds it
                            pass
            except InUseError as error:
                raise StateError(
                    f"another grid of {setting} runs in {out} (process {error.holder}). Wait for it, end it, "
                    "or choose another folder (--out). To share the work, every part must be a shard: --set "
                    "shard=1/2 and --set shard=2/2."
                ) from error
        yield
