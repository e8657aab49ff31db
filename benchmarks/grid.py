"""What the grid itself costs: equal busy runs through the very same scheduler, with one worker and with two.

    python benchmarks/grid.py [--quick] [--record FILE]
    python benchmarks/grid.py --show results/bench/grid.json

All that is not a run's own time counts as scheduling: starting processes, locks, folders, the test part,
records. A worker that finds nothing left to do stands idle, because one core is faster than the other; that
is shown apart.
"""

import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import busy_task
from aaren.bench.publish import Benchmark, main
from aaren.bench.record import BenchRecord, Measured, OnStep, Row, number
from aaren.bench.target import Ratio, Target, at_least, doubt, judge, targets_table, time_ratio
from aaren.engine.config import EngineConfig, RunConfig
from aaren.errors import StateError
from aaren.lab.plan import PlannedRun
from aaren.lab.records import collect, wall_seconds
from aaren.lab.schedule import Display, Schedule, Scheduler
from aaren.lab.workers import LocalWorkers
from aaren.table import Table, format_seconds, text_table

WORKERS = (1, 2)
MAX_SHARE = 0.02
MIN_SPEED_UP = 1.6
CALIBRATION_SECONDS = 10.0  # a core may be much slower for a second or two


@dataclass(frozen=True, kw_only=True, slots=True)
class GridSettings:
    """How many runs of which length; the targets hold for the default."""

    runs: int = 16
    seconds: float = 30.0  # of one run, alone on a core


QUICK = GridSettings(seconds=1.0)


def measure(settings: GridSettings, on_step: OnStep) -> Measured:
    """Run the same runs with one worker and with two."""
    torch.set_num_threads(1)
    rate = busy_task.rounds_per_second(min(CALIBRATION_SECONDS, settings.seconds))
    rounds = max(1, round(rate * settings.seconds / busy_task.UPDATES))
    rows: list[Row] = []
    for workers in WORKERS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(_measure(settings, workers, rounds, Path(folder), on_step))
    return dict(asdict(settings)), rows


def tables(record: BenchRecord) -> list[Table]:
    """Return what was measured and, of runs long enough, what became of the targets."""
    columns = (
        "workers",
        "wall time",
        "one run",
        "starting workers",
        "idle at the end",
        "scheduling",
        "faster than one",
    )
    one = record.find(workers=1)
    measured = text_table(
        title=f"{_count(record)} equal runs of about {record.settings['seconds']:g} s",
        columns=columns,
        rows=[
            (
                str(row["workers"]),
                format_seconds(number(row, "wall_seconds")),
                format_seconds(number(row, "run_seconds") / _count(record)),
                format_seconds(number(row, "start_seconds")),
                # Records of before it was told apart have it in the share of scheduling.
                f"{number(row, 'idle_share'):.2%}" if "idle_share" in row else "\u2013",
                f"{number(row, 'scheduling_share'):.2%}",
                "" if one is None else f"{number(one, 'wall_seconds') / number(row, 'wall_seconds'):.2f}x",
            )
            for row in record.measurements
        ],
    )
    judged = targets(record)
    return [measured, targets_table(judged)] if judged else [measured]


def _count(record: BenchRecord) -> int:
    return int(str(record.settings["runs"]))


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record of full length; short runs say nothing about a share of the time."""
    if record.settings["seconds"] != GridSettings().seconds:
        return []
    rows = {workers: record.find(workers=workers) for workers in WORKERS}
    found = []
    for workers, row in rows.items():
        share = None if row is None else Ratio(number(row, "scheduling_share"), doubt(record))
        name = f"scheduling, {workers} worker" + "s" * (workers > 1)
        wanted = f"under {MAX_SHARE:.0%}"
        found.append(judge(name, wanted, share, lambda value: value < MAX_SHARE, "{:.2%}".format))
    ratio = time_ratio(record, rows[1], rows[2], field="wall_seconds", prefix="")
    return [*found, at_least("one worker / two workers", ratio, MIN_SPEED_UP)]


def _measure(settings: GridSettings, workers: int, rounds: int, folder: Path, on_step: OnStep) -> Row:
    schedule = Schedule.of(_runs(settings, rounds, folder), workers=workers)
    begin = time.perf_counter()
    Scheduler(schedule, LocalWorkers(workers, threads=1), _Steps(on_step, workers)).run()
    wall = time.perf_counter() - begin
    failed = schedule.in_state("failed")
    if failed:
        raise StateError(f"a busy run failed, so nothing was measured: {failed[0].text}")
    idle_share = _idle_seconds(schedule, workers) / (workers * wall)
    run_seconds = sum(wall_seconds(found.record) for found in collect(folder).records)
    last_ends = sum(item.seconds for item in schedule.runs)
    return {
        "workers": workers,
        "wall_seconds": wall,
        "run_seconds": run_seconds,
        # Per run: from its submission to its end, without its own time.
        "start_seconds": (last_ends - run_seconds) / settings.runs,
        "idle_share": idle_share,
        "scheduling_share": 1.0 - run_seconds / (workers * wall) - idle_share,
    }


def _idle_seconds(schedule: Schedule, workers: int) -> float:
    """Add up how long each worker had nothing left to do: from the end of its last run to the very last.

    Runs are equally long, so the last ones to end, one for each worker, are the workers' last.
    """
    ends = sorted(item.started + item.seconds for item in schedule.runs)
    return sum(ends[-1] - end for end in ends[-workers:])


def _runs(settings: GridSettings, rounds: int, folder: Path) -> list[PlannedRun]:
    found = []
    for run in range(settings.runs):
        config = RunConfig(
            setting=busy_task.SETTING.name,
            task=busy_task.BusyConfig(number=run, rounds=rounds),
            engine=EngineConfig(threads=1),
        )
        found.append(PlannedRun(config=config, folder=folder / config.folder_name(), command="", dataset=""))
    return found


class _Steps(Display):
    """Moves the benchmark's progress bar."""

    def __init__(self, on_step: OnStep, workers: int) -> None:
        self.on_step, self.workers = on_step, workers

    def refresh(self, schedule: Schedule) -> None:
        """Count the finished runs."""
        before = len(schedule.runs) * WORKERS.index(self.workers)
        total = len(schedule.runs) * len(WORKERS)
        self.on_step(before + schedule.count("finished"), total, f"workers: {self.workers}")


BENCHMARK = Benchmark(
    kind="grid",
    command="python benchmarks/grid.py",
    settings=GridSettings(),
    quick=QUICK,
    measure=measure,
    tables=tables,
)

if __name__ == "__main__":
    main(BENCHMARK)
