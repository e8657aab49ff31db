"""How long loading takes, by itself and beside a training step.

    python benchmarks/data_loading.py [--record FILE] [--quick]     # about two minutes

Three things: ETTm1 with all its loaders, the first time and from the cache, each in a fresh process;
environment steps of Hopper rolled out from a public policy; for each setting the loading of one batch beside
one real training step, of its own model, loss and optimiser, with one thread. What cannot be measured here
(no file, no policy, no MuJoCo) is a row with its reason, not a number.
"""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from aaren.bench.publish import Benchmark, main
from aaren.bench.record import BenchRecord, Measured, OnStep, Row, number
from aaren.bench.target import doubt
from aaren.bench.timing import time_interleaved
from aaren.engine.config import RunConfig
from aaren.engine.determinism import choose_device, repeatable
from aaren.engine.distributed import SINGLE
from aaren.engine.experiment import Batch, Experiment
from aaren.engine.loop import Update
from aaren.engine.setting import find_setting
from aaren.errors import AarenError, DataError
from aaren.files import folders
from aaren.forecasting.data import seasonal, write_series
from aaren.table import Table, format_seconds, text_table
from cpu_runs import DATASETS, cpu_run, unavailable

FIRST_SECONDS, CACHED_SECONDS = 5.0, 2.0  # to load ETTm1 and build all loaders
ROLLOUT_SECONDS_PER_100K = 120.0
BATCH_SHARE = 0.05  # of a training step
HOPPER_POLICY = "zoo_sac_Hopper"
BATCHES = 16  # loaded in one call; the cost of beginning an epoch is shared among them
WARM_UP = 3  # kernels are compiled and buffers made in the first steps; none of that is a sample

_LOAD = """
import json, time
import torch
began = time.perf_counter()
from aaren.forecasting.batches import load
from aaren.forecasting.data import HORIZONS
data = load("ETTm1")
loaders = [data.loaders(horizon_steps=horizon) for horizon in HORIZONS]
seconds = time.perf_counter() - began
print(json.dumps({"seconds": seconds, "rows": len(data.values), "loaders": 3 * len(loaders)}))
"""

_ROLL_OUT = """
import json, sys, time
from aaren.rl import rollouts
if __name__ == "__main__":
    began = time.perf_counter()
    path = rollouts.make("hopper-medium", transitions=int(sys.argv[1]), seed=0, workers=2)
    seconds = time.perf_counter() - began
    from aaren.rl.data import load
    found = load("hopper-medium-regen")
    print(json.dumps({"seconds": seconds, "steps": found.num_transitions, "mean_return":
    float(found.returns.mean())}))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSettings:
    """What to measure."""

    rollout_steps: int = 100_000
    budget_seconds: float = 6.0  # for the batches and steps of one setting


QUICK = DataSettings(rollout_steps=4_000, budget_seconds=0.5)


def measure(settings: DataSettings, on_step: OnStep) -> Measured:
    """Measure everything."""
    parts: list[tuple[str, Callable[[], list[Row]]]] = [
        ("loading ETTm1", _measure_loading),
        (f"rolling out {settings.rollout_steps:,} steps", lambda: [_measure_rollout(settings.rollout_steps)]),
    ]
    parts += [
        (f"batches of {name}", partial(_measure_batch, name, cpu_run(name), settings.budget_seconds))
        for name in DATASETS
    ]
    rows: list[Row] = []
    for place, (what, part) in enumerate(parts):
        on_step(place, len(parts), what)
        rows += part()
    return {"rollout_steps": settings.rollout_steps, "budget_seconds": settings.budget_seconds}, rows


def _measure_loading() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = folders.find("forecasting", "ETTm1.csv")
        root = Path(folder) / "data"
        (root / "forecasting").mkdir(parents=True)
        target = root / "forecasting" / "ETTm1.csv.gz"
        source = "generated, of its size"
        if path is not None and path.suffix == ".gz":
            shutil.copy(path, target)
            source = "the public file"
        else:
            plain = path or write_series(seasonal(rows=69_680), root / "plain.csv")
            target.write_bytes(gzip.compress(plain.read_bytes()))
            source = "the public file" if path is not None else source
        environment = {folders.VARIABLE: str(root), "XDG_CACHE_HOME": str(Path(folder) / "cache")}
        rows: list[Row] = []
        for when, limit in (("first time", FIRST_SECONDS), ("cached", CACHED_SECONDS)):
            found = _in_child(_LOAD, environment)
            rows.append({"what": "load", "when": when, "source": source, "target_seconds": limit, **found})
        return rows


def _measure_rollout(steps: int) -> Row:
    row: Row = {"what": "rollout", "asked_steps": steps}
    policy = folders.find("rl", f"{HOPPER_POLICY}.npz")
    description = folders.find("rl", f"{HOPPER_POLICY}.json")
    if policy is None or description is None:
        return {**row, "reason": f"no policy rl/{HOPPER_POLICY}.npz on disk"}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "data"
        (root / "rl").mkdir(parents=True)
        for path in (policy, description):
            shutil.copy(path, root / "rl" / path.name)
        try:
            found = _in_child(
                _ROLL_OUT, {folders.VARIABLE: str(root), "XDG_CACHE_HOME": folder}, str(steps), as_file=True
            )
        except AarenError as error:
            return {**row, "reason": str(error)}
    return {**row, "target_seconds": ROLLOUT_SECONDS_PER_100K * number(found, "steps") / 100_000, **found}


def _measure_batch(setting: str, run: RunConfig, budget_seconds: float) -> list[Row]:
    row: Row = {"what": "batch", "setting": setting}
    try:
        with batch_and_step(run) as measured:
            calls = {"load": measured.load, "step": measured.step}
            for _ in range(WARM_UP):
                for call in calls.values():
                    call()
            timings = time_interleaved(calls, budget_seconds=budget_seconds, min_repeats=5)
    except AarenError as error:
        return [{**row, "reason": str(error)}]
    load = timings["load"].median / BATCHES
    step = timings["step"].median
    return [
        {
            **row,
            "dataset": measured.dataset,
            "model": measured.model,
            "batch_size": measured.batch_size,
            "load_seconds": load,
            "step_seconds": step,
            "share": load / step,
            "target_share": BATCH_SHARE,
        }
    ]


def _in_child(program: str, environment: Mapping[str, str], *words: str, as_file: bool = False) -> Row:
    """Run a program in a fresh process; it prints one JSON object."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"
        script.write_text(program)  # a file, because processes that it starts import it by its path
        command = [sys.executable, str(script)] if as_file else [sys.executable, "-c", program]
        done = subprocess.run(
            [*command, *words],
            env={**os.environ, **environment},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise AarenError(f"the measured process failed: {last}")
    result: Row = json.loads(done.stdout.strip().splitlines()[-1])
    return result


class BatchAndStep(NamedTuple):
    """A setting's two calls: load BATCHES batches; do one training step on a batch that is there already."""

    dataset: str
    model: str
    batch_size: int
    load: Callable[[], object]
    step: Callable[[], Tensor]


@contextmanager
def batch_and_step(run: RunConfig) -> Iterator[BatchAndStep]:
    """Open a run's data and build its model; inside the block torch computes as it does in training."""
    try:
        experiment = find_setting(run.setting).open(run.task, seed=run.seed)
    except DataError as error:
        raise DataError(unavailable(run)) from error
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
        yield BatchAndStep(
            dataset=str(cell["dataset"]),
            model=f"{cell['model']}, {run.profile}",
            batch_size=len(batches[0]),
            load=load,
            step=lambda: update(next(coming), next(moments)),
        )


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


def tables(record: BenchRecord) -> list[Table]:
    """Return the tables."""
    batches = [row for row in record.measurements if row["what"] == "batch"]
    others = [row for row in record.measurements if row["what"] != "batch"]
    return [
        text_table(
            title="Loading and rolling out",
            columns=("what", "seconds", "at most", "met"),
            rows=[_time_row(record, row) for row in others],
            note=_not_measured(others),
        ),
        text_table(
            title="Loading one batch beside one training step, one thread",
            columns=("setting", "dataset", "model", "one batch", "one step", "share", "at most", "met"),
            rows=[_share_row(record, row) for row in batches],
            note=_not_measured(batches),
        ),
    ]


def _not_measured(rows: Sequence[Row]) -> str:
    return "; ".join(f"not measured: {row['reason']}" for row in rows if "reason" in row)


def _time_row(record: BenchRecord, row: Row) -> list[str]:
    if row["what"] == "load":
        name = f"ETTm1 ({row['source']}) and {row['loaders']} loaders, {row['when']}"
    else:
        steps = row.get("steps", row["asked_steps"])
        name = f"{steps:,} environment steps of Hopper, 2 processes"
    if "reason" in row:
        return [name, "–", "", ""]
    seconds, limit = number(row, "seconds"), number(row, "target_seconds")
    return [name, format_seconds(seconds), format_seconds(limit), _met(record, seconds <= limit)]


def _share_row(record: BenchRecord, row: Row) -> list[str]:
    if "reason" in row:
        return [str(row["setting"]), *("–",) * 7]
    share, limit = number(row, "share"), number(row, "target_share")
    return [
        str(row["setting"]),
        f"{row['dataset']}, {row['batch_size']}",
        str(row["model"]),
        format_seconds(number(row, "load_seconds")),
        format_seconds(number(row, "step_seconds")),
        f"{share:.2%}",
        f"{limit:.0%}",
        _met(record, share <= limit),
    ]


def _met(record: BenchRecord, is_met: bool) -> str:
    return f"void: {doubt(record)}" if doubt(record) else "yes" if is_met else "NO"


BENCHMARK = Benchmark(
    kind="data",
    command="python benchmarks/data_loading.py",
    settings=DataSettings(),
    quick=QUICK,
    measure=measure,
    tables=tables,
    takes_threads=False,
)

if __name__ == "__main__":
    main(BENCHMARK)
