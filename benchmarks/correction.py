"""Where attention over a good linear base helps: generated series of known processes.

    python benchmarks/correction.py [--record FILE]     # about five minutes of one core

Each kind of series is drawn anew for every seed: three fifths to fit, a fifth to judge the correction, the
last fifth to measure. The model decides by itself whether its correction is kept; the gain is that of the
squared error on the last fifth, 0 where the correction was dropped.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from aaren.bench.publish import Benchmark, main
from aaren.bench.record import BenchRecord, Measured, OnStep, Row, number
from aaren.forecasting.fitting import CorrectionTraining, History, Windows, add_correction, fit_base
from aaren.forecasting.lagged import CorrectionConfig
from aaren.table import Table, text_table

HORIZON, UPDATES = 12, 400
Numbers = NDArray[np.float64]


def seasons(noise: np.random.Generator) -> list[Numbers]:
    """Days, weeks and autoregressive noise: a linear process."""
    t, found = np.arange(4000), []
    for place in range(4):
        rest = np.zeros(4000)
        for row in range(1, 4000):
            rest[row] = 0.8 * rest[row - 1] + noise.normal()
        found.append(3 * np.sin(2 * np.pi * (t + place) / 24) + np.sin(2 * np.pi * t / 168) + rest)
    return found


def threshold(noise: np.random.Generator) -> list[Numbers]:
    """One autoregression above zero and another below: piecewise linear."""
    values = np.zeros((4, 4000))
    for row in range(1, 4000):
        last = values[:, row - 1]
        values[:, row] = np.where(last > 0, 0.9 * last - 1.0, -0.6 * last + 1.0) + 0.3 * noise.normal(size=4)
    return list(values)


def chaos(noise: np.random.Generator) -> list[Numbers]:
    """Mackey and Glass's equation, delay 17: smooth, without noise, and not linear."""
    found = []
    for _ in range(4):
        values = np.concatenate([1.2 + 0.2 * noise.normal(size=18), np.zeros(5000)])
        for row in range(18, len(values)):
            late = values[row - 18]
            values[row] = values[row - 1] + 0.2 * late / (1.0 + late**10) - 0.1 * values[row - 1]
        found.append(values[-4000:])
    return found


def regimes(noise: np.random.Generator) -> list[Numbers]:
    """A day of one shape or of another, for 200 rows or so at a time."""
    found = []
    for _ in range(4):
        state, values, t = 0, np.zeros(4000), np.arange(4000)
        for row in range(4000):
            state = 1 - state if noise.random() < 1 / 200 else state
            values[row] = state
        shapes = np.stack([np.sin(2 * np.pi * t / 24), np.sign(np.sin(2 * np.pi * t / 16))])
        found.append(shapes[values.astype(int), t] + 0.2 * noise.normal(size=4000))
    return found


def many_short(noise: np.random.Generator) -> list[Numbers]:
    """Sixty series of 400 rows that charge slowly and empty at once, each at its own pace."""
    found = []
    for _ in range(60):
        level, values, pace = 0.0, np.zeros(400), noise.uniform(0.03, 0.1)
        for row in range(400):
            level = level + pace * (1.0 + 0.1 * noise.normal())
            level = 0.0 if level > 1.0 else level
            values[row] = level
        found.append(values + 0.02 * noise.normal(size=400))
    return found


KINDS: dict[str, tuple[Callable[[np.random.Generator], list[Numbers]], int]] = {  # and the lags
    "seasons and linear noise": (seasons, 96),
    "a threshold": (threshold, 24),
    "chaos without noise": (chaos, 96),
    "shapes of the day that switch": (regimes, 96),
    "many short series that saturate": (many_short, 48),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CorrectionSettings:
    """What to measure."""

    kinds: tuple[str, ...] = tuple(KINDS)
    seeds: tuple[int, ...] = (0, 1, 2)
    updates: int = UPDATES


def measure_one(kind: str, seed: int, updates: int) -> Row:
    """Fit base and correction to one draw and measure both on its last fifth."""
    make, lags = KINDS[kind]
    series = make(np.random.default_rng(seed))
    rows, size = len(series[0]), len(series)
    history = History(series=series, slots=[np.zeros(rows, dtype=np.int64)] * size)
    fit_ends, judge_ends = [3 * rows // 5] * size, [4 * rows // 5] * size
    fitted = fit_base(
        history, horizon_steps=HORIZON, lag_steps=lags, fit_ends=fit_ends, judge_ends=judge_ends
    )
    found = add_correction(
        fitted,
        history,
        config=CorrectionConfig(patch_steps=12),
        training=CorrectionTraining(updates=updates, seed=seed, most_seconds=1e9),
        fit_ends=fit_ends,
        judge_ends=judge_ends,
    )
    windows = Windows(found.model, history)
    origins = windows.origins([4 * rows // 5 - 1] * size, [rows] * size)
    residuals = torch.cat([windows.take(part)[3] for part in torch.split(origins, 1024)])
    gain = 0.0
    if found.factor:
        windows.judge(origins)
        rr, rc, cc = windows.terms(origins).sum(0)
        gain = float((2 * found.factor * rc - found.factor**2 * cc) / rr)
    return {
        "kind": kind,
        "seed": seed,
        "weights": fitted.choice.weights,
        "base_mse": float(residuals.double().square().mean()),
        "factor": found.factor,
        "gain": gain,
    }


def measure(settings: CorrectionSettings, on_step: OnStep) -> Measured:
    """Measure every kind and seed."""
    planned = [(kind, seed) for kind in settings.kinds for seed in settings.seeds]
    rows = []
    for done, (kind, seed) in enumerate(planned):
        on_step(done, len(planned), f"{kind}, seed {seed}")
        rows.append(measure_one(kind, seed, settings.updates))
    return {"seeds": list(settings.seeds), "updates": settings.updates, "horizon": HORIZON}, rows


def tables(record: BenchRecord) -> list[Table]:
    """Return what the correction gains on each kind of series."""
    lines = []
    for kind in dict.fromkeys(str(row["kind"]) for row in record.measurements):
        rows = [row for row in record.measurements if row["kind"] == kind]
        gains = [100 * number(row, "gain") for row in rows]
        spread = f" ± {np.std(gains, ddof=1):.1f}" if len(gains) > 1 else ""
        lines.append(
            (
                kind,
                f"{np.mean([number(row, 'base_mse') for row in rows]):.4f}",
                f"{np.mean(gains):.1f} %{spread}",
                f"{sum(bool(row['factor']) for row in rows)} of {len(rows)}",
            )
        )
    return [
        text_table(
            title=f"What attention adds to the linear base, {HORIZON} steps ahead",
            columns=("generated series", "MSE of the base, scaled", "lower by the correction", "kept"),
            rows=lines,
        )
    ]


BENCHMARK = Benchmark(
    kind="correction",
    command="python benchmarks/correction.py",
    settings=CorrectionSettings(),
    quick=CorrectionSettings(kinds=("a threshold",), seeds=(0,), updates=60),
    measure=measure,
    tables=tables,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(BENCHMARK)
