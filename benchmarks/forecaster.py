"""AarenForecaster's model on seven public sets at four horizons, beside simple and published kinds of models.

    python benchmarks/forecaster.py --record results/bench/forecaster.json     # about an hour of one core

Data: $AAREN_DATA. Everything is fitted to TRAIN and chosen on TRAIN and validation; it is evaluated on all
windows of TEST, on data scaled by TRAIN. Intervals are evaluated after every few rows of one stream that goes
through validation and TEST, at up to 12 steps of the horizon.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aaren.datasets.catalogue import lookup
from aaren.forecasting.calendar import find_clock, find_slots
from aaren.forecasting.data import HORIZONS, load_series, split_of
from aaren.forecasting.fitting import Fitted, History, fit_base
from aaren.forecasting.intervals import judge_intervals, judge_quantiles, visited_origins
from aaren.forecasting.lagged import PROBABILITIES, LagForecaster, LagForecasterConfig
from aaren.forecasting.presets import season_steps
from aaren.forecasting.ridge import LAG_STEPS, fit_shared, squared_error, window_moments
from harness import Benchmark, Measured, OnStep, main, table
from records import BenchRecord, Row, number

DATASETS = ("ETTh1", "ETTh2", "ETTm1", "ETTm2", "Weather", "Exchange", "traffic-20")
SIMPLE = ("linear-96", "last value", "last season")
PEERS = ("DLinear style", "PatchTST style")
PEER_ORIGINS = 400  # origins of TEST, evenly spaced, for the PatchTST style
PEER_UPDATES = {"DLinear style": 1500, "PatchTST style": 300}
PEER_BATCH = {"DLinear style": 256, "PatchTST style": 128}

# MSE as published, at a look-back of 336: Zeng et al. (2023), arXiv 2205.13504, and Nie et al. (2023), arXiv
# 2211.14730, PatchTST/42; compared number by number with a table of later work that quotes both. Traffic has
# all 862 series there: another set.
PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {
    "DLinear": {
        "ETTh1": (0.375, 0.405, 0.439, 0.472),
        "ETTh2": (0.289, 0.383, 0.448, 0.605),
        "ETTm1": (0.299, 0.335, 0.369, 0.425),
        "ETTm2": (0.167, 0.224, 0.281, 0.397),
        "Weather": (0.176, 0.220, 0.265, 0.323),
        "Exchange": (0.081, 0.157, 0.305, 0.643),
    },
    "PatchTST": {
        "ETTh1": (0.375, 0.414, 0.431, 0.449),
        "ETTh2": (0.274, 0.339, 0.331, 0.379),
        "ETTm1": (0.290, 0.332, 0.366, 0.420),
        "ETTm2": (0.165, 0.220, 0.278, 0.367),
        "Weather": (0.152, 0.197, 0.249, 0.320),
    },
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecasterSettings:
    """What to measure."""

    datasets: tuple[str, ...] = DATASETS
    horizons: tuple[int, ...] = HORIZONS
    peers: tuple[str, ...] = PEERS


QUICK = ForecasterSettings(datasets=("seasonal",), horizons=(24,), peers=())


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Opened:
    """A set, scaled by TRAIN, and where its parts end."""

    name: str
    history: History
    train: int
    validation: int
    test: int

    @property
    def size(self) -> int:
        """Return how many series it has."""
        return len(self.history.series)

    @property
    def values(self) -> NDArray[np.float64]:
        """Return all rows, (rows, series)."""
        return np.stack(self.history.series, axis=1)


def open_set(name: str) -> Opened:
    """Read and scale a set."""
    dataset = lookup(name)
    series = load_series(dataset)
    split = split_of(dataset, len(series))
    a, b = split.train, split.train + split.validation
    c = b + split.test
    values = series.values[:c]
    deviation = values[:a].std(0)
    values = (values - values[:a].mean(0)) / np.where(deviation == 0, 1.0, deviation)
    clock, seconds = find_clock(series.dates)
    slots = find_slots(series.dates[:c], clock, seconds)
    columns = [np.ascontiguousarray(column) for column in values.T]
    history = History(
        series=columns, slots=[slots] * len(columns), is_table=True, clock=clock, slot_seconds=seconds
    )
    return Opened(name=name, history=history, train=a, validation=b, test=c)


def fit(opened: Opened, horizon: int) -> Fitted:
    """Fit the base to TRAIN; validation chooses."""
    fit_ends, judge_ends = [opened.train] * opened.size, [opened.validation] * opened.size
    return fit_base(
        opened.history,
        horizon_steps=horizon,
        lag_steps=LAG_STEPS,
        fit_ends=fit_ends,
        judge_ends=judge_ends,
    )


def base_rows(opened: Opened, horizon: int) -> list[dict[str, Any]]:
    """Score the base and everything that needs no training, over all windows of TEST."""
    began = time.process_time()
    fitted = fit(opened, horizon)
    model, seconds = fitted.model, time.process_time() - began
    history, a, b, c = opened.history, opened.train, opened.validation, opened.test
    slots, profile = history.slots[0], model.profile.numpy()
    rest = [column - profile[slots, place] for place, column in enumerate(history.series)]
    judge = window_moments([v[b - LAG_STEPS : c] for v in rest], LAG_STEPS, horizon)
    assert model.joint is None  # at most six columns are joined, and every set has more
    rows: list[dict[str, Any]] = [
        {
            "contender": "base",
            "mse": squared_error(model.weight.numpy(), judge),
            "profile": fitted.choice.profile,
            "weights": fitted.choice.weights,
            "cpu_seconds": round(seconds, 1),
            **intervals(model, opened),
        }
    ]
    for lags in (96, LAG_STEPS):
        known = window_moments([v[:a] for v in history.series], lags, horizon, is_relative=False)
        ahead = window_moments([v[b - lags : c] for v in history.series], lags, horizon, is_relative=False)
        error = squared_error(fit_shared(known, ridge=1e-6), ahead)
        rows.append({"contender": f"linear-{lags}", "mse": error})
    values, origins = opened.values, np.arange(b - 1, c - horizon)
    for name, back in (("last value", 1), ("last season", season_steps(opened.name))):
        errors = [
            np.mean((values[origins + h] - values[origins + (h - 1) % back + 1 - back]) ** 2)
            for h in range(1, horizon + 1)
        ]
        row: dict[str, Any] = {"contender": name, "mse": float(np.mean(errors))}
        rows.append(row | (conformal(opened, horizon, back) if back > 1 else {}))
    return rows


def conformal(opened: Opened, horizon: int, season: int) -> dict[str, float]:
    """Score a seasonal naive with the quantiles of its residuals in TRAIN and validation."""
    steps = np.array(_tracked(horizon))
    back = (steps - 1) % season + 1 - season
    values = opened.values
    past = np.arange(season, opened.validation - horizon, max(1, opened.validation // 8000))
    residuals = values[past[:, None] + steps] - values[past[:, None] + back]
    table = np.quantile(residuals, PROBABILITIES, axis=0).transpose(1, 2, 0)  # (tracked, s, q)
    origins = visited_origins(opened.validation - 1, opened.test, horizon)
    said = values[origins[:, None] + back][..., None] + table
    return judge_quantiles(said, values[origins[:, None] + steps])


def intervals(model: LagForecaster, opened: Opened) -> dict[str, float]:
    """Score the intervals of one stream through validation and TEST."""
    begin, first = opened.train - LAG_STEPS, opened.validation - 1
    return judge_intervals(model, opened.history, begin=begin, first=first, end=opened.test)


class DLinearStyle(nn.Module):
    """A moving average and the rest, each through one linear layer, the same for every series."""

    def __init__(self, horizon: int) -> None:
        super().__init__()
        self.smooth = nn.AvgPool1d(25, stride=1)
        self.trend, self.rest = nn.Linear(LAG_STEPS, horizon), nn.Linear(LAG_STEPS, horizon)

    def forward(self, lags: Tensor) -> Tensor:
        """Forecast (n, horizon) from (n, lags)."""
        trend = self.smooth(nn.functional.pad(lags[:, None], (12, 12), mode="replicate"))[:, 0]
        found: Tensor = self.trend(trend) + self.rest(lags - trend)
        return found


class PatchTSTStyle(nn.Module):
    """Windows normalised by themselves, patches of 16 every 8 rows, a small Transformer, one linear head."""

    def __init__(self, horizon: int, width: int = 64) -> None:
        super().__init__()
        count = (LAG_STEPS - 16) // 8 + 1
        self.patch, self.head = nn.Linear(16, width), nn.Linear(width * count, horizon)
        self.position = nn.Parameter(0.02 * torch.randn(count, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.2, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, lags: Tensor) -> Tensor:
        """Forecast (n, horizon) from (n, lags)."""
        mean, scale = lags.mean(1, keepdim=True), lags.std(1, keepdim=True) + 1e-5
        hidden = self.encoder(self.patch(((lags - mean) / scale).unfold(1, 16, 8)) + self.position)
        found: Tensor = self.head(hidden.flatten(1)) * scale + mean
        return found


def peer_row(opened: Opened, horizon: int, name: str) -> dict[str, Any]:
    """Train a peer on the same windows under a stated budget; validation chooses the update."""
    began = time.process_time()
    torch.manual_seed(0)
    model: nn.Module = DLinearStyle(horizon) if name == PEERS[0] else PatchTSTStyle(horizon)
    flat = torch.from_numpy(np.concatenate(opened.history.series)).float()
    a, b, c = opened.train, opened.validation, opened.test
    offsets = torch.arange(opened.size) * len(opened.history.series[0])
    past, ahead = torch.arange(-LAG_STEPS + 1, 1), torch.arange(1, horizon + 1)

    def pairs(origins: Tensor) -> tuple[Tensor, Tensor]:
        return flat[origins[:, None] + past], flat[origins[:, None] + ahead]

    @torch.no_grad()
    def error(first: int, last: int, most: int) -> float:
        model.eval()
        origins = torch.linspace(first, last - 1, min(most, last - first)).long()
        total = count = 0.0
        for some in torch.split((origins[:, None] + offsets).flatten(), 512):
            lags, truth = pairs(some)
            total, count = total + float((model(lags) - truth).square().sum()), count + truth.numel()
        model.train()
        return total / count

    updates, best = PEER_UPDATES[name], (float("inf"), {"": torch.zeros(())})
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates)
    for update in range(1, updates + 1):
        origins = torch.randint(LAG_STEPS - 1, a - horizon, (PEER_BATCH[name],))
        lags, truth = pairs(origins + offsets[torch.randint(opened.size, (PEER_BATCH[name],))])
        loss = nn.functional.mse_loss(model(lags), truth)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if update % (updates // 6) == 0:
            validation = error(a - 1, b - horizon, 40)
            if validation < best[0]:
                best = (validation, {key: value.clone() for key, value in model.state_dict().items()})
    model.load_state_dict(best[1])
    most = PEER_ORIGINS if name == PEERS[1] else c
    mse = error(b - 1, c - horizon, most)
    seconds = round(time.process_time() - began, 1)
    return {"contender": name, "mse": mse, "updates": updates, "cpu_seconds": seconds}


def measure(settings: ForecasterSettings, on_step: OnStep) -> Measured:
    """Measure every contender on every set at every horizon."""
    rows: list[Row] = []
    cells = [(name, horizon) for horizon in settings.horizons for name in settings.datasets]
    for done, (name, horizon) in enumerate(cells):
        on_step(done, len(cells), f"{name}, {horizon} steps")
        opened = open_set(name)
        measured = base_rows(opened, horizon) + [peer_row(opened, horizon, peer) for peer in settings.peers]
        rows += [{"dataset": name, "horizon": horizon, **row} for row in measured]
    budgets = {name: f"{PEER_UPDATES[name]} updates of {PEER_BATCH[name]} windows" for name in settings.peers}
    return {**budgets}, rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One set at one horizon, over all seeds."""

    dataset: str
    horizon: int
    errors: dict[str, float]  # MSE by contender
    coverage_80: float
    coverage_95: float
    crps: float
    naive_crps: float
    base: str  # what the rolling origins chose
    spread: str  # and what its intervals are relative to

    @property
    def label(self) -> str:
        """Return set and horizon."""
        return f"{self.dataset}-{self.horizon}"


def lines(record: BenchRecord) -> list[Line]:
    """Join the measurements of each set and horizon."""
    found = []
    for name, horizon in dict.fromkeys((row["dataset"], row["horizon"]) for row in record.measurements):
        rows = [r for r in record.measurements if r["dataset"] == name and r["horizon"] == horizon]
        errors = {str(row["contender"]): number(row, "mse") for row in rows if "mse" in row}
        base, naive = (
            record.find(dataset=name, horizon=horizon, contender=c) for c in ("base", "last season")
        )
        if base is None or naive is None:
            continue
        found.append(
            Line(
                dataset=str(name),
                horizon=int(number(base, "horizon")),
                errors=errors,
                **{field: number(base, field) for field in ("coverage_80", "coverage_95", "crps")},
                naive_crps=number(naive, "crps"),
                base=f"{base['weights']}, profile {base['profile']}",
                spread=str(base.get("spread", "root-level")),  # of records from when it was chosen
            )
        )
    return sorted(found, key=lambda line: (_place(line.dataset), line.horizon))


def tables(record: BenchRecord) -> list[str]:
    """Return errors and intervals."""
    rows = lines(record)
    others = ("linear-336", *SIMPLE, *PEERS)
    return [
        table(
            title="MSE over all windows of TEST (PatchTST style: 400 origins); published: look-back 336",
            columns=("", "AarenForecaster", *others, "published: DLinear", "published: PatchTST"),
            rows=[
                (
                    line.label,
                    *(_digits(line.errors.get(name)) for name in ("base", *others)),
                    *(_digits(published(name, line)) for name in PUBLISHED),
                )
                for line in rows
            ],
        ),
        table(
            title="Intervals of one stream through TEST, and what was chosen",
            columns=(
                "",
                "80 % cover",
                "95 % cover",
                "CRPS",
                "CRPS, naive",
                "base",
                "relative to",
            ),
            rows=[
                (
                    line.label,
                    f"{100 * line.coverage_80:.1f}",
                    f"{100 * line.coverage_95:.1f}",
                    _digits(line.crps),
                    _digits(line.naive_crps),
                    line.base,
                    line.spread,
                )
                for line in rows
            ],
        ),
    ]


def published(name: str, line: Line) -> float | None:
    """Return the number of the literature."""
    found = PUBLISHED[name].get(line.dataset)
    return found[HORIZONS.index(line.horizon)] if found and line.horizon in HORIZONS else None


def _place(dataset: str) -> int:
    return DATASETS.index(dataset) if dataset in DATASETS else len(DATASETS)


def _digits(value: float | None) -> str:
    return "\N{EN DASH}" if value is None else f"{value:.3f}"


def _tracked(horizon: int) -> Sequence[int]:
    return LagForecasterConfig(num_series=1, horizon_steps=horizon).tracked_steps


BENCHMARK = Benchmark(
    kind="forecaster",
    command="python benchmarks/forecaster.py",
    sources=("aaren/forecasting",),
    settings=ForecasterSettings(),
    quick=QUICK,
    measure=measure,
    tables=tables,
    is_timed=False,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(BENCHMARK)
