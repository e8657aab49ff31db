"""Carry out the runs of a grid: in processes of this machine, or as tasks of a Ray cluster.

A run's folder is all that its worker and the grid share: lock, checkpoints and record. A worker that dies is
replaced, and its run resumes from the last checkpoint. When a run has finished, the grid appends its record.
"""

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple, TypeAlias

import torch
import torch._dynamo  # the first optimiser of a process imports it: once in the fork server, not in every run

from aaren.engine.loop import PausedError, pausing_on_signals
from aaren.engine.progress import duration
from aaren.engine.record import num_cores
from aaren.engine.run import train
from aaren.engine.setting import import_setting
from aaren.engine.use import SweepRow, sweep_run
from aaren.errors import ConfigError, UnwritableError, require_extra
from aaren.files.lock import InUseError
from aaren.lab.plan import PlannedRun
from aaren.lab.records import append

MAX_DEATHS = 3  # workers that a run may lose
WAIT_SECONDS = 0.2
GRACE_SECONDS = 5.0  # for a last checkpoint when the grid is gone
CONNECT_SECONDS = 5.0

State: TypeAlias = Literal["finished", "failed", "paused", "in use", "unwritable"]


class Answer(NamedTuple):
    """How a run ended."""

    state: State
    text: str  # its numbers, or the error


@dataclass(kw_only=True, slots=True)
class Outcome:
    """How the runs of a grid ended."""

    finished: int = 0
    failed: list[tuple[PlannedRun, str]] = field(default_factory=list)
    stopped: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Return how long it has taken so far."""
        return time.monotonic() - self.began

    def take(self, run: PlannedRun, answer: Answer, say: Callable[[str], None], *, total: int) -> None:
        """Count a run that ended, and append its record."""
        if answer.state == "unwritable":
            raise UnwritableError(answer.text)
        if answer.state == "finished":
            append(run.folder)
            self.finished += 1
            passed = duration(self.seconds)
            say(f"finished {self.finished} of {total} ({passed} so far): {run.name}: {answer.text}")
        elif answer.state == "failed":
            self.failed.append((run, answer.text))
            say(f"failed: {run.name}: {answer.text}")
        elif answer.state == "in use":
            say(f"left to the process that holds it: {run.name}")


def carry_out(run: PlannedRun, threads: int, is_pause_wanted: Callable[[], bool] = lambda: False) -> Answer:
    """Train a run, or resume it, and sweep what was trained.

    Args:
        run: What to do, and where.
        threads: Of torch, where the config does not fix them.
        is_pause_wanted: See `aaren.engine.loop.fit`; also asked between two values of a sweep.
    """
    torch.set_num_threads(threads)

    def pause_sweep(row: SweepRow) -> None:
        if is_pause_wanted():
            raise PausedError(f"stopped after the value {row.value} of a sweep.")

    try:
        import_setting(run.config.setting)  # whoever planned the run has imported it
        record = train(run.config, run.folder, command=run.command, is_pause_wanted=is_pause_wanted)
        for sweep in run.sweeps:
            if sweep.key not in record.sweeps:
                sweep_run(run.folder, sweep, on_row=pause_sweep)
    except Exception as error:  # a failed run must not stop the grid
        if isinstance(error, PausedError):
            return Answer("paused", str(error))
        if isinstance(error, InUseError | UnwritableError):
            return Answer("in use" if isinstance(error, InUseError) else "unwritable", str(error))
        return Answer("failed", f"{type(error).__name__}: {error}")
    numbers = {name: record.metric(name) for name in record.reports}
    return Answer(
        "finished", ", ".join(f"{name} {value:.4g}" for name, value in numbers.items() if value == value)
    )


def run_here(
    runs: Sequence[PlannedRun],
    *,
    workers: int = 0,
    say: Callable[[str], None],
    is_pause_wanted: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Carry out runs in processes of this machine; when asked to pause, every run saves a checkpoint.

    Args:
        runs: In their order.
        workers: How many at once; 0: as many as there are cores.
        say: Called with messages for the user.
        is_pause_wanted: Asked several times a second.

    Raises:
        UnwritableError: The disk is full or read-only: no other run would do better.
    """
    workers = workers or max(1, min(num_cores(), len(runs)))
    threads = max(1, num_cores() // workers)
    outcome, waiting, deaths = Outcome(), deque(runs), Counter[Path]()
    running: list[_Worker] = []
    with tempfile.TemporaryDirectory(prefix="aaren-grid-") as logs:
        try:
            while running or (waiting and not outcome.stopped):
                if is_pause_wanted() and not outcome.stopped:
                    outcome.stopped = True
                    say("stopping: every running run saves a checkpoint ...")
                    for worker in running:
                        worker.process.terminate()
                while waiting and len(running) < workers and not outcome.stopped:
                    running.append(_Worker.start(waiting.popleft(), threads, Path(logs)))
                connection.wait([worker.process.sentinel for worker in running], timeout=WAIT_SECONDS)
                for worker in [worker for worker in running if not worker.process.is_alive()]:
                    running.remove(worker)
                    answer = worker.answer()
                    if answer is None:
                        deaths[worker.run.folder] += 1
                        if deaths[worker.run.folder] < MAX_DEATHS:
                            text = f"its worker was lost ({worker.death()}); another one resumes it"
                            say(f"{worker.run.name}: {text}")
                            waiting.appendleft(worker.run)
                            continue
                        answer = Answer("failed", f"its worker died {MAX_DEATHS} times ({worker.death()})")
                    outcome.take(worker.run, answer, say, total=len(runs))
        finally:
            for worker in running:
                worker.process.kill()
                worker.process.join()
    return outcome


def run_on_ray(
    runs: Sequence[PlannedRun],
    address: str,
    *,
    workers: int = 0,
    say: Callable[[str], None],
    is_pause_wanted: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Carry out runs as tasks of one thread on a Ray cluster, all of whose nodes see the results folder.

    A task whose worker dies is tried again by Ray, and resumes.

    Args:
        runs: In their order.
        address: Of the cluster, `auto` on one of its nodes, or `local` to start one here.
        workers: How many tasks at once on a cluster that is started here; 0: as many as there are cores.
        say: Called with messages for the user.
        is_pause_wanted: Asked several times a second; tasks then end, and resume from their last checkpoints.
    """
    ray = _connect(address, workers)
    outcome = Outcome()
    try:
        task = ray.remote(num_cpus=1, max_retries=MAX_DEATHS - 1)(carry_out)
        tasks = {task.remote(replace(run, folder=run.folder.resolve()), 1): run for run in runs}
        while tasks and not outcome.stopped:
            outcome.stopped = is_pause_wanted()
            for ended in ray.wait(list(tasks), timeout=WAIT_SECONDS)[0]:
                run = tasks.pop(ended)
                try:
                    answer = ray.get(ended)
                except ray.exceptions.RayError as lost:
                    answer = Answer("failed", f"{type(lost).__name__}: {str(lost).splitlines()[0]}")
                outcome.take(run, answer, say, total=len(runs))
    finally:
        ray.shutdown()
    return outcome


def _connect(address: str, workers: int) -> ModuleType:
    """Connect to a cluster, or start one; an address where nothing answers fails within seconds."""
    ray = require_extra("ray", extra="cluster", purpose="--ray")
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    variables |= {name: os.environ[name] for name in ("AAREN_DATA",) if name in os.environ}
    start = {"num_cpus": workers or num_cores(), "include_dashboard": False} if address == "local" else {}
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # Ray itself retries for many minutes
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
        runtime = {"env_vars": variables}
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", runtime_env=runtime, **start)
    except Exception as error:  # Ray raises a bare one for a node that does not come up in time
        raise ConfigError(
            f"no Ray cluster answers at {address} ({str(error).splitlines()[0]}). Give --ray an address that "
            "`ray start --head` printed, `auto` on one of its nodes, or `local` to start one."
        ) from error
    return ray


@dataclass(frozen=True, kw_only=True, slots=True)
class _Worker:
    """A process that carries out one run, forked from a server that has imported torch: 0.05 s each."""

    run: PlannedRun
    process: BaseProcess
    answers: "connection.Connection[Answer, Answer]"
    log: Path

    @classmethod
    def start(cls, run: PlannedRun, threads: int, logs: Path) -> "_Worker":
        log = logs / f"{len(list(logs.iterdir()))}.log"
        log.touch()
        context = _context()
        reader, writer = context.Pipe(duplex=False)
        there = replace(run, folder=run.folder.absolute())
        with _only_for_workers(OMP_NUM_THREADS=str(threads), PYTHONSAFEPATH="1"):
            arguments = (there, threads, log, dict(os.environ), writer)
            process = context.Process(target=_work, args=arguments, name=run.name)
            process.start()
        writer.close()
        return cls(run=run, process=process, answers=reader, log=log)

    def answer(self) -> Answer | None:
        """Return how the run ended; None if the worker died before it could say so."""
        self.process.join()
        try:
            return self.answers.recv() if self.answers.poll() else None
        except EOFError:
            return None

    def death(self) -> str:
        """Say how the process ended, and what it said last."""
        code = self.process.exitcode or 0
        try:
            way = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        except ValueError:
            way = f"killed by signal {-code}"
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        return "; ".join([way, *[line.strip() for line in lines if line.strip()][-1:]])


def _work(
    run: PlannedRun,
    threads: int,
    log: Path,
    environment: Mapping[str, str],
    answers: "connection.Connection[Answer, Answer]",
) -> None:
    """Carry out a run in this worker process; the environment is the grid's, not that of the fork server."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the grid, which then asks for a pause
    os.environ.clear()
    os.environ.update(environment)
    with log.open("w", encoding="utf-8") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    threading.Thread(target=_follow_grid, daemon=True).start()
    with pausing_on_signals() as is_pause_wanted:
        answers.send(carry_out(run, threads, is_pause_wanted))
    _exit_at_last()


def _follow_grid() -> None:
    """Save a checkpoint and end when the grid is gone, for any reason."""
    grid = multiprocessing.parent_process()
    if grid is not None:
        grid.join()
        _exit_at_last()
        os.kill(os.getpid(), signal.SIGTERM)


def _exit_at_last() -> None:
    """End this process after some seconds, whatever its threads do."""
    last = threading.Timer(GRACE_SECONDS, os._exit, args=(0,))
    last.daemon = True
    last.start()


def _context() -> ForkServerContext | SpawnContext:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


@contextmanager
def _only_for_workers(**variables: str) -> Iterator[None]:
    """Start processes with an environment of theirs, and without the caller's main module.

    A script of the caller's may lack the guard that multiprocessing asks for.
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
