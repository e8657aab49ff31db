"""Measure the residuals of forecasts of unseen rows, and make quantiles of them."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import torch

from aaren.forecasting.lagged import PROBABILITIES, LagForecaster
from aaren.forecasting.ridge import Numbers

FEW_RESIDUALS = 100  # of a series; fewer are joined by those of others
MOST_RESIDUALS = 4000  # windows of each origin whose residuals make the quantiles
DRAWN_WEIGHT = 4.0  # residuals' worth by which the scale of a series is drawn to that of all
LEAST_FREEDOM = 3.0  # of Student's distribution
LEAST_STEADY = 0.2  # of the median of a series' spreads: smaller ones are of rows that stand still
NORMAL = np.array([NormalDist().inv_cdf(p) for p in PROBABILITIES])


class Residuals(NamedTuple):
    """Errors of a series' forecasts of unseen rows, and the spread of the rows before each."""

    errors: Numbers  # (n, tracked)
    spreads: Numbers  # (n,)

    @property
    def relative(self) -> Numbers:
        """Return the errors in spreads."""
        return self.errors / self.spreads[:, None]


def mean_crps(found: Numbers, truth: Numbers) -> float:
    """Return the mean CRPS of quantiles (..., PROBABILITIES): twice their pinball loss, by trapezoids."""
    p, error = np.array(PROBABILITIES), truth[..., None] - found
    return float(2.0 * np.trapezoid(np.maximum(p * error, (p - 1.0) * error), p, axis=-1).mean())


def set_quantiles(model: LagForecaster, residuals: Sequence[Residuals]) -> None:
    """Set the quantiles of each series from its residuals; few ones are joined by the others'."""
    relative = [some.relative for some in residuals]
    pooled = np.concatenate(relative) if len(relative) else np.zeros((0, 1))
    for place, some in enumerate(relative):
        chosen = some if len(some) >= FEW_RESIDUALS else np.concatenate([some, pooled])
        if len(chosen):
            table = np.quantile(chosen, PROBABILITIES, axis=0).T
            model.quantiles[place] = torch.from_numpy(table)


def set_student_quantiles(model: LagForecaster, residuals: Sequence[Residuals]) -> None:
    """Set the quantiles of each series where residuals are too few to read quantiles from them.

    They are Student's, around 0. The scale of step k is c · k^b: `b`, between noise (0) and a random walk
    (1/2), is fitted to all series, `c` is drawn from that of all series to each one's own. Windows overlap,
    so that n residuals of step k say less than n.

    Args:
        model: whose quantiles to set.
        residuals: of each series; NaN where the truth of a step has not come yet.
    """
    steps = np.array(model.config.tracked_steps, dtype=np.float64)
    squares = [
        (some.errors / _not_still(some.spreads)[:, None]) ** 2 if len(some.errors) else some.errors
        for some in residuals
    ]
    counts = np.array([np.isfinite(some).sum(0) for some in squares])  # (series, tracked)
    sums = np.array([np.nansum(some, axis=0) for some in squares])
    weights = counts.sum(0) / steps
    if not weights.sum():
        return
    known = weights > 0
    heights = np.log(sums.sum(0)[known] / counts.sum(0)[known] + 1e-12)
    exponent = _growth(np.log(steps[known]), heights, weights[known])
    growth = steps**exponent  # of variances
    own, own_weights = (sums / growth / steps).sum(1), (counts / steps).sum(1)
    shared = own.sum() / own_weights.sum()
    for place in range(len(residuals)):
        scale = (own[place] + DRAWN_WEIGHT * shared) / (own_weights[place] + DRAWN_WEIGHT)
        freedom = np.maximum(counts[place, 0] / np.sqrt(steps), LEAST_FREEDOM)
        table = NORMAL * _widening(freedom) * np.sqrt(scale * growth)[:, None]
        model.quantiles[place] = torch.from_numpy(table)


def _not_still(spread: Numbers) -> Numbers:
    """Return spreads that are never far below their median."""
    return np.maximum(spread, LEAST_STEADY * np.median(spread))


def _growth(x: Numbers, y: Numbers, weights: Numbers) -> float:
    """Return the slope of a weighted line, drawn to 1/2 as by one more point and kept between 0 and 1."""
    centre = np.average(x, weights=weights)
    above = (weights * (x - centre) * (y - np.average(y, weights=weights))).sum() + 0.5
    return float(np.clip(above / ((weights * (x - centre) ** 2).sum() + 1.0), 0.0, 1.0))


def _widening(freedom: Numbers) -> Numbers:
    """Return Student's quantiles in units of the normal ones, (freedom, PROBABILITIES), nearly."""
    z, v = NORMAL, freedom[:, None]
    found: Numbers = 1.0 + (z**2 + 1) / (4 * v) + (5 * z**4 + 16 * z**2 + 3) / (96 * v**2)
    return found


def measure_residuals(
    model: LagForecaster,
    values: Sequence[Numbers],
    begins: Sequence[int],
    ends: Sequence[int],
    known_ends: Sequence[int] | None = None,
) -> list[Residuals]:
    """Return residuals at the tracked steps, and the spreads of the rows before them, of each series.

    Args:
        model: fitted to the rows before `begins`.
        values: scaled, without profile.
        begins: of each series the first row that is forecast.
        ends: of the rows that are forecast, whole horizons.
        known_ends: of the known rows: then every row before `ends` is forecast from, and what lies beyond
            the known rows is NaN.
    """
    config = model.config
    tracked = np.array(config.tracked_steps)
    found = []
    for place, (column, begin, end) in enumerate(zip(values, begins, ends, strict=True)):
        first = max(begin - 1, config.lag_steps - 1)
        origins = np.arange(first, max(first, end - (1 if known_ends else config.horizon_steps)))
        if len(origins) > MOST_RESIDUALS:
            origins = origins[np.linspace(0, len(origins) - 1, MOST_RESIDUALS).astype(np.int64)]
        if not len(origins):
            nothing = np.zeros((0, len(tracked)))
            found.append(Residuals(nothing, nothing[:, 0]))
            continue
        past = np.arange(-config.lag_steps + 1, 1)
        spreads = np.empty(len(origins))
        forecasts = np.empty((len(origins), len(tracked)))
        for part in np.array_split(np.arange(len(origins)), max(1, len(origins) // 512)):
            if model.joint is None:
                lags = torch.from_numpy(column[origins[part][:, None] + past])
                weight = model.weight[place % len(model.weight)][:, tracked - 1]
                last = lags[:, -1:]
                said = (lags[:, :-1] - last) @ weight[:-1] + weight[-1] + last
            else:
                rows = np.stack([some[origins[part][:, None] + past] for some in values], axis=1)
                lags = torch.from_numpy(rows)
                said = model.forecast_lags(lags)[:, place, tracked - 1]
                lags = lags[:, place]
            forecasts[part] = said.numpy()
            spreads[part] = model.spread(lags).numpy()
        known = column if known_ends is None else column[: known_ends[place]]
        ahead = origins[:, None] + tracked
        truth = np.where(ahead < len(known), known[np.minimum(ahead, len(known) - 1)], np.nan)
        found.append(Residuals(truth - forecasts, spreads))
    return found


def join_residuals(parts: Sequence[Residuals]) -> Residuals:
    """Return the residuals of several parts of one series as one."""
    return Residuals(
        np.concatenate([some.errors for some in parts]),
        np.concatenate([some.spreads for some in parts]),
    )
