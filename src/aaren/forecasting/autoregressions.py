"""Ridge regressions on lags as linear maps of the last rows: recursive ones on few lags, direct ones on many.

Each is fitted again at a few origins, from the rows before them alone, so that its forecasts at all origins
are those that it would have made.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Origins = NDArray[np.int64]

RECURSIVE_FITS, DIRECT_FITS = 10, 5  # at so many origins
RECURSIVE_RIDGE = 0.02  # relative to the mean square of the features
DIRECT_RIDGES = {"direct": 0.01, "direct, drawn": 0.3}
LEAST_ROWS = 6  # to fit a regression to
INTERCEPT_ROWS = 10.0  # rows' worth by which an intercept, a drift, is drawn to 0
DIRECT_ROWS = 250  # of a series, from which direct regressions are fitted
HOURS, WEEK = 24, 7  # rows of a season that is a day, and days of a week
MOST_LAGS = 336


class LinearMap(NamedTuple):
    """Forecasts as matrix · last rows + bias."""

    matrix: Numbers  # (h, rows), the latest row last
    bias: Numbers  # (h,)


class Regression(NamedTuple):
    """Forecasts of a regression at every origin, NaN where it could not be fitted, and its last map."""

    forecasts: Numbers  # (origins, h)
    final: LinearMap


class Plan(NamedTuple):
    """A recursive autoregression: which differences are taken, and which lags of them it sees."""

    differences: tuple[int, ...]
    lags: tuple[int, ...]
    is_centred: bool = False  # about the mean of the rows; otherwise about 0


def make_plans(rows: int, season: int, week: int) -> dict[str, Plan]:
    """Return the recursive autoregressions for so many rows.

    Args:
        rows: of the series.
        season: its rows; 1: there is none.
        week: rows of a week of several rows a day; 0: none, or too few rows.
    """

    def bearable(lags: Sequence[int]) -> tuple[int, ...]:
        return tuple(lag for lag in sorted(set(lags)) if 0 < lag <= rows // 3)

    near = list(range(1, min(4, rows // 6) + 1))
    weekly = (week - 1, week, week + 1) if week else ()
    seasonal = bearable([*near, season - 1, season, season + 1, 2 * season] if season > 1 else near) + weekly
    plans = {
        "lags of changes": Plan((1,), seasonal),
        "lags": Plan((), (1, 2, 3) if season == 1 else seasonal, is_centred=True),
        "latest lags": Plan((), bearable(range(1, min(8, rows // 6) + 1)), is_centred=True),
        "lags of changes of changes": Plan((1, 1), bearable((1, 2))),
    }
    if season > 1:
        lags = bearable([*near, season, season + 1])
        plans["lags of seasonal changes"] = Plan((season,), lags + ((week,) if week else ()))
        plans["lags of changes of seasonal changes"] = Plan((season, 1), bearable([*near, season]))
    if week:
        plans["lags of weekly changes"] = Plan((week,), bearable([*near, season, season + 1]))
    return {name: plan for name, plan in plans.items() if plan.lags}


def fit_recursive(values: Numbers, plan: Plan, horizon: int, origins: Origins) -> Regression | None:
    """Fit an autoregression of differences; None: the series is too short for it."""
    mean = float(values.mean()) if plan.is_centred else 0.0
    changes = values - mean
    for lag in plan.differences:
        changes = changes[lag:] - changes[:-lag]
    lags, longest, lost = np.array(plan.lags), max(plan.lags), sum(plan.differences)
    if len(changes) < longest + 8:
        return None
    features = np.stack([changes[longest - lag : len(changes) - lag] for lag in lags], axis=1)
    known_at = np.arange(longest, len(changes)) + lost + 1  # rows known when a target has come
    fits = _fit_before(features, changes[longest:, None], known_at, origins, RECURSIVE_RIDGE, RECURSIVE_FITS)
    reach = longest + lost
    maps = {
        place: _unroll(weights[:, 0], float(intercept[0]), plan, horizon, reach, mean)
        for place, (weights, intercept) in fits.items()
    }
    return _said(values, maps, horizon, origins, reach)


def fit_direct(values: Numbers, horizon: int, origins: Origins, num_lags: int) -> Mapping[str, Regression]:
    """Fit all steps at once to the last rows minus the last one, at each ridge; empty: too few rows."""
    rows, found = len(values), {}
    if rows < num_lags + horizon + 60:
        return {}
    windows = np.lib.stride_tricks.sliding_window_view(values, num_lags + horizon)
    last = windows[:, num_lags - 1 : num_lags]
    features, targets = windows[:, : num_lags - 1] - last, windows[:, num_lags:] - last
    known_at = np.arange(len(windows)) + num_lags + horizon
    for name, ridge in DIRECT_RIDGES.items():
        fits = _fit_before(features, targets, known_at, origins, ridge, DIRECT_FITS)
        maps = {}
        for place, (weights, intercept) in fits.items():
            rest = 1.0 - weights.sum(0)
            maps[place] = LinearMap(np.concatenate([weights.T, rest[:, None]], axis=1), intercept)
        regression = _said(values, maps, horizon, origins, num_lags)
        if regression is not None:
            found[name] = regression
    return found


def direct_lags(rows: int, season: int) -> int:
    """Return how many lags a direct regression sees.

    >>> direct_lags(2000, 24), direct_lags(400, 12), direct_lags(700, 52)
    (336, 26, 60)
    """
    if season >= HOURS and season < 52:
        return min(MOST_LAGS, rows // 4 if rows < 1000 else rows // 3)
    return max(2 * season + 2, 12) if season <= 12 else 60


def repeat_season(values: Numbers, season: int, horizon: int, origins: Origins) -> Regression:
    """Return the last season again and again."""
    matrix = np.zeros((horizon, season))
    matrix[np.arange(horizon), np.arange(horizon) % season] = 1.0
    maps = {0: LinearMap(matrix, np.zeros(horizon))}
    regression = _said(values, maps, horizon, origins, season)
    assert regression is not None
    return regression


def _fit_before(
    features: Numbers, targets: Numbers, known_at: Origins, origins: Origins, ridge: float, fits: int
) -> dict[int, tuple[Numbers, Numbers]]:
    """Return weights (lags, h) and intercept (h,) by the place of the origin from which on they hold."""
    found: dict[int, tuple[Numbers, Numbers]] = {}
    size = features.shape[1]
    centre, target_centre = features.mean(0), targets.mean(0)
    places = set(np.linspace(0, len(origins) - 1, fits).astype(int).tolist())
    gram, cross = np.zeros((size, size)), np.zeros((size, targets.shape[1]))
    sums, target_sums, done = np.zeros(size), np.zeros(targets.shape[1]), 0
    for place, origin in enumerate(origins):
        rows = int(np.searchsorted(known_at, origin, side="right"))
        if rows < max(LEAST_ROWS, min(size // 2, 60)) or (found and place not in places):
            continue
        new, new_targets = features[done:rows] - centre, targets[done:rows] - target_centre
        gram, cross, done = gram + new.T @ new, cross + new.T @ new_targets, rows
        sums, target_sums = sums + new.sum(0), target_sums + new_targets.sum(0)
        mean, target_mean = sums / rows, target_sums / rows
        centred = gram - rows * np.outer(mean, mean)
        penalty = (ridge * np.trace(centred) / size + 1e-9) * np.eye(size)
        weights = np.linalg.solve(centred + penalty, cross - rows * np.outer(mean, target_mean))
        intercept = target_mean + target_centre - (mean + centre) @ weights
        found[place] = weights, intercept * (rows / (rows + INTERCEPT_ROWS))
    return found


def _unroll(
    weights: Numbers, intercept: float, plan: Plan, horizon: int, reach: int, mean: float
) -> LinearMap:
    """Return the map from the last rows to the forecasts of a recursion, by running it on unit vectors."""
    rows = np.concatenate([np.eye(reach), np.zeros((reach, 1))], axis=1)  # the last column is the constant
    chain = [rows]
    for lag in plan.differences:
        rows = rows[lag:] - rows[:-lag]
        chain.append(rows)
    longest, lags = max(plan.lags), np.array(plan.lags)
    changes = np.concatenate([chain[-1][len(chain[-1]) - longest :], np.zeros((horizon, reach + 1))])
    for step in range(longest, longest + horizon):
        changes[step] = weights @ changes[step - lags]
        changes[step, -1] += intercept
    ahead = changes[longest:]
    for lag, base in zip(reversed(plan.differences), reversed(chain[:-1]), strict=True):
        levels = np.empty_like(ahead)
        for step in range(horizon):
            levels[step] = ahead[step] + (base[len(base) - lag + step] if step < lag else levels[step - lag])
        ahead = levels
    matrix, bias = ahead[:, :-1], ahead[:, -1]
    return LinearMap(matrix, bias + mean * (1.0 - matrix.sum(1)))


def _said(
    values: Numbers, maps: Mapping[int, LinearMap], horizon: int, origins: Origins, reach: int
) -> Regression | None:
    """Return the forecasts of maps at the origins from which on each holds; None: the last cannot be made."""
    forecasts = np.full((len(origins), horizon), np.nan)
    places = sorted(maps)
    for place, following in zip(places, [*places[1:], len(origins)], strict=True):
        held = np.arange(place, following)
        held = held[origins[held] >= reach]
        if len(held):
            past = values[origins[held][:, None] + np.arange(-reach, 0)]
            forecasts[held] = past @ maps[place].matrix.T + maps[place].bias
    if not maps or not np.isfinite(forecasts[-1]).all():
        return None
    return Regression(forecasts, maps[places[-1]])
