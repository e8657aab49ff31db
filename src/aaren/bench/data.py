"""`aaren bench data`: how long loading takes, by itself and beside a training step.

Three things: ETTm1 with all its loaders, the first time and from the cache, each in a fresh process;
environment steps of Hopper rolled out from a public policy; for each setting the loading of one batch beside
one real training step of a given run. What cannot be measured here (no file, no policy, no MuJoCo) is a row
with its reason, not a number.
"""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aaren.bench import train_engine as data_steps
from aaren.bench.record import BenchRecord, OnStep, Row, number, silent
from aaren.bench.table import Sheet, format_seconds
from aaren.bench.timing import time_interleaved
from aaren.engine.config import RunConfig
from aaren.errors import AarenError, ConfigError
from aaren.files import folders
from aaren.forecasting.data import seasonal, write_series

FIRST_SECONDS, CACHED_SECONDS = 5.0, 2.0  # to load ETTm1 and build all loaders
ROLLOUT_SECONDS_PER_100K = 120.0
BATCH_SHARE = 0.05  # of a training step
HOPPER_POLICY = "zoo_sac_Hopper"
WARM_UP = 3  # kernels are compiled and buffers made in the first steps; none of that is a sample

_LOAD = """
import json, time
import torch
began = time.perf_counter()
from aaren.datasets import forecasting
data = forecasting.load("ETTm1")
loaders = [data.loaders(horizon_steps=horizon) for horizon in forecasting.HORIZONS]
print(json.dumps({"seconds": time.perf_counter() - began, "rows": len(data.values), "loaders": 3 *
len(loaders)}))
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

    def __post_init__(self) -> None:
        if self.rollout_steps < 1:
            raise ConfigError(f"rollout_steps must be at least 1; got {self.rollout_steps}.")


QUICK = DataSettings(rollout_steps=4_000, budget_seconds=0.5)


def measure(
    settings: DataSettings, runs: Mapping[str, RunConfig], *, command: str, on_step: OnStep = silent
) -> BenchRecord:
    """Measure everything and return the record.

    Args:
        settings: How much to measure.
        runs: Whose batches and training steps to compare, by setting.
        command: What to type to measure again.
        on_step: Told of progress.
    """
    parts: list[tuple[str, Callable[[], list[Row]]]] = [
        ("loading ETTm1", _measure_loading),
        (f"rolling out {settings.rollout_steps:,} steps", lambda: [_measure_rollout(settings.rollout_steps)]),
    ]
    parts += [
        (f"batches of {name}", partial(_measure_batch, name, run, settings.budget_seconds))
        for name, run in runs.items()
    ]
    rows: list[Row] = []
    for place, (what, part) in enumerate(parts):
        on_step(place, len(parts), what)
        rows += part()
    on_step(len(parts), len(parts), "done")
    return BenchRecord(
        kind="data",
        command=command,
        settings={"rollout_steps": settings.rollout_steps, "budget_seconds": settings.budget_seconds},
        measurements=rows,
    )


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


def _measure_batch(
    setting: str,
    run: RunConfig,
    budget_seconds: float,
) -> list[Row]:
    row: Row = {"what": "batch", "setting": setting}
    try:
        with data_steps.contest(run) as contest:
            calls = {"load": contest.load, "step": contest.step}
            for _ in range(WARM_UP):
                for call in calls.values():
                    call()
            timings = time_interleaved(calls, budget_seconds=budget_seconds, min_repeats=5)
    except AarenError as error:
        return [{**row, "reason": str(error)}]
    load = timings["load"].median / data_steps.BATCHES
    step = timings["step"].median
    return [
        {
            **row,
            "dataset": contest.dataset,
            "model": contest.model,
            "batch_size": contest.batch_size,
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


def sheets(record: BenchRecord) -> list[Sheet]:
    """Return the tables."""
    times: list[list[str]] = []
    shares: list[list[str]] = []
    for row in record.measurements:
        if row["what"] == "batch":
            shares.append(_share_row(row))
        else:
            times.append(_time_row(row))
    return [
        Sheet(title="Loading and rolling out", columns=("what", "seconds", "at most", "met"), rows=times),
        Sheet(
            title="Loading one batch beside one training step, one thread",
            columns=("setting", "dataset", "model", "one batch", "one step", "share", "at most", "met"),
            rows=shares,
        ),
    ]


def _time_row(row: Row) -> list[str]:
    if row["what"] == "load":
        name = f"ETTm1 ({row['source']}) and {row['loaders']} loaders, {row['when']}"
    else:
        steps = row.get("steps", row["asked_steps"])
        name = f"{steps:,} environment steps of Hopper, 2 processes"
    if "reason" in row:
        return [name, f"not measured: {row['reason']}", "", ""]
    seconds, limit = number(row, "seconds"), number(row, "target_seconds")
    return [name, format_seconds(seconds), format_seconds(limit), "yes" if seconds <= limit else "NO"]


def _share_row(row: Row) -> list[str]:
    if "reason" in row:
        return [str(row["setting"]), f"not measured: {row['reason']}", "", "", "", "", "", ""]
    share, limit = number(row, "share"), number(row, "target_share")
    return [
        str(row["setting"]),
        f"{row['dataset']}, {row['batch_size']}",
        str(row["model"]),
        format_seconds(number(row, "load_seconds")),
        format_seconds(number(row, "step_seconds")),
        f"{share:.2%}",
        f"{limit:.0%}",
        "yes" if share <= limit else "NO",
    ]
