"""What AarenForecaster costs: a fit of 16,000 hours of four columns, one row live, memory.

python benchmarks/live_forecaster.py [--record FILE]     # about two minutes

CPU times stand beside the others: on a busy machine they are what can be compared.
"""

import time
from dataclasses import dataclass

import numpy as np
import pandas as pd  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

from aaren.forecasting.estimator import AarenForecaster
from harness import Benchmark, Measured, OnStep, main, resident_bytes, table
from records import BenchRecord, Row

COLUMNS, HORIZON = ("load", "wind", "sun", "price"), 24


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveSettings:
    """What to measure."""

    rows: int = 16_000
    live_rows: int = 1_000


def hours_of(rows: int) -> pd.DataFrame:
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
    whole = hours_of(settings.rows + 2 * settings.live_rows)
    begin, began = time.perf_counter(), time.process_time()
    model = AarenForecaster(horizon=HORIZON)
    model.fit(whole.iloc[: settings.rows])
    row: Row = {
        "fit_seconds": time.perf_counter() - begin,
        "fit_cpu_seconds": time.process_time() - began,
        "base": model.table().splitlines()[1].split("  ")[0],
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


def tables(record: BenchRecord) -> list[str]:
    """Return what was measured."""
    about = record.settings
    title = f"{about['rows']:,} hours of {about['columns']} columns, then rows one by one"
    rows = [
        [name.replace("_", " "), f"{value:,.4g}" if isinstance(value, float) else str(value)]
        for name, value in record.measurements[0].items()
    ]
    return [table(title, ["", ""], rows)]


BENCHMARK = Benchmark(
    kind="live-forecaster",
    command="python benchmarks/live_forecaster.py",
    sources=("aaren/forecasting",),
    settings=LiveSettings(),
    quick=LiveSettings(rows=1_000, live_rows=20),
    measure=measure,
    tables=tables,
)

if __name__ == "__main__":
    main(BENCHMARK)
