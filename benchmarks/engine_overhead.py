"""What the training engine adds to forward, backward and optimiser of a training step.

    python benchmarks/engine_overhead.py [--record FILE] [--quick]     # about two minutes

Real runs of real tasks for some seconds, with batches, bookkeeping, progress lines and checkpoints;
evaluations are left out, because they are the protocol's and not the engine's.
"""

import io
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from aaren.bench.publish import Benchmark, main
from aaren.bench.record import BenchRecord, Measured, OnStep, Row, number
from aaren.bench.target import Ratio, Target, doubt, judge, targets_table
from aaren.engine.checkpoint import SHARE_OF_TIME, Checkpoints
from aaren.engine.config import RunConfig
from aaren.engine.loop import PausedError, fit
from aaren.engine.plan import Plan, RunStatus
from aaren.engine.progress import LogLines
from aaren.engine.setting import find_setting
from aaren.errors import ConfigError, DataError
from aaren.fields import to_mapping
from aaren.table import Table, format_seconds, text_table
from cpu_runs import DATASETS, cpu_run, unavailable

SECONDS, QUICK_SECONDS = 10.0, 1.0
LIMIT = 0.05  # of a step, outside forward, backward and optimiser
WARM_UP_UPDATES = 5


def cpu_runs() -> dict[str, RunConfig]:
    """Return both models of every setting, one thread each, by the name of their row."""
    return {
        f"{setting}, {model}": cpu_run(setting, model=model)
        for setting in DATASETS
        for model in ("aaren", "transformer")
    }


def measure(seconds: float, on_step: OnStep) -> Measured:
    """Train each run for some seconds and book where the time of its updates went."""
    rows: list[Row] = []
    runs = cpu_runs()
    for name, config in runs.items():
        on_step(len(rows), len(runs), name)
        rows.append(measure_run(name, config, seconds))
    return {"seconds": seconds}, rows


def measure_run(name: str, config: RunConfig, seconds: float) -> Row:
    """Train one run for some seconds; one without its data is a row with the reason."""
    row: Row = {
        "run": name,
        "dataset": str(config.cell().get("dataset", "")),
        "profile": config.profile,
        "threads": config.engine.threads,
    }
    try:
        return {**row, **_measure(config, seconds)}
    except DataError:
        return {**row, "reason": unavailable(config)}


def tables(record: BenchRecord) -> list[Table]:
    """Return the table and the targets."""
    columns = ("", "dataset", "one update", "inside", "batches and loop", "checkpoints", "outside", "updates")
    judged = [_target(record, row) for row in record.measurements if "reason" not in row]
    return [
        text_table(
            title=f"Where the time of an update goes: {record.settings['seconds']:g} s of each run",
            columns=columns,
            rows=[_cells(row, len(columns)) for row in record.measurements],
        ),
        targets_table(judged, title="Targets (of an update, outside forward, backward and optimiser)"),
    ]


def _cells(row: Row, count: int) -> tuple[str, ...]:
    if "reason" in row:
        return (str(row["run"]), f"not measured: {row['reason']}", *[""] * (count - 2))
    return (
        str(row["run"]),
        str(row["dataset"]),
        *(format_seconds(number(row, field)) for field in ("update_seconds", "inside_seconds")),
        *(f"{number(row, field):.2%}" for field in ("loop_share", "saving_share", "outside_share")),
        f"{number(row, 'updates'):,.0f}",
    )


def _target(record: BenchRecord, row: Row) -> Target:
    share = Ratio(number(row, "outside_share"), doubt(record))
    name = f"{row['run']}, {row['profile']}"
    return judge(name, f"at most {LIMIT:.0%}", share, lambda found: found <= LIMIT, "{:.2%}".format)


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


BENCHMARK = Benchmark(
    kind="train-engine",
    command="python benchmarks/engine_overhead.py",
    settings=SECONDS,
    quick=QUICK_SECONDS,
    measure=measure,
    tables=tables,
    takes_threads=False,
)

if __name__ == "__main__":
    main(BENCHMARK)
