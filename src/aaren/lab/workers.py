"""Workers, one run each: processes on this machine, or Ray tasks (`aaren.lab.ray_workers`).

A worker trains in the run's folder, sweeps, and exits with a typed code. The folder is all that scheduler and
worker share: its lock, checkpoints, learning curve and record.
"""

import contextlib
import faulthandler
import itertools
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from multiprocessing import connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, Protocol, cast

import torch
import torch._dynamo  # the first optimiser of a process imports it: once in the fork server, not in every run

from aaren.engine.clock import num_cores
from aaren.engine.loop import DivergedError, PausedError, pausing_on_signals
from aaren.engine.progress import Observer
from aaren.engine.run import train
from aaren.engine.setting import import_setting
from aaren.engine.use import Sweep, SweepRow, sweep_run
from aaren.errors import ConfigError, UnwritableError
from aaren.fields import build_assigned
from aaren.files.lock import InUseError
from aaren.files.stdio import flush_or_drop, write_line
from aaren.lab.plan import PlannedRun, parse_shard
from aaren.lab.records import append

MOST_WORKERS = 1024
LAST_LINES = 3  # of a dead worker's log that are shown
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


class Ended(NamedTuple):
    """A worker that ended."""

    folder: Path  # of its run
    code: int  # an `Exit`, or how it died
    text: str  # the error, or what is known of its death
    notes: Sequence[str] = ()  # what a person should know
    has_started: bool = True  # it came as far as its run


class Workers(Protocol):
    """Processes that each carry out one run."""

    size: int  # how many at once

    def submit(self, run: PlannedRun) -> None:
        """Start a run."""

    def wait(self, seconds: float) -> list[Ended]:
        """Return the workers that ended, at the latest after some seconds."""

    def pause(self) -> None:
        """Ask all workers to save a checkpoint and end."""

    def kill(self, folder: Path) -> None:
        """End the worker of a run at once; `wait` returns it."""

    def close(self) -> None:
        """End all workers at once."""


class LocalWorkers:
    """Processes on this machine, forked from a server that has imported torch: 0.05 s each, not 2 to 3 s."""

    def __init__(self, size: int, *, threads: int) -> None:
        self.size, self.threads = size, threads
        self._processes: dict[Path, tuple[BaseProcess, Path]] = {}  # by run folder, with a scratch folder
        self._scratch = tempfile.TemporaryDirectory(prefix="aaren-grid-")
        self._numbers = itertools.count()

    def submit(self, run: PlannedRun) -> None:
        scratch = Path(self._scratch.name) / str(next(self._numbers))
        there = replace(run, folder=run.folder.absolute())
        with _only_for_workers(OMP_NUM_THREADS=str(self.threads), PYTHONSAFEPATH="1"):
            process = _context().Process(
                target=work, args=(there, self.threads, scratch, dict(os.environ)), name=run.name
            )
            process.start()
        self._processes[run.folder] = process, scratch

    def wait(self, seconds: float) -> list[Ended]:
        sentinels = [process.sentinel for process, _ in self._processes.values()]
        if not sentinels:
            time.sleep(seconds)
            return []
        connection.wait(sentinels, timeout=seconds)
        found = []
        for folder, (process, scratch) in list(self._processes.items()):
            if not process.is_alive():
                del self._processes[folder]
                process.join()
                found.append(_ended(folder, cast("int", process.exitcode), scratch))
                process.close()
        return found

    def pause(self) -> None:
        for process, _ in self._processes.values():
            process.terminate()

    def kill(self, folder: Path) -> None:
        self._processes[folder][0].kill()

    def close(self) -> None:
        for process, _ in self._processes.values():
            process.kill()
        for process, _ in self._processes.values():
            process.join()
        self._processes.clear()
        self._scratch.cleanup()


def _context() -> ForkServerContext | SpawnContext:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


@contextmanager
def _only_for_workers(**variables: str) -> Iterator[None]:
    """Start processes with an environment of theirs, and without the caller's main module.

    The main module is nothing that a run needs, and a script of the caller's may lack the guard that
    multiprocessing asks for.
    """
    before, main = {name: os.environ.get(name) for name in variables}, sys.modules["__main__"]
    os.environ.update(variables)
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _ended(folder: Path, code: int, scratch: Path) -> Ended:
    log, notes = (_read_lines(scratch / name) for name in (LOG, NOTES))
    if code not in set(Exit):
        log = [describe_exit(code), *log[-LAST_LINES:]]
    text = "\n".join(log[-1:]) if code in set(Exit) else "; ".join(log)
    return Ended(folder, code, text, notes, has_started=scratch.is_dir())


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]


def describe_exit(code: int) -> str:
    """Say how a process ended.

    >>> describe_exit(-9), describe_exit(1)
    ('killed by SIGKILL', 'ended with exit code 1')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


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
        record = train(
            run.config, run.folder, command=run.command, observer=_Notes(say), is_pause_wanted=is_pause_wanted
        )
        for sweep in run.sweeps:
            if sweep.key not in record.sweeps:
                sweep_run(run.folder, sweep, on_row=partial(pause_sweep, sweep))
        append(run.folder)
    except Exception as error:  # a failed run must not stop the grid
        text = str(error) if isinstance(error, PausedError) else f"{type(error).__name__}: {error}"
        return _exit_of(error), text
    return Exit.FINISHED, ""


def work(run: PlannedRun, threads: int, scratch: Path, environment: Mapping[str, str]) -> None:
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
    write_line(error, sys.stderr)
    for stream in (sys.stdout, sys.stderr):  # or multiprocessing does, and a full disk becomes exit code 1
        flush_or_drop(stream)
    # All is on the disk. A fork server's child ends without taking torch down module by module, but first
    # gives back what libraries keep until the end, such as semaphores; no thread may hold it up for long.
    _exit_in_the_end(code)
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
        _exit_in_the_end(Exit.PAUSED)
        os.kill(os.getpid(), signal.SIGTERM)


def _exit_in_the_end(code: Exit) -> None:
    """End this process after some seconds, whatever its threads do."""
    last = threading.Timer(GRACE_SECONDS, os._exit, args=(code,))
    last.daemon = True
    last.start()


def _exit_of(error: Exception) -> Exit:
    codes: tuple[tuple[type[Exception], Exit], ...] = (
        (PausedError, Exit.PAUSED),
        (InUseError, Exit.IN_USE),
        (UnwritableError, Exit.UNWRITABLE),
        (DivergedError, Exit.DIVERGED),
        (ConfigError, Exit.MISUSE),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), Exit.FAILED)


@dataclass(frozen=True, slots=True)
class Resources:
    """With what a grid is run, and for how long; 0 workers or threads: as many as fit the machine."""

    workers: int = 0
    threads: int = 0  # of each worker
    ray: str = ""  # the address of a Ray cluster, or `local`; empty: processes on this machine
    shard: str = "1/1"  # only part I of N, for other schedulers
    timeout: float = 0.0  # minutes after which a run has failed; 0: never
    stall: float = 120.0  # minutes without progress after which a worker is replaced; 0: never
    retry_failed: bool = False
    main_rows: bool = False  # only the first table of each setting

    def __post_init__(self) -> None:
        """Report every fault of these settings together."""
        faults = [
            f"{name} must be 0 to {MOST_WORKERS}; got {getattr(self, name)}"
            for name in ("workers", "threads")
            if not 0 <= getattr(self, name) <= MOST_WORKERS
        ]
        faults += [
            f"{name} must be 0 or more minutes; got {getattr(self, name):g}"
            for name in ("timeout", "stall")
            if getattr(self, name) < 0
        ]
        if faults:
            raise ConfigError("; ".join(faults) + ".")
        parse_shard(self.shard)

    @classmethod
    def of(cls, workers: int, assignments: Sequence[str]) -> "Resources":
        """Read `KEY=VALUE`, as after --set.

        >>> Resources.of(2, ["threads=1", "timeout=90"]).timeout
        90.0
        """
        return build_assigned(cls, assignments, workers=workers)

    def sized(self, waiting: int) -> "Resources":
        """Fit to the cores and to the work: one thread each as soon as runs can share the cores."""
        if (self.workers and self.threads) or not waiting:
            return replace(self, workers=self.workers or 1, threads=self.threads or 1)
        cores = self._cores()
        workers = self.workers or max(1, min(cores // max(1, self.threads), waiting))
        return replace(self, workers=workers, threads=self.threads or max(1, cores // workers))

    def start(self) -> Workers:
        """Return the workers."""
        if self.ray:
            from aaren.lab.ray_workers import RayWorkers

            return RayWorkers(self.ray, self.workers, threads=self.threads)
        return LocalWorkers(self.workers, threads=self.threads)

    def _cores(self) -> int:
        if self.ray not in ("", "local"):
            from aaren.lab.ray_workers import cluster_cpus

            return cluster_cpus(self.ray)
        return num_cores()
