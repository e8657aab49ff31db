"""`aaren bench train --engine`: what the engine adds to forward, backward and optimiser of a training step.

Real runs of real tasks for some seconds, with batches, bookkeeping, progress lines and checkpoints; looks at
the validation part are left out, because they are the protocol's and not the engine's. Knows no setting.
"""

import io
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from aaren.bench.data_steps import not_here
from aaren.bench.progress import OnStep, silent
from aaren.bench.record import BenchRecord, Row, number
from aaren.bench.table import Sheet, format_seconds
from aaren.bench.target import Target, targets_sheet
from aaren.errors import ConfigError, DataError
from aaren.tasks import find_task
from aaren.tasks.plan import Plan
from aaren.train.config import RunConfig
from aaren.train.endings import PausedError
from aaren.train.fields import to_mapping
from aaren.train.loop import fit
from aaren.train.observe import Lines
from aaren.train.resume import SHARE_OF_TIME, Keeper
from aaren.train.status import RunStatus

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


class _Watcher(Lines):
    """Writes the usual lines into memory, and knows the status."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.status = RunStatus()

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        super().begin(name, plan, status)
        self.status = status


def _measure(config: RunConfig, seconds: float) -> Row:
    experiment = find_task(config.setting).open(config.task, seed=config.seed)
    # Long enough that time ends the run and patience does not.
    experiment.plan = replace(experiment.plan, max_updates=10**9, patience=None)

    def run(folder: Path, is_pause_wanted: Callable[[], bool]) -> tuple[RunStatus, Keeper]:
        keeper = Keeper(
            folder=folder, config=to_mapping(config), every_seconds=config.engine.checkpoint_seconds
        )
        watcher = _Watcher()
        try:
            fit(
                experiment,
                seed=config.seed,
                engine=config.engine,
                keeper=keeper,
                observer=watcher,
                is_pause_wanted=is_pause_wanted,
            )
        except PausedError:
            return watcher.status, keeper
        raise ConfigError("the run ended before its time was over: measure something that trains longer.")

    with tempfile.TemporaryDirectory() as folder:
        calls: list[None] = []

        def is_warm() -> bool:
            calls.append(None)
            return len(calls) >= WARM_UP_UPDATES

        run(Path(folder) / "warm", is_warm)  # kernels are compiled, caches filled
        deadline = time.monotonic() + seconds
        status, keeper = run(Path(folder) / "measured", lambda: time.monotonic() >= deadline)
    training, inside = status.seconds["training"], status.seconds["inside_updates"]
    loop_share = (training - inside) / training
    # The pause wrote a checkpoint; in a run they come at least so far apart.
    interval = max(config.engine.checkpoint_seconds, keeper.save_seconds / SHARE_OF_TIME)
    saving_share = keeper.save_seconds / (interval + keeper.save_seconds)
    return {
        "updates": status.update,
        "update_seconds": training / status.update,
        "inside_seconds": inside / status.update,
        "loop_share": loop_share,
        "saving_seconds": keeper.save_seconds,
        "saving_share": saving_share,
        "outside_share": loop_share * (1.0 - saving_share) + saving_share,
    }
