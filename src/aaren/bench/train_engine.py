"""One batch and one training step for each of the four settings: what `aaren bench data` compares.

The step is the real one: the setting's own model of the run's profile, its loss and optimiser, moved by the
training engine's `Update`. Knows no setting.

`aaren bench train --engine`: what the engine adds to forward, backward and optimiser of a training step.

Real runs of real tasks for some seconds, with batches, bookkeeping, progress lines and checkpoints; looks at
the validation part are left out, because they are the protocol's and not the engine's. Knows no setting.
"""

import io
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from aaren.bench.record import BenchRecord, OnStep, Row, number, silent
from aaren.bench.table import Sheet, Target, format_seconds, targets_sheet
from aaren.engine.checkpoint import SHARE_OF_TIME, Checkpoints
from aaren.engine.config import RunConfig
from aaren.engine.determinism import choose_device, repeatable
from aaren.engine.distributed import SINGLE
from aaren.engine.experiment import Batch, Experiment
from aaren.engine.loop import PausedError, Update, fit
from aaren.engine.plan import Plan, RunStatus
from aaren.engine.progress import LogLines
from aaren.engine.setting import find_setting
from aaren.errors import ConfigError, DataError
from aaren.fields import to_mapping

BATCHES = 16  # loaded in one call; the cost of beginning an epoch is shared among them


class Contest(NamedTuple):
    """A setting's two calls: load BATCHES batches; do one training step on a batch that is there already."""

    dataset: str
    model: str
    batch_size: int
    load: Callable[[], object]
    step: Callable[[], Tensor]


@contextmanager
def contest(run: RunConfig) -> Iterator[Contest]:
    """Open a run's data and build its model; inside the block torch computes as it does in training."""
    try:
        experiment = find_setting(run.setting).open(run.task, seed=run.seed)
    except DataError as error:
        raise DataError(not_here(run)) from error
    with repeatable(run.engine, seed=run.seed):
        device = choose_device(run.engine.device)
        model = experiment.build_model().to(device).train()
        optimiser = experiment.build_optimiser(model)
        update = Update(experiment, model, optimiser, engine=run.engine, world=SINGLE, device=device)
        moments = map(experiment.plan.moment, cycle(range(experiment.plan.max_updates)))
        load = _first_batches(lambda epoch: _epoch(experiment, epoch))
        batches = load()
        coming = cycle(batches)  # lengths differ from batch to batch: a step on one of them would mislead
        cell = run.cell()
        yield Contest(
            dataset=str(cell["dataset"]),
            model=f"{cell['model']}, {run.profile}",
            batch_size=len(batches[0]),
            load=load,
            step=lambda: update(next(coming), next(moments)),
        )


def not_here(run: RunConfig) -> str:
    """Say what is missing, for a record, where paths do not belong."""
    name = run.cell()["dataset"]
    return f"{name} cannot be opened here: aaren data verify {name}"


def _epoch(experiment: Experiment[Batch], number: int) -> Iterator[Batch]:
    return islice(experiment.batches(number), experiment.plan.updates_per_epoch)


def _first_batches(epoch: Callable[[int], Iterator[Batch]]) -> Callable[[], list[Batch]]:
    number = 0

    def load() -> list[Batch]:
        nonlocal number
        found: list[Batch] = []
        while len(found) < BATCHES:  # a small set has fewer batches than that in an epoch
            found += islice(epoch(number), BATCHES - len(found))
            number += 1
        return found

    return load


KIND = "train-engine"
SECONDS, QUICK_SECONDS = 10.0, 1.0
LIMIT = 0.05  # of a step, outside forward, backward and optimiser
WARM_UP_UPDATES = 5


def measure(
    runs: Mapping[str, RunConfig], *, seconds: float = SECONDS, command: str, on_step: OnStep = silent
) -> BenchRecord:
    """Train each run for some seconds and book where the time of its updates went.

    Args:
        runs: What to train, by the name of its row.
        seconds: Of each run, looks included.
        command: What to type to measure again.
        on_step: Told of progress.
    """
    rows: list[Row] = []
    for place, (name, config) in enumerate(runs.items()):
        on_step(place, len(runs), name)
        row: Row = {
            "run": name,
            "dataset": str(config.cell().get("dataset", "")),
            "profile": config.profile,
            "threads": config.engine.threads,
        }
        try:
            rows.append({**row, **_measure(config, seconds)})
        except DataError:
            rows.append({**row, "reason": not_here(config)})
    on_step(len(runs), len(runs), "")
    return BenchRecord(kind=KIND, command=command, settings={"seconds": seconds}, measurements=rows)


def sheets(record: BenchRecord) -> list[Sheet]:
    """Return the table and what became of the promise."""
    columns = ("", "dataset", "one update", "inside", "batches and loop", "checkpoints", "outside", "updates")
    judged = [_target(row) for row in record.measurements if "reason" not in row]
    return [
        Sheet(
            title=f"Where the time of an update goes: {record.settings['seconds']:g} s of each run",
            columns=columns,
            rows=[_cells(row, len(columns)) for row in record.measurements],
        ),
        targets_sheet(judged, title="Targets (of an update, outside forward, backward and optimiser)"),
    ]


def _cells(row: Row, count: int) -> tuple[str, ...]:
    if "reason" in row:
        return (str(row["run"]), f"not measured: {row['reason']}", *[""] * (count - 2))
    return (
        str(row["run"]),
        str(row["dataset"]),
        format_seconds(number(row, "update_seconds")),
        format_seconds(number(row, "inside_seconds")),
        f"{number(row, 'loop_share'):.2%}",
        f"{number(row, 'saving_share'):.2%}",
        f"{number(row, 'outside_share'):.2%}",
        f"{number(row, 'updates'):,.0f}",
    )


def _target(row: Row) -> Target:
    share = number(row, "outside_share")
    return Target(
        name=f"{row['run']}, {row['profile']}",
        wanted=f"at most {LIMIT:.0%}",
        measured=f"{share:.2%}",
        is_met=share <= LIMIT,
    )


class _Watcher(LogLines):
    """Writes the usual lines into memory, and knows the status."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.status = RunStatus()

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        super().begin(name, plan, status)
        self.status = status


def _measure(config: RunConfig, seconds: float) -> Row:
    experiment = find_setting(config.setting).open(config.task, seed=config.seed)
    # Long enough that time ends the run and patience does not.
    experiment.plan = replace(experiment.plan, max_updates=10**9, patience=None)

    def run(folder: Path, is_pause_wanted: Callable[[], bool]) -> tuple[RunStatus, Checkpoints]:
        checkpoints = Checkpoints(
            folder=folder, config=to_mapping(config), every_seconds=config.engine.checkpoint_seconds
        )
        watcher = _Watcher()
        try:
            fit(
                experiment,
                seed=config.seed,
                engine=config.engine,
                checkpoints=checkpoints,
                observer=watcher,
                is_pause_wanted=is_pause_wanted,
            )
        except PausedError:
            return watcher.status, checkpoints
        raise ConfigError("the run ended before its time was over: measure something that trains longer.")

    with tempfile.TemporaryDirectory() as folder:
        calls: list[None] = []

        def is_warm() -> bool:
            calls.append(None)
            return len(calls) >= WARM_UP_UPDATES

        run(Path(folder) / "warm", is_warm)  # kernels are compiled, caches filled
        deadline = time.monotonic() + seconds
        status, checkpoints = run(Path(folder) / "measured", lambda: time.monotonic() >= deadline)
    training, inside = status.seconds["training"], status.seconds["inside_updates"]
    loop_share = (training - inside) / training
    # The pause wrote a checkpoint; in a run they come at least so far apart.
    interval = max(config.engine.checkpoint_seconds, checkpoints.save_seconds / SHARE_OF_TIME)
    saving_share = checkpoints.save_seconds / (interval + checkpoints.save_seconds)
    return {
        "updates": status.update,
        "update_seconds": training / status.update,
        "inside_seconds": inside / status.update,
        "loop_share": loop_share,
        "saving_seconds": checkpoints.save_seconds,
        "saving_share": saving_share,
        "outside_share": loop_share * (1.0 - saving_share) + saving_share,
    }
