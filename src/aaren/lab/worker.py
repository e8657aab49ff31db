"""One run of a grid in a process of its own: train in the run's folder, sweep, and exit with a typed code.

The folder is all that scheduler and worker share: its lock, checkpoints, learning curve and record. Whoever
starts the process learns the rest from its exit code.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from pathlib import Path

import torch
import torch._dynamo  # the first optimiser of a process imports it: once in the fork server, not in every run

from aaren.engine.loop import DivergedError, PausedError, pausing_on_signals
from aaren.engine.progress import Observer
from aaren.engine.run import train
from aaren.engine.setting import import_setting
from aaren.engine.use import Sweep, SweepRow, sweep_run
from aaren.errors import ConfigError, UnwritableError
from aaren.files.lock import InUseError
from aaren.lab.plan import PlannedRun

LOG, NOTES = "log", "notes"  # in a worker's scratch folder: what was printed; what a person should know
GRACE_SECONDS = 5.0  # for a last checkpoint when the scheduler is gone


class Exit(IntEnum):
    """How a worker ends; any other exit code is a death. 1 is left out: Python's own for a crash."""

    FINISHED = 0
    FAILED = 10
    DIVERGED = 11
    MISUSE = 12  # a config that cannot be
    PAUSED = 13
    IN_USE = 14  # another process holds the folder
    UNWRITABLE = 15  # the disk is full or read-only: no other run would do better


def carry_out(
    run: PlannedRun, *, threads: int, is_pause_wanted: Callable[[], bool], say: Callable[[str], None]
) -> tuple[Exit, str]:
    """Train a run, or resume it, and sweep what was trained; return how it ended, and the error if any.

    Args:
        run: What to do, and where.
        threads: Of torch, where the config does not fix them.
        is_pause_wanted: See `aaren.engine.loop.fit`; also asked between two values of a sweep.
        say: Called with messages for the user.
    """
    torch.set_num_threads(threads)

    def pause_sweep(sweep: Sweep, row: SweepRow) -> None:
        if is_pause_wanted():
            raise PausedError(f"stopped after {sweep.key}={row.value}; the same command sweeps it again.")

    try:
        import_setting(run.config.setting)  # whoever planned the run has imported it
        train(
            run.config, run.folder, command=run.command, observer=_Notes(say), is_pause_wanted=is_pause_wanted
        )
        for sweep in run.sweeps:
            if not sweep.file(run.folder).is_file():
                sweep_run(run.folder, sweep, on_row=partial(pause_sweep, sweep))
    except Exception as error:  # a failed run must not stop the grid
        return _exit_of(error), str(error) if isinstance(error, PausedError) else _text(error)
    return Exit.FINISHED, ""


def main(run: PlannedRun, threads: int, scratch: Path, environment: Mapping[str, str]) -> None:
    """Carry out a run in this worker process, and exit.

    Args:
        run: The run.
        threads: See `carry_out`.
        scratch: A new folder for this worker's log and notes.
        environment: Of whoever asks: a fork server keeps that of its own start.
    """
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the scheduler, which then asks for a pause
    os.environ.clear()
    os.environ.update(environment)
    scratch.mkdir(parents=True)
    with (scratch / LOG).open("w", encoding="utf-8") as log:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
    faulthandler.enable(file=2)
    threading.Thread(target=_follow_scheduler, daemon=True).start()

    def say(text: str) -> None:
        with contextlib.suppress(OSError), (scratch / NOTES).open("a", encoding="utf-8") as notes:
            notes.write(text + "\n")

    with pausing_on_signals() as is_pause_wanted:
        code, error = carry_out(run, threads=threads, is_pause_wanted=is_pause_wanted, say=say)
    with contextlib.suppress(OSError, ValueError):
        print(error, file=sys.stderr, flush=True)
    # All is on the disk. A fork server's child ends without taking torch down module by module, but first
    # gives back what libraries keep until the end, such as semaphores; no thread may hold it up for long.
    last = threading.Timer(GRACE_SECONDS, os._exit, args=(code,))
    last.daemon = True
    last.start()
    raise SystemExit(code)


class _Notes(Observer):
    """Passes on messages for the user; all else is in the run's files."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def say(self, message: str) -> None:
        self._say(message)


def _follow_scheduler() -> None:
    """Save a checkpoint and end when the scheduler is gone, for any reason."""
    scheduler = multiprocessing.parent_process()
    if scheduler is not None:
        scheduler.join()
        last = threading.Timer(GRACE_SECONDS, os._exit, args=(Exit.PAUSED,))
        last.daemon = True
        last.start()
        os.kill(os.getpid(), signal.SIGTERM)


def _exit_of(error: Exception) -> Exit:
    codes: tuple[tuple[type[Exception], Exit], ...] = (
        (PausedError, Exit.PAUSED),
        (InUseError, Exit.IN_USE),
        (UnwritableError, Exit.UNWRITABLE),
        (DivergedError, Exit.DIVERGED),
        (ConfigError, Exit.MISUSE),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), Exit.FAILED)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
