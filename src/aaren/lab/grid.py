"""The scheduler: hand waiting runs to workers, and let nothing that happens to one of them stop the others.

A worker that dies is replaced and its run goes on from its checkpoint; a run that kills its workers again and
again is given up, and says so in its record. Knows nothing of how workers run things, nor of how it is shown.
"""

from collections.abc import Callable
from typing import Protocol

from aaren.errors import StateError
from aaren.lab.board import Board, Entry
from aaren.lab.crew import Crew
from aaren.lab.failure import write_failure
from aaren.lab.job import Job, Message

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
