"""What is known of a grid while it runs: every run's state, and how long the rest will take.

Holds facts only; views show them and the scheduler changes them.

The record of a run whose process died again and again and could not write one itself.

The scheduler: hand waiting runs to workers, and let nothing that happens to one of them stop the others.

A worker that dies is replaced and its run goes on from its checkpoint; a run that kills its workers again and
again is given up, and says so in its record. Knows nothing of how workers run things, nor of how it is shown.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from aaren.engine.record import read_record
from aaren.engine.run import RECORD, blank_record
from aaren.errors import DataError, StateError
from aaren.lab.crew import Crew
from aaren.lab.job import Job, Message
from aaren.lab.plan import PlannedRun

State: TypeAlias = Literal["waiting", "running", "finished", "failed", "stopped"]

TELLING_SECONDS = 5.0  # an estimate from which a run says how good estimates are


@dataclass(kw_only=True, slots=True, eq=False)
class Entry:
    """One run on the board."""

    run: PlannedRun
    estimate: float | None = None  # seconds
    state: State = "waiting"
    text: str = ""  # the latest metric, or the error
    has_begun: bool = False  # its data is open
    first_update: int = 0  # where it went on
    update: int = 0
    max_updates: int = 0
    began: float = 0.0
    seconds: float = 0.0  # once finished
    deaths: int = 0  # workers that died of it, or with it
    deaths_in_vain: int = 0  # of them, since its checkpoints last got on
    tries: int = 0  # at a folder that others hold
    not_before: float = 0.0

    @property
    def share(self) -> float:
        """Return how much of its updates a running run has behind it."""
        return min(1.0, self.update / self.max_updates) if self.max_updates else 0.0


@dataclass(kw_only=True, slots=True, eq=False)
class Board:
    """All runs of a grid."""

    entries: list[Entry]
    workers: int = 1
    done_before: int = 0  # runs whose records were there already
    now: Callable[[], float] = time.monotonic
    began: float = field(default=0.0)

    @classmethod
    def of(
        cls,
        runs: Sequence[PlannedRun],
        *,
        estimates: Mapping[Path, float],
        workers: int,
        done_before: int = 0,
    ) -> "Board":
        """Put runs on a board, all waiting."""
        entries = [Entry(run=run, estimate=estimates.get(run.folder)) for run in runs]
        board = cls(entries=entries, workers=workers, done_before=done_before)
        board.began = board.now()
        return board

    def count(self, state: State) -> int:
        """Count the runs in a state."""
        return sum(entry.state == state for entry in self.entries)

    def in_state(self, state: State) -> list[Entry]:
        """List the runs in a state."""
        return [entry for entry in self.entries if entry.state == state]

    def seconds_left(self) -> float | None:
        """Estimate the time to the end; None while nothing at all is known.

        Estimates are corrected by how the finished runs of this grid compare with theirs. Those of short runs
        tell nothing: opening data and testing, which no estimate counts, is most of them.
        """
        finished = self.in_state("finished")
        known = [
            (entry.seconds, entry.estimate)
            for entry in finished
            if entry.estimate is not None and entry.estimate >= TELLING_SECONDS
        ]
        correction = sum(took for took, _ in known) / sum(guess for _, guess in known) if known else 1.0
        guesses = [entry.estimate * correction for entry in self.entries if entry.estimate is not None]
        guesses += [entry.seconds for entry in finished if entry.estimate is None]
        usual = sum(guesses) / len(guesses) if guesses else None
        left = [self._left(entry, correction, usual) for entry in self.in_state("running")]
        left += [self._guess(entry, correction, usual) for entry in self.in_state("waiting")]
        if any(seconds is None for seconds in left):
            return None
        seconds = [part for part in left if part is not None]
        return max([sum(seconds) / max(1, self.workers), *seconds]) if seconds else 0.0

    def _guess(self, entry: Entry, correction: float, usual: float | None) -> float | None:
        return usual if entry.estimate is None else entry.estimate * correction

    def _left(self, entry: Entry, correction: float, usual: float | None) -> float | None:
        spent = self.now() - entry.began
        made = entry.update - entry.first_update
        if made > 0.05 * entry.max_updates:  # its own pace says more than others' times
            return spent * (entry.max_updates - entry.update) / made
        guess = self._guess(entry, correction, usual)
        return None if guess is None else max(0.0, guess - spent)


def write_failure(entry: Entry, error: str) -> None:
    """Leave a failed record in a run's folder; where even that fails, the summary still says it.

    A finished run, of which only a sweep was asked, keeps its record, and so does a newer version's.
    """
    path = entry.run.folder / RECORD
    if path.exists() and not _is_of_a_failure(path):
        return
    record = replace(
        blank_record(entry.run.config, command=entry.run.command),
        updates=entry.update,
        resumed=max(0, entry.deaths - 1),
        error=error,
    )
    with contextlib.suppress(OSError):
        record.write(path)


def _is_of_a_failure(path: Path) -> bool:
    try:
        return read_record(path).status == "failed"
    except (DataError, OSError):
        return False


MAX_DEATHS = 3  # workers that one run may take with it without getting on
MAX_TRIES = 5  # at a run that another process holds
BUSY_SECONDS = 3.0  # between two tries
LISTEN_SECONDS = 0.2


class View(Protocol):
    """Who is shown how a grid goes."""

    def note(self, text: str) -> None:
        """Something happened that stays to be read."""

    def refresh(self, board: Board) -> None:
        """The board may have changed."""


class Grid:
    """A board's runs on a crew's workers."""

    def __init__(self, board: Board, crew: Crew, view: View, *, threads: int) -> None:
        self.board, self.crew, self.view, self.threads = board, crew, view, threads
        self.at_work: dict[int, Entry | None] = {}  # by place: what its worker does; None: not ready yet
        self.idle: set[int] = set()
        self.unborn = 0  # workers in a row that died before they were ready
        self.is_stopping = False
        self.trouble = ""  # why no run can go on

    def run(self, is_pause_wanted: Callable[[], bool] = lambda: False) -> None:
        """Run everything that waits; when asked to pause, save what is running and return.

        Raises:
            StateError: The disk is full or closed, or workers cannot be started at all.
        """
        try:
            while self._is_work_left():
                if is_pause_wanted() and not self.is_stopping:
                    self.view.note("stopping: every running run saves a checkpoint ...")
                    self._stop()
                self._hand_out()
                heard = self.crew.listen(LISTEN_SECONDS)
                if heard is not None:
                    self._hear(*heard)
                self.view.refresh(self.board)
            if self.trouble:
                raise StateError(self.trouble)
        finally:
            self.crew.close()
            for entry in self.board.entries:
                if entry.state in ("running", "waiting"):
                    entry.state = "stopped"

    def _is_work_left(self) -> bool:
        if self.board.count("running"):
            return True
        return not self.is_stopping and self.board.count("waiting") > 0

    def _stop(self) -> None:
        self.is_stopping = True
        self.crew.pause()

    def _hand_out(self) -> None:
        """Give work to every idle worker, and start workers while there is more work than they can do."""
        if self.is_stopping:
            return
        for entry in self.board.in_state("waiting"):
            if entry.not_before > self.board.now():
                continue
            if self.idle:
                place = self.idle.pop()
                entry.state, entry.began = "running", self.board.now()
                self.at_work[place] = entry
                job = Job(
                    config=entry.run.config,
                    folder=entry.run.folder,
                    command=entry.run.command,
                    threads=self.threads,
                    sweeps=entry.run.sweeps,
                )
                self.crew.give(place, job)
                continue
            coming = sum(entry is None for entry in self.at_work.values())
            empty = [place for place in range(self.crew.size) if place not in self.at_work]
            if not empty or coming >= self.board.count("waiting"):
                break
            self.at_work[empty[0]] = None
            self.crew.hire(empty[0])

    def _hear(self, place: int, message: Message) -> None:
        entry = self.at_work.get(place)
        if message.event == "ready":
            self.unborn = 0
            self.idle.add(place)
        elif message.event == "died":
            self.at_work.pop(place, None)
            if place in self.idle:  # it had nothing to do: nothing is lost, and it could be started
                self.idle.remove(place)
            else:
                self._mourn(entry, message.text)
        elif entry is not None:
            self._note_progress(entry, message)
            if entry.state != "running":
                self.at_work[place] = None
                self.idle.add(place)

    def _note_progress(self, entry: Entry, message: Message) -> None:
        if message.max_updates:
            entry.update, entry.max_updates = message.update, message.max_updates
        if message.event == "begin":
            if message.update > entry.first_update:  # its checkpoints get on: nodes may come and go
                entry.deaths_in_vain = 0
            entry.has_begun, entry.first_update = True, message.update
            if message.update:
                self.view.note(f"{entry.run.name}: goes on at update {message.update}")
        elif message.event in ("progress", "look"):
            entry.text = message.text or entry.text
        elif message.event == "say":
            self.view.note(f"{entry.run.name}: {message.text}")
        elif message.event == "finished":
            entry.state, entry.text, entry.seconds = "finished", message.text, message.seconds
        elif message.event == "paused":
            entry.state, entry.text = "stopped", message.text
        elif message.event == "failed":
            self._fail(entry, message.text)
        elif message.event == "unwritable":
            self._fail(entry, message.text)
            self.trouble = message.text.removeprefix("StateError: ")
            self._stop()
        elif message.event == "busy":
            entry.tries += 1
            if entry.tries >= MAX_TRIES:
                entry.state, entry.text = "stopped", message.text
                self.view.note(f"left to the process that holds it: {entry.run.name}")
            else:
                entry.state, entry.not_before = "waiting", self.board.now() + BUSY_SECONDS
        if entry.state == "finished":
            self.view.note(f"finished  {entry.run.name}: {entry.text}")

    def _fail(self, entry: Entry, error: str) -> None:
        entry.state, entry.text = "failed", error
        self.view.note(f"failed    {entry.run.name}: {error}")

    def _mourn(self, entry: Entry | None, text: str) -> None:
        """Take in that a worker died: its run, if it had one, waits again, unless it was one too many."""
        if entry is None or entry.state != "running":
            self.unborn += 1
            if self.unborn >= MAX_DEATHS:
                self.trouble = f"workers cannot be started: {text}"
                self._stop()
            return
        entry.deaths += 1
        entry.deaths_in_vain += 1
        if self.is_stopping:
            entry.state, entry.text = "stopped", text
        elif entry.deaths_in_vain < MAX_DEATHS:
            entry.state = "waiting"
            self.view.note(f"{entry.run.name}: its worker was lost ({text}); it goes on with another one")
        else:
            error = f"its worker process died {entry.deaths_in_vain} times, the last time: {text}"
            write_failure(entry, f"WorkerDiedError: {error}")
            self._fail(entry, error)
