"""`aaren reproduce` from request to summary: plan, look, price, run, say what became of it.

Joins the other modules of the lab and knows nothing of tables: those are drawn from the records it leaves.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from aaren.datasets.catalogue import lookup
from aaren.engine.config import RunConfig
from aaren.engine.progress import duration
from aaren.errors import StateError
from aaren.files.lock import locked
from aaren.lab.cost import Estimate, Source, estimate, probe_run
from aaren.lab.crew import Crew, LocalCrew
from aaren.lab.grid import Board, Grid, View
from aaren.lab.plan import PlannedRun, Request, Survey, how_to_get, plan, survey

LOCK_FOLDER = ".grid"
PROBING_SECONDS = 60.0  # for all probes together


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """With what a grid is run; 0 workers or threads: as many as fit the machine."""

    workers: int = 0
    threads: int = 0
    ray: str = ""  # an address, or `local`; empty: worker processes on this machine

    def sized(self, waiting: int) -> "Means":
        """Fit to the cores and to the work: one thread each as soon as runs can share the cores."""
        if (self.workers and self.threads) or not waiting:
            return Means(workers=self.workers or 1, threads=self.threads or 1, ray=self.ray)
        cores = self._cores()
        workers = self.workers or max(1, min(cores // max(1, self.threads), waiting))
        return Means(workers=workers, threads=self.threads or max(1, cores // workers), ray=self.ray)

    def _cores(self) -> int:
        if self.ray not in ("", "local"):
            from aaren.lab.ray_crew import cluster_cpus

            return cluster_cpus(self.ray)
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Prospect:
    """What a grid would do."""

    runs: list[PlannedRun]
    survey: Survey
    estimate: Estimate
    means: Means

    def seconds(self) -> float | None:
        """Return the time of what waits, as far as it is known; None when it is not at all."""
        known = list(self.estimate.seconds.values())
        if not known:
            return None
        return max(sum(known) / self.means.workers, *known)


def look_ahead(
    request: Request,
    out: Path,
    *,
    means: Means,
    retry_failed: bool = False,
    say: Callable[[str], None] = lambda _text: None,
) -> Prospect:
    """Plan a request, compare it with what is there, and price the rest."""
    runs = plan(request, out)
    found = survey(runs, out, retry_failed=retry_failed)
    means = means.sized(len(found.waiting))
    torch.set_num_threads(means.threads)

    begin = time.monotonic()

    def probe(config: RunConfig) -> float | None:
        if time.monotonic() - begin > PROBING_SECONDS:
            return None
        say(f"measuring {config.setting} {' '.join(map(str, config.cell().values()))} for a moment ...")
        return probe_run(config)

    # A smoke run is over sooner than a probe of it.
    is_worth_probing = request.profile != "smoke"
    priced = estimate(found.waiting, found.collected.records, probe=probe if is_worth_probing else None)
    return Prospect(runs=runs, survey=found, estimate=priced, means=means)


def announcement(prospect: Prospect) -> list[str]:
    """Say what was found and what will be done, a line each."""
    found, waiting = prospect.survey, len(prospect.survey.waiting)
    lines = [
        f"{len(prospect.runs)} runs: {len(found.finished)} finished already, {waiting} to run, "
        f"{sum(map(len, found.without_data.values()))} without data, "
        f"{len(found.failed)} failed before, {len(found.unreadable)} not to be touched"
    ]
    for dataset, runs in found.without_data.items():
        lines.append(f"  no data for {dataset} ({len(runs)} runs): {how_to_get(lookup(dataset))}")
    for run, reason in found.failed:
        lines.append(f"  {run.name}: {reason} (--retry-failed tries it again)")
    for run, reason in found.unreadable:
        lines.append(
            f"  {run.folder / 'record.json'} is left alone: {reason}. To run it again, remove the file"
        )
    if waiting:
        means, seconds = prospect.means, prospect.seconds()
        where = f"on Ray ({means.ray})" if means.ray else "on this machine"
        time_text = _unknown_time(found.waiting) if seconds is None else f"about {duration(seconds)}"
        lines.append(
            f"{time_text} with {_count(means.workers, 'worker')} of {_count(means.threads, 'thread')} "
            f"{where}{_sources(prospect.estimate)}"
        )
    return lines


@contextmanager
def holding(out: Path, shard: tuple[int, int]) -> Iterator[None]:
    """Keep other grids out of a results folder; shards may share it, each once."""
    part, parts = shard
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(out / LOCK_FOLDER, is_shared=parts > 1))
            if parts > 1:
                stack.enter_context(locked(out / f"{LOCK_FOLDER}-{part}-of-{parts}"))
        except StateError as error:
            if "is in use by process" not in str(error):
                raise
            holder = str(error).partition("in use by process ")[2].partition(".")[0]
            raise StateError(
                f"another grid runs in {out} (process {holder}). Wait for it, end it, or choose another "
                "folder (--out). To share the work, every part must be a shard: --shard 1/2 and --shard 2/2."
            ) from error
        yield


def run_grid(prospect: Prospect, view: View, is_pause_wanted: Callable[[], bool] = lambda: False) -> Board:
    """Run what waits; see `Grid.run`."""
    board = Board.of(
        prospect.survey.waiting,
        estimates=prospect.estimate.seconds,
        workers=prospect.means.workers,
        done_before=len(prospect.survey.finished),
    )
    if board.entries:
        crew = make_crew(prospect.means)
        Grid(board, crew, view, threads=prospect.means.threads).run(is_pause_wanted)
    return board


def make_crew(means: Means) -> Crew:
    """Choose who works."""
    if means.ray:
        from aaren.lab.ray_crew import RayCrew

        return RayCrew(means.ray, means.workers, threads=means.threads)
    return LocalCrew(means.workers, threads=means.threads)


def outcome(board: Board) -> list[str]:
    """Say what became of a grid, failures by name."""
    counts = ", ".join(
        f"{board.count(state)} {state}"
        for state in ("finished", "failed", "stopped")
        if state == "finished" or board.count(state)
    )
    lines = [f"{counts} in {duration(time.monotonic() - board.began)}"]
    lines += [f"  failed: {entry.run.name}: {entry.text}" for entry in board.in_state("failed")]
    return lines


def _unknown_time(waiting: Sequence[PlannedRun]) -> str:
    is_smoke = all(run.config.profile == "smoke" for run in waiting)
    return "seconds a run" if is_smoke else "for an unknown time"


def _sources(priced: Estimate) -> str:
    words: dict[Source, str] = {
        "cell": "by records of the same cells",
        "kin": "by records of the same models",
        "probe": "by short probes",
        "unknown": "not counted",
    }
    found = [f"{priced.sources[name]} {text}" for name, text in words.items() if priced.sources.get(name)]
    return f" (runs: {', '.join(found)})"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + "s" * (number != 1)
