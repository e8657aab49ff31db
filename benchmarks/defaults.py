"""The three estimators as they come, on generated data, beside the simplest alternatives.

    python benchmarks/defaults.py [--record FILE]     # about ten minutes of one core

Each kind of data asks one thing of a default: to see when something happened, to keep the season of short
series, to leave a random walk alone. Ours is fitted with its defaults, and so are the alternatives; the
tables say where one of them is better. Two kinds were lost when this was first run, and the defaults mended:
the place of a peak, and many short series with a season.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package
import torch
from numpy.typing import NDArray

from aaren import AarenClassifier, AarenEventForecaster, AarenForecaster
from aaren.bench.publish import Benchmark, main
from aaren.bench.record import BenchRecord, Measured, OnStep, Row, number
from aaren.errors import require_extra
from aaren.table import Table, format_seconds, text_table

Numbers: TypeAlias = NDArray[np.float64]
Rng: TypeAlias = np.random.Generator
OURS = "ours"
STEPS, TRAIN_CASES, TEST_CASES = 120, 200, 600  # of series to classify
WINDOWS = 4  # of every table to forecast, each fitted anew; fewer where they would take a quarter of the rows


def bump(places: Numbers, width: float) -> Numbers:
    """Return a peak at the place of each case."""
    return np.exp(-((np.arange(STEPS) - places[:, np.newaxis]) ** 2) / (2 * width**2))


def classes(rng: Rng, cases: int) -> dict[str, tuple[Numbers, NDArray[np.int64]]]:
    """Draw every kind of labelled series, (cases, STEPS)."""
    y, third = rng.integers(2, size=cases), rng.integers(3, size=cases)
    sign, anywhere = 1.0 - 2.0 * y[:, np.newaxis], rng.uniform(15, 105, cases)
    noise, t = rng.normal(size=(cases, STEPS)), np.arange(STEPS)
    early, late = rng.uniform(15, 50, cases), rng.uniform(70, 105, cases)
    rare = (rng.random(cases) < 0.08).astype(np.int64)
    slow, decay = noise.copy(), np.where(y == 0, 0.5, 0.75)
    for step in range(1, STEPS):
        slow[:, step] += decay * slow[:, step - 1]
    wave = np.sin(t - anywhere[:, np.newaxis]) * bump(anywhere, 5)
    tone = np.sin(
        2 * np.pi * np.array([0.10, 0.12, 0.14])[third][:, np.newaxis] * t + 6 * rng.random((cases, 1))
    )
    return {
        "which of two peaks comes first": (3 * sign * (bump(early, 3) - bump(late, 3)) + 0.7 * noise, y),
        "the place of a peak": (bump(np.array([50.0, 58.0, 66.0])[third], 6) + 0.8 * noise, third),
        "the level": (0.25 * third[:, np.newaxis] + noise, third),
        "the slope, at any level": (
            sign * np.linspace(-0.4, 0.4, STEPS) + rng.normal(size=(cases, 1)) + noise,
            y,
        ),
        "the size of the noise": (noise * (1.0 + 0.2 * y[:, np.newaxis]), y),
        "the frequency": (tone + noise, third),
        "a wave or its magnitude, anywhere": (2 * np.where(sign > 0, wave, np.abs(wave)) + 0.5 * noise, y),
        "the height of a peak, anywhere": ((2.5 + 0.5 * sign) * bump(anywhere, 4) + 0.4 * noise, y),
        "a peak in 8 of 100 series": (2 * rare[:, np.newaxis] * bump(anywhere, 3) + 0.5 * noise, rare),
        "how long noise is remembered": (slow, y),
    }


def judge_classes(name: str, seed: int) -> dict[str, float]:
    """Return balanced accuracy on new series."""
    linear = require_extra("sklearn.linear_model", extra="classification", purpose="this benchmark")
    metrics = require_extra("sklearn.metrics", extra="classification", purpose="this benchmark")
    rocket = require_extra(
        "aeon.classification.convolution_based", extra="classification", purpose="this benchmark"
    )
    values, y = classes(np.random.default_rng(seed), TRAIN_CASES)[name]
    others, truth = classes(np.random.default_rng(1000 + seed), TEST_CASES)[name]
    began = time.process_time()
    ours = AarenClassifier(random_state=seed).fit(values, y)
    seconds = time.process_time() - began
    alternatives = {
        "linear": linear.LogisticRegression(max_iter=2000).fit(values, y).predict(others),
        "MiniRocket": rocket.MiniRocketClassifier(random_state=seed)
        .fit(values[:, np.newaxis], y)
        .predict(others[:, np.newaxis]),
    }
    found = {OURS: ours.predict(others)} | alternatives
    scores = {who: float(metrics.balanced_accuracy_score(truth, said)) for who, said in found.items()}
    return scores | {"fit_cpu_seconds": seconds}


def series(rng: Rng) -> dict[str, tuple[list[Numbers], str, int, int]]:
    """Draw every kind of series to forecast: values, step of the calendar, horizon, rows of a season."""
    hours, days, months = np.arange(24 * 150), np.arange(900), np.arange(120)
    wandering = [rng.normal(size=900).cumsum() for _ in range(4)]
    oscillation, chaos = np.zeros(2500), np.full(2000, 0.4)
    for row in range(2, 2500):
        oscillation[row] = 1.6 * oscillation[row - 1] - 0.8 * oscillation[row - 2] + rng.normal()
    for row in range(1, 2000):
        chaos[row] = 3.8 * chaos[row - 1] * (1 - chaos[row - 1])
    week = 3 * np.sin(2 * np.pi * hours / 24) + 2.0 * (hours // 24 % 7 > 4) + 0.001 * hours
    shops = [
        50 * np.exp(rng.normal()) * (1 + 0.3 * np.sin(2 * np.pi * (months[:36] / 12 + rng.random())))
        + 2 * rng.normal(size=36)
        for _ in range(60)
    ]
    growing = [
        np.exp(4 + 0.01 * months + 0.2 * np.sin(2 * np.pi * months / 12 + k) + 0.05 * rng.normal(size=120))
        for k in range(5)
    ]
    counts = [rng.poisson(0.3 * (1 + 0.8 * np.sin(2 * np.pi * days / 7))).astype(float) for _ in range(10)]
    jump = 5.0 * (days > 700) + np.sin(2 * np.pi * days / 7) + 0.5 * rng.normal(size=900)
    heavy = 5 * np.sin(2 * np.pi * hours[:2500] / 24) + rng.standard_t(1.5, 2500)
    return {
        "days and weeks, hourly": ([10 + week + 0.7 * rng.normal(size=len(hours))], "h", 24, 24),
        "random walks": (wandering, "D", 14, 7),
        "counts, mostly zero": (counts, "D", 14, 7),
        "growth with a season, monthly": (growing, "ME", 12, 12),
        "60 series of three years, monthly": (shops, "ME", 6, 12),
        "a level that jumped": ([jump], "D", 14, 7),
        "chaos, one step ahead": ([chaos], "h", 1, 24),
        "noisy oscillation": ([oscillation], "h", 12, 24),
        "a period that no calendar has": (
            [5 * (hours[:2000] % 37) / 37 + 0.3 * rng.normal(size=2000)],
            "h",
            24,
            24,
        ),
        "heavy tails": ([heavy], "h", 24, 24),
    }


def ridge_forecast(values: Numbers, horizon: int, lags: int) -> Numbers:
    """Forecast one series by ridge regression on its lags, relative to the last value."""
    linear = require_extra("sklearn.linear_model", extra="classification", purpose="this benchmark")
    windows = np.lib.stride_tricks.sliding_window_view(values, lags + horizon)
    last = windows[:, lags - 1 : lags]
    model = linear.RidgeCV(np.logspace(-2, 4, 7)).fit(windows[:, :lags] - last, windows[:, lags:] - last)
    changes = np.reshape(model.predict((values[-lags:] - values[-1])[np.newaxis]), horizon)
    found: Numbers = values[-1] + changes
    return found


def judge_series(name: str, seed: int) -> dict[str, float]:
    """Return mean absolute errors of the last windows, in units of each series' mean change."""
    columns, step, horizon, season = series(np.random.default_rng(seed))[name]
    rows = len(columns[0])
    dates = pd.date_range("2020-01-31", periods=rows, freq=step)
    table = pd.DataFrame(dict(enumerate(columns)), index=dates).rename(columns="series {}".format)
    scale = table.diff().abs().mean().to_numpy()
    errors: dict[str, list[Numbers]] = {who: [] for who in (OURS, "linear", "last season", "last value")}
    inside, seconds, windows = [], 0.0, max(1, min(WINDOWS, rows // (4 * horizon)))
    for window in range(windows):
        cut = rows - (window + 1) * horizon
        known, truth = table.iloc[:cut], table.iloc[cut : cut + horizon].to_numpy()
        began = time.process_time()
        model = AarenForecaster(horizon).fit(known)
        seconds += time.process_time() - began
        said, values = model.predict(levels=[80]), known.to_numpy()
        lags = min(168 if season == 24 else 4 * season, cut // 3)
        found = {
            OURS: said[list(table)].to_numpy(dtype=np.float64),
            "linear": np.stack([ridge_forecast(column, horizon, lags) for column in values.T], axis=1),
            "last season": np.resize(values[-season:], truth.shape),
            "last value": np.broadcast_to(values[-1], truth.shape),
        }
        for who, forecast in found.items():
            errors[who].append(np.abs(forecast - truth) / scale)
        low, high = (said[[f"{column}-{side}-80" for column in table]].to_numpy() for side in ("lo", "hi"))
        inside.append((truth >= low) & (truth <= high))
    means = {who: float(np.mean(some)) for who, some in errors.items()}
    return means | {"coverage_80": float(np.mean(inside)), "fit_cpu_seconds": seconds / windows}


def events(rng: Rng) -> dict[str, pd.DataFrame]:
    """Draw every kind of events: who, when, what."""

    def frame(times: list[Numbers], kinds: list[Any] | None = None) -> pd.DataFrame:
        kinds = kinds or [np.full(len(some), "event") for some in times]
        parts = [
            pd.DataFrame({"who": f"user {k}", "time": some, "what": what})
            for k, (some, what) in enumerate(zip(times, kinds, strict=True))
        ]
        found = pd.concat(parts, ignore_index=True)
        return found.assign(time=pd.Timestamp("2026-01-05") + pd.to_timedelta(found["time"], unit="s"))

    office, bought = [], []
    for _ in range(20):
        times = np.cumsum(rng.exponential(900, 1500))
        hour = times / 3600 % 24
        is_kept = rng.random(1500) < np.where((hour >= 9) & (hour < 17), 0.9, 0.03)
        office.append(times[is_kept])
        share = np.where(hour < 12, 0.8, 0.2)[is_kept]
        bought.append(np.where(rng.random(len(share)) < share, "buy", "view"))
    chains = []
    for _ in range(30):
        chain = [0, 1]
        for _ in range(58):
            chain.append((chain[-1] + chain[-2]) % 3 if rng.random() < 0.85 else int(rng.integers(3)))
        chains.append(np.array(list("xyz"))[chain])
    either = [
        np.cumsum(np.where(rng.random(60) < 0.7, rng.normal(3600, 60, 60), rng.exponential(30, 60)))
        for _ in range(30)
    ]
    return {
        "at random": frame([np.cumsum(rng.exponential(600, 80)) for _ in range(20)]),
        "in office hours, kinds by the hour": frame(office, bought),
        "every minute, nearly": frame([np.cumsum(rng.normal(60, 2, 150)) for _ in range(10)]),
        "the kind follows from the two before": frame(
            [np.cumsum(rng.lognormal(5, 0.5, 60)) for _ in range(30)], chains
        ),
        "one long sequence": frame([np.cumsum(rng.lognormal(4, 1, 1500))], [rng.choice(list("abc"), 1500)]),
        "users of different pace": frame(
            [np.cumsum(rng.exponential(10.0 ** (1 + k % 4), 40)) for k in range(40)]
        ),
        "after an hour, or at once": frame(either),
    }


def judge_events(name: str, seed: int) -> dict[str, float]:
    """Return nats per held-out event; `fit` compares with the chain by itself."""
    began = time.process_time()
    model = AarenEventForecaster(random_state=seed).fit(events(np.random.default_rng(seed))[name])
    found = {
        OURS if who == "AarenEventForecaster" else who: some.total for who, some in model.held_out_.items()
    }
    return {**found, "fit_cpu_seconds": time.process_time() - began}


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One estimator: what it is judged on, and how."""

    title: str
    names: tuple[str, ...]
    judge: Callable[[str, int], dict[str, float]]
    alternatives: tuple[str, ...]
    is_better_high: bool = False
    digits: int = 2


_RNG = np.random.default_rng(0)
FIELDS = {
    "classification": Field(
        title="Balanced accuracy on new series; what tells the classes apart is",
        names=tuple(classes(_RNG, 8)),
        judge=judge_classes,
        alternatives=("linear", "MiniRocket"),
        is_better_high=True,
        digits=3,
    ),
    "forecasting": Field(
        title="Mean absolute error of the next rows, in mean changes",
        names=tuple(series(_RNG)),
        judge=judge_series,
        alternatives=("linear", "last season", "last value"),
    ),
    "events": Field(
        title="Nats per held-out event, lower is better",
        names=tuple(events(_RNG)),
        judge=judge_events,
        alternatives=("markov",),
        digits=3,
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultsSettings:
    """What to measure."""

    fields: tuple[str, ...] = tuple(FIELDS)
    seeds: tuple[int, ...] = (0, 1)
    most: int | None = None  # kinds of each field


def measure(settings: DefaultsSettings, on_step: OnStep) -> Measured:
    """Measure every kind of data and seed."""
    planned = [
        (field, name, seed)
        for field in settings.fields
        for name in FIELDS[field].names[: settings.most]
        for seed in settings.seeds
    ]
    rows: list[Row] = []
    for done, (field, name, seed) in enumerate(planned):
        on_step(done, len(planned), f"{name}, seed {seed}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a baseline will do: the table says so
            rows.append({"field": field, "data": name, "seed": seed, **FIELDS[field].judge(name, seed)})
    return {"seeds": list(settings.seeds)}, rows


def tables(record: BenchRecord) -> list[Table]:
    """Return a table of each field, and who is best on each kind of data."""
    found = []
    for name, field in FIELDS.items():
        rows = [row for row in record.measurements if row["field"] == name]
        lines = []
        for data in dict.fromkeys(str(row["data"]) for row in rows):
            some = [row for row in rows if row["data"] == data]
            means = {
                who: float(np.mean([number(row, who) for row in some])) for who in (OURS, *field.alternatives)
            }
            best = (max if field.is_better_high else min)(means, key=lambda who: means[who])
            seconds = float(np.mean([number(row, "fit_cpu_seconds") for row in some]))
            cells = [f"{means[who]:.{field.digits}f}" for who in (OURS, *field.alternatives)]
            lines.append((data, *cells, best, format_seconds(seconds)))
        if lines:
            columns = ("", OURS, *field.alternatives, "best", "fit, CPU")
            found.append(text_table(title=field.title, columns=columns, rows=lines))
    return found


BENCHMARK = Benchmark(
    kind="defaults",
    command="python benchmarks/defaults.py",
    settings=DefaultsSettings(),
    quick=DefaultsSettings(fields=("classification",), seeds=(0,), most=2),
    measure=measure,
    tables=tables,
    is_timed=False,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(BENCHMARK)
