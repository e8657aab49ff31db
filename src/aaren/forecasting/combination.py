"""Combine candidates by the forecasts that they made before the truth came, and measure intervals.

Candidates forecast in a space: raw values, their logarithms, or values without the effect of covariates.
Those of one space are averaged there, and the spaces' means in raw units.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aaren.forecasting.lagged import PROBABILITIES

Numbers = NDArray[np.float64]

POWER = 4.0  # of a score, to which a weight is inversely proportional
EQUAL_SHARE = 0.3  # of all weight, spread evenly
MOST_REGRESSIONS, MOST_SMOOTHERS = 4, 6  # that are combined
WORST_RATIO = 1.5  # of a score to the best one
HALF_LIFE = 0.1  # of the rows, after which an error weighs half
FAR_OFF = 6.0  # median distances from the better candidates; the score of one beyond doubles
UNTESTED = 1.1  # factor of the score of a candidate that could not be fitted at some origins
RELATIVE_SHARE = 0.7  # of weight on logarithms, from which intervals are relative
LOCAL_POWER, LEAST_LOCAL = 0.7, 0.3  # of the spread of the last changes, that intervals follow
INTERVAL_HALF_LIFE = 0.2  # of the rows
INFLATION, FEW_ROWS_INFLATION, LONG_HORIZON_INFLATION, TAIL_INFLATION = 1.0, 10.0, 4.0, 1.12
WALK_WEIGHT = 1.0  # by which the growth of deviations is drawn to that of a random walk
OWN_RESIDUALS = 60.0  # effective residuals at which their quantiles weigh as much as Student's
OWN_STEP = 40.0  # residuals of a step at which its own deviation weighs as much as the curve's
STEEPEST, LEAST_OF_CURVE = 0.9, 0.7  # exponent of deviations over steps; of a step's in those of the curve
DISAGREEMENT = 0.5  # of the variance between candidates, that intervals add


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Candidate:
    """One forecaster of one series."""

    name: str
    space: str  # "raw", "log" or "covariates"
    is_regression: bool
    forecasts: Numbers  # (origins, h) in its space, NaN where it made none; the last is the next forecast


class Space(NamedTuple):
    """How values of a series are transformed for some of its candidates."""

    values: Numbers  # (rows,) transformed
    is_log: bool
    effects: Numbers | None  # (origins, h) of covariates, that forecasts lack

    def restore(self, forecasts: Numbers) -> Numbers:
        """Return forecasts (origins, h) in raw units; fewer origins are the last ones."""
        if self.is_log:
            powers: Numbers = np.exp(forecasts)
            return powers
        return forecasts if self.effects is None else forecasts + self.effects[-len(forecasts) :]

    def limit(self, forecasts: Numbers) -> Numbers:
        """Keep forecasts within twice the range of the values beyond it."""
        low, high = self.values.min(), self.values.max()
        clipped: Numbers = np.clip(forecasts, low - 2 * (high - low), high + 2 * (high - low))
        return clipped


class Combination(NamedTuple):
    """What is forecast together."""

    weights: Numbers  # (candidates,), 1 in all
    forecasts: Numbers  # (origins, h) in raw units
    scores: Numbers  # (candidates,), beside the median candidate: smaller is better


def combine(
    values: Numbers,
    candidates: Sequence[Candidate],
    spaces: Mapping[str, Space],
    origins: NDArray[np.int64],
) -> Combination:
    """Weigh candidates by the errors of what they forecast at the origins, recent ones first."""
    raw = np.stack([spaces[one.space].restore(spaces[one.space].limit(one.forecasts)) for one in candidates])
    truth = future_of(values, origins, raw.shape[2])
    if not np.isfinite(truth).any():  # too few rows to judge by
        weights = np.full(len(candidates), 1.0 / len(candidates))
        return Combination(weights, _average(candidates, spaces, weights), np.ones(len(candidates)))
    scores = _scores(raw, truth, (len(values) - origins) / (HALF_LIFE * len(values)))
    last = raw[:, -1]
    better = np.argsort(scores)[: max(5, len(candidates) // 3)]
    centre = np.median(last[better], axis=0)
    distance = np.median(np.abs(last[better] - centre), axis=0).mean() + 1e-12
    scores = np.where(np.abs(last - centre).mean(1) > FAR_OFF * distance, 2 * scores, scores)
    order = np.argsort(scores, kind="stable")
    is_regression = np.array([one.is_regression for one in candidates])
    chosen = np.concatenate(
        [order[is_regression[order]][:MOST_REGRESSIONS], order[~is_regression[order]][:MOST_SMOOTHERS]]
    )
    best = scores[chosen].min()
    chosen = chosen[scores[chosen] <= WORST_RATIO * best]
    share = (scores[chosen] / best) ** -POWER
    weights = np.zeros(len(candidates))
    weights[chosen] = (1 - EQUAL_SHARE) * share / share.sum() + EQUAL_SHARE / len(chosen)
    return Combination(weights, _average(candidates, spaces, weights), scores)


def future_of(values: Numbers, origins: NDArray[np.int64], horizon: int) -> Numbers:
    """Return what came after each origin, (origins, h), NaN where it has not come."""
    ahead = origins[:, None] + np.arange(horizon)
    return np.where(ahead < len(values), values[np.minimum(ahead, len(values) - 1)], np.nan)


def _scores(forecasts: Numbers, truth: Numbers, ages: Numbers) -> Numbers:
    """Return the mean ratio of root mean squared errors to the median candidate's, early steps first."""
    squares = (forecasts - truth) ** 2
    is_known = np.isfinite(squares)
    weight = (0.5**ages)[:, None] * is_known
    total = weight.sum(1)
    roots = np.sqrt((np.where(is_known, squares, 0.0) * weight).sum(1) / np.maximum(total, 1e-12))
    steps = total.max(0) > 0
    median = np.median(roots[:, steps], axis=0) + 1e-12
    logs = np.where(total[:, steps] > 0, np.log(roots[:, steps] / median + 1e-9), 0.5)
    step_weights = np.arange(1.0, forecasts.shape[2] + 1)[steps] ** -0.5
    is_tested = np.isfinite(forecasts[:, :-1]).all((1, 2))
    scores: Numbers = np.exp(logs @ step_weights / step_weights.sum()) * np.where(is_tested, 1.0, UNTESTED)
    return scores


def _average(
    candidates: Sequence[Candidate],
    spaces: Mapping[str, Space],
    weights: Numbers,
) -> Numbers:
    """Average the candidates of each space there, and the spaces in raw units."""
    total: Numbers | float = 0.0
    whole: Numbers | float = 0.0
    for name, space in spaces.items():
        chosen = [place for place, one in enumerate(candidates) if one.space == name and weights[place] > 0]
        if not chosen:
            continue
        forecasts = np.stack([candidates[place].forecasts for place in chosen])
        share = weights[chosen][:, None, None] * np.isfinite(forecasts)
        sums = share.sum(0)
        mean = (np.nan_to_num(forecasts) * share).sum(0) / np.maximum(sums, 1e-12)
        raw = space.restore(space.limit(mean))
        total, whole = total + sums * raw, whole + sums
    found: Numbers = np.where(np.greater(whole, 0.05), total / np.maximum(whole, 1e-12), np.nan)
    return found


class Intervals(NamedTuple):
    """Quantiles of what a forecast will miss: width of the step · quantile · (spread now / reference)^0.7."""

    is_relative: bool  # errors of logarithms, of values no smaller than the floor
    floor: float
    widths: Numbers  # (h,)
    quantiles: Numbers  # (PROBABILITIES,)
    local: float  # spread of the last changes
    least_local: float
    rate: float  # at which it follows them


def measure_intervals(
    values: Numbers,
    combination: Combination,
    candidates: Sequence[Candidate],
    spaces: Mapping[str, Space],
    origins: NDArray[np.int64],
    season: int,
) -> Intervals:
    """Measure intervals from the combination's own residuals."""
    weighted = list(zip(combination.weights.tolist(), candidates, strict=True))
    log_share = sum(weight for weight, one in weighted if spaces[one.space].is_log)
    is_relative = bool(values.min() > 0 and log_share > RELATIVE_SHARE)
    floor = float(values.min() * 0.1) if is_relative else 0.0

    def scale(numbers: Numbers) -> Numbers:
        logs: Numbers = np.log(np.maximum(numbers, floor)) if is_relative else numbers
        return logs

    scaled, horizon = scale(values), combination.forecasts.shape[1]
    rate = 1 - 0.5 ** (1 / max(2.0 * season, 12.0))
    local, least_local = _local_spread(scaled, season, rate)
    ratios = ((local / local[-1]) ** LOCAL_POWER)[origins[:-1], None]
    truth = future_of(values, origins[:-1], horizon)
    residuals = (scale(truth) - scale(combination.forecasts[:-1])) / ratios
    ages = (len(values) - origins[:-1]) / len(values)
    deviations = _deviations(residuals, (0.5 ** (ages / INTERVAL_HALF_LIFE))[:, None], scaled)
    quantiles = _quantiles(residuals / deviations)
    last = combination.forecasts[-1]
    raw = [
        (weight, spaces[one.space].restore(one.forecasts[-1:])[0]) for weight, one in weighted if weight > 0
    ]
    between = sum((weight * (one - last) ** 2 for weight, one in raw), start=np.zeros(horizon))
    between = between / np.maximum(np.abs(last), floor or 1e-300) ** 2 if is_relative else between
    widths = np.sqrt(deviations**2 + DISAGREEMENT * np.minimum(between, 1e300))
    freedom = max(len(values) - season * (season > 1) - 1, 2)
    few = 1 + (FEW_ROWS_INFLATION + LONG_HORIZON_INFLATION * horizon) / len(values)
    widths = widths * INFLATION * np.sqrt(few * len(values) / freedom)
    return Intervals(is_relative, floor, widths, quantiles, float(local[-1]), least_local, rate)


def _local_spread(values: Numbers, season: int, rate: float) -> tuple[Numbers, float]:
    """Return the running mean size of changes before every row and after the last, and its least value."""
    changes = np.abs(np.diff(values))
    changes = np.concatenate([changes[:1], changes]) if len(changes) else np.zeros(1)
    least = LEAST_LOCAL * float(changes.mean()) + 1e-12
    local = np.empty(len(values) + 1)
    local[0] = changes[: int(max(2.0 * season, 12.0))].mean()
    for row, change in enumerate(changes):
        local[row + 1] = local[row] + rate * (change - local[row])
    return np.maximum(local, least), least


def _deviations(residuals: Numbers, weights: Numbers, scaled: Numbers) -> Numbers:
    """Return the deviation of every step, between its own and a curve over the steps; (h,)."""
    is_known = np.isfinite(residuals)
    weights = weights * is_known
    total, count = weights.sum(0), is_known.sum(0)
    squares = (np.where(is_known, residuals, 0.0) ** 2 * weights).sum(0) / np.maximum(total, 1e-9)
    steps = np.log(np.arange(1.0, residuals.shape[1] + 1))
    is_measured = (count >= 2) & (squares > 0)
    if is_measured.sum() < 2:
        found: Numbers = (np.std(np.diff(scaled)) + 1e-12) * np.exp(0.5 * steps)
        return found
    own = 0.5 * np.log(np.maximum(squares, 1e-300))
    share = total[is_measured]
    centre, height = (
        np.average(steps[is_measured], weights=share),
        np.average(own[is_measured], weights=share),
    )
    above = (share * (steps[is_measured] - centre) * (own[is_measured] - height)).sum() + 0.5 * WALK_WEIGHT
    below = (share * (steps[is_measured] - centre) ** 2).sum() + WALK_WEIGHT
    slope = np.clip(above / below, 0.0, STEEPEST)
    start = np.average(own[is_measured] - slope * steps[is_measured], weights=share)
    curve = start + slope * steps
    mix = count / (count + OWN_STEP)
    logs = np.where(is_measured, mix * own + (1 - mix) * curve, curve)
    deviations: Numbers = np.maximum(np.exp(logs), LEAST_OF_CURVE * np.exp(curve))
    return deviations


def _quantiles(standard: Numbers) -> Numbers:
    """Return quantiles of standardised residuals, drawn to Student's where they are few."""
    known = standard[np.isfinite(standard)]
    effective = max(1.0, len(known) / max(1.0, standard.shape[1] / 2))
    share = effective / (effective + OWN_RESIDUALS)
    own = np.quantile(known, PROBABILITIES) if len(known) > 20 else STUDENT
    table = share * own + (1 - share) * STUDENT
    table = table - 0.3 * table[PROBABILITIES.index(0.5)]
    tails = np.array([1.0 if 0.1 <= p <= 0.9 else TAIL_INFLATION for p in PROBABILITIES])
    found: Numbers = np.maximum.accumulate(table * tails)
    return found


def _student(probabilities: Sequence[float]) -> Numbers:
    """Return quantiles of Student's distribution with four degrees of freedom, in standard deviations.

    >>> _student([0.025, 0.5, 0.975]).round(3).tolist()
    [-1.963, 0.0, 1.963]
    """
    p = np.array(probabilities)
    root = np.sqrt(4 * p * (1 - p))
    size = 2 * np.sqrt(np.maximum(np.cos(np.arccos(np.minimum(root, 1.0)) / 3) / root - 1, 0.0))
    found: Numbers = np.sign(p - 0.5) * size / np.sqrt(2.0)
    return found


STUDENT = _student(PROBABILITIES)
