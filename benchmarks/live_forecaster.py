"""What AarenForecaster costs: a fit of 16,000 hours of four columns, one row live, memory.

python benchmarks/live_forecaster.py [--record FILE]     # about two minutes

CPU times stand beside the others: on a busy machine they are what can be compared.
"""

import time
from dataclasses import dataclass

import numpy as np
import pandas as pd  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

from aaren.bench.memory import resident_bytes
from aaren.bench.publish import Benchmark, main
from aaren.bench.record import BenchRecord, Measured, OnStep, Row
from aaren.bench.target import Target, judge, targets_table
from aaren.forecasting.estimator import AarenForecaster
from aaren.table import Table, format_bytes, format_seconds, text_table

COLUMNS, HORIZON = ("load", "wind", "sun", "price"), 24


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveSettings:
    """What to measure."""

    rows: int = 16_000
    live_rows: int = 1_000


def table(rows: int) -> pd.DataFrame:
    """Four columns of hours in a time zone, with days, weeks and noise that remembers."""
    hours = pd.date_range("2023-01-01", periods=rows, freq="h", tz="Europe/Berlin")
    noise, t = np.random.default_rng(0).normal(size=(rows, len(COLUMNS))), np.arange(rows)
    for row in range(1, rows):
        noise[row] += 0.9 * noise[row - 1]
    days = np.stack([np.sin(2 * np.pi * (t + 3 * place) / 24) for place in range(len(COLUMNS))], axis=1)
    weeks = np.sin(2 * np.pi * t / 168)[:, None]
    return pd.DataFrame(3 * days + weeks + noise, index=hours, columns=list(COLUMNS))


def measure(settings: LiveSettings, on_step: OnStep) -> Measured:
    """Fit, then take in rows in both ways."""
    on_step(0, 2, "fit")
    whole = table(settings.rows + 2 * settings.live_rows)
    begin, began = time.perf_counter(), time.process_time()
    model = AarenForecaster(horizon=HORIZON)
    model.fit(whole.iloc[: settings.rows])
    row: Row = {
        "fit_seconds": time.perf_counter() - begin,
        "fit_cpu_seconds": time.process_time() - began,
        "base": model.choice_.weights,
    }
    on_step(1, 2, "rows")
    states = [model.state_.nbytes]
    memory = [resident_bytes() or 0]
    for name, first in (("push", settings.rows), ("update", settings.rows + settings.live_rows)):
        times, spent = [], []
        for place in range(first, first + settings.live_rows):
            new = whole.iloc[place : place + 1]
            values, when = new.to_numpy()[0], new.index[0]
            begin, began = time.perf_counter(), time.process_time()
            if name == "push":
                model.push(values, when=when)
            else:
                model.update(new)
            times.append(time.perf_counter() - begin)
            spent.append(time.process_time() - began)
        row[f"{name}_seconds"] = float(np.median(times))
        row[f"{name}_cpu_seconds"] = float(np.median(spent))
        row[f"{name}_seconds_first"], row[f"{name}_seconds_last"] = (
            float(np.median(some)) for some in np.array_split(times, 2)
        )
        states.append(model.state_.nbytes)
        memory.append(resident_bytes() or 0)
    row |= {
        "state_bytes": states[-1],
        "state_grew": states[-1] - states[0],
        "memory_grew": memory[-1] - memory[1],
    }
    return {"rows": settings.rows, "columns": len(COLUMNS), "horizon": HORIZON}, [row]


def targets(record: BenchRecord) -> list[Target]:
    """Hold the record to what was wanted."""
    row = record.measurements[0]

    def value(name: str) -> float | None:
        found = row.get(name)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None

    return [
        judge("fit", "under 2 min", value("fit_seconds"), lambda x: x < 120, format_seconds),
        judge("push of one row", "under 1 ms", value("push_seconds"), lambda x: x < 1e-3, format_seconds),
        judge("update of one row", "under 1 ms", value("update_seconds"), lambda x: x < 1e-3, format_seconds),
        judge("growth of the state", "0", value("state_grew"), lambda x: x == 0, format_bytes),
        judge("growth of memory", "under 1 MB", value("memory_grew"), lambda x: x < 1e6, format_bytes),
    ]


def tables(record: BenchRecord) -> list[Table]:
    """Return the targets and the facts behind them."""
    row = record.measurements[0]
    facts = [(name, str(value)) for name, value in row.items() if name in ("base", "state_bytes")]
    facts += [
        (f"CPU time: {name}", format_seconds(float(value)))
        for name, value in row.items()
        if name.endswith("_cpu_seconds") and isinstance(value, float)
    ]
    return [
        targets_table(targets(record), title="16,000 hours of four columns, then rows one by one"),
        text_table(title="Facts", columns=("", ""), rows=facts),
    ]


BENCHMARK = Benchmark(
    kind="live-forecaster",
    command="python benchmarks/live_forecaster.py",
    settings=LiveSettings(),
    quick=LiveSettings(rows=1_000, live_rows=20),
    measure=measure,
    tables=tables,
)

if __name__ == "__main__":
    main(BENCHMARK)
