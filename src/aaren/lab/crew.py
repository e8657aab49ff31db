"""Workers on this machine: processes of their own, started once, given one job after the other.

`Crew` is what the scheduler needs of any set of workers; `LocalCrew` is the one without a cluster. Knows
nothing of which runs there are.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from typing import IO, Protocol

from aaren.lab.job import Job, Message
from aaren.lab.worker import PAUSE

LAST_LINES = 3  # of a dead worker's stderr that are told
CLOSE_SECONDS = 10.0
LAST_WORDS_SECONDS = 5.0


class Crew(Protocol):
    """A number of places for workers, each empty, or held by one."""

    size: int

    def hire(self, place: int) -> None:
        """Start a worker at a place; it will tell that it is ready."""

    def give(self, place: int, job: Job) -> None:
        """Give a job to the worker at a place, which is ready."""

    def listen(self, seconds: float) -> tuple[int, Message] | None:
        """Return the next message and the place it comes from; None when there is none for so long.

        `died` leaves the place empty.
        """

    def pause(self) -> None:
        """Ask all workers to save what they do and stop."""

    def close(self) -> None:
        """End all workers."""


class LocalCrew:
    """Worker processes on this machine."""

    def __init__(self, size: int, *, threads: int) -> None:
        self.size, self.threads = size, threads
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._messages: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()

    def hire(self, place: int) -> None:
        """See Crew."""
        # Not multiprocessing: a fresh interpreter that needs no guard in the caller's main module, and whose
        # stdin is also the line by which it learns that we are gone.
        complaints = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        process = subprocess.Popen(
            # -P: nothing that happens to lie in the current folder stands in for a library.
            [sys.executable, "-P", "-m", "aaren.lab.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            encoding="utf-8",
            env=self._environment(),
            start_new_session=True,  # Ctrl-C is for us: we ask the workers to pause
        )
        self._processes[place] = process
        threading.Thread(target=self._hear, args=(place, process, complaints), daemon=True).start()

    def give(self, place: int, job: Job) -> None:
        """See Crew."""
        self._write(self._processes[place], job.to_json())

    def listen(self, seconds: float) -> tuple[int, Message] | None:
        """See Crew."""
        try:
            return self._messages.get(timeout=seconds)
        except queue.Empty:
            return None

    def pause(self) -> None:
        """See Crew."""
        for process in self._processes.values():
            self._write(process, PAUSE)

    def close(self) -> None:
        """See Crew."""
        for process in self._processes.values():
            self._hang_up(process)
        for process in self._processes.values():
            try:
                process.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _write(self, process: "subprocess.Popen[str]", line: str) -> None:
        if process.stdin is not None:
            # It died, and perhaps its end was closed already: the thread that hears it will tell.
            with contextlib.suppress(OSError, ValueError):
                process.stdin.write(line + "\n")
                process.stdin.flush()

    def _hang_up(self, process: "subprocess.Popen[str]") -> None:
        if process.stdin is not None:
            with contextlib.suppress(OSError):  # what it was not told any more does not matter
                process.stdin.close()

    def _hear(self, place: int, process: "subprocess.Popen[str]", complaints: IO[str]) -> None:
        """Pass on what a worker tells, to its end."""
        reader = threading.Thread(target=self._pass_on, args=(place, process), daemon=True)
        reader.start()
        code = process.wait()
        # Its last words come first; but a process that it left behind may hold its stdout for ever.
        reader.join(LAST_WORDS_SECONDS)
        self._hang_up(process)
        with complaints:
            complaints.seek(0)
            last = [line.strip() for line in complaints.read().splitlines() if line.strip()][-LAST_LINES:]
        self._messages.put((place, Message(event="died", text="; ".join([_ending(code), *last]))))

    def _pass_on(self, place: int, process: "subprocess.Popen[str]") -> None:
        if process.stdout is None:
            return
        with process.stdout:
            for line in process.stdout:
                # A worker that is killed while it writes leaves half a line.
                with contextlib.suppress(ValueError, TypeError):
                    self._messages.put((place, Message.from_json(line)))

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(entry for entry in sys.path if entry)  # a user's own settings are found too
        return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(self.threads)}


def _ending(code: int) -> str:
    """Say how a process ended.

    >>> _ending(-9), _ending(1)
    ('killed by SIGKILL', 'ended with exit code 1')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
