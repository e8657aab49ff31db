"""Intervals, equivalence tests, pooling over datasets and bootstrap, by SciPy (extra `report`).

One level everywhere: intervals are at 90 %, so an interval inside the margin means that two one-sided t tests
(TOST) pass at 5 %. docs/report.md explains why.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

CONFIDENCE = 0.90
UPPER = (1.0 + CONFIDENCE) / 2.0  # quantile at the upper end of an interval
MOST_SEEDS = 1_000  # considered when counting the seeds that would decide
BOOTSTRAP_DRAWS = 2_000
_POWER = 0.84  # standard errors that the mean may still move, four times out of five no further
_PRIOR_DEGREES = 4.0  # of the common variance of seeds: as much as five seeds of a row alone

Outcome: TypeAlias = Literal[
    "equivalent", "better_within", "worse_within", "better", "worse", "undecided", "untested"
]
Effects: TypeAlias = Sequence[Sequence[Sequence[float]]]  # by dataset, row and seed


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A mean and where the true one may lie; `low` and `high` are None for a single number."""

    mean: float
    low: float | None
    high: float | None
    count: int

    def scaled(self, factor: float) -> "Interval":
        """Multiply by a factor; a negative one exchanges both ends.

        >>> Interval(mean=1.0, low=0.5, high=1.5, count=3).scaled(-2.0)
        Interval(mean=-2.0, low=-3.0, high=-1.0, count=3)
        """
        if self.low is None or self.high is None:
            return Interval(mean=self.mean * factor, low=None, high=None, count=self.count)
        low, high = sorted((self.low * factor, self.high * factor))
        return Interval(mean=self.mean * factor, low=low, high=high, count=self.count)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pooled:
    """One estimate over several datasets."""

    interval: Interval  # of the mean over datasets; its count is that of datasets
    prediction: Interval | None  # where the effect on a dataset that was not run may lie; None of two
    pairs: int  # seeds over all rows


def deviation(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation (ddof 1); None for a single number.

    >>> deviation([1.0, 2.0, 3.0]), deviation([1.0])
    (1.0, None)
    """
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def interval(values: Sequence[float]) -> Interval:
    """Return the mean with its t interval.

    >>> five = interval([0.0, 1.0, 2.0, 3.0, 4.0])
    >>> five.mean, round(five.low, 4), round(five.high, 4)
    (2.0, 0.4926, 3.5074)
    """
    mean, spread, count = math.fsum(values) / len(values), deviation(values), len(values)
    return _around(mean, None if spread is None else spread / math.sqrt(count), count - 1, count)


def interval_over_rows(rows: Sequence[Mapping[int, float]]) -> Interval:
    """Return the mean of several rows' means with its t interval; a row is a number by seed.

    Rows of one seed may move together, so a seed's deviations are summed over rows, then squared.
    Degrees of freedom are those of the seeds that all rows have.

    >>> rows = interval_over_rows([{0: 1.0, 1: 3.0}, {0: 2.0, 1: 2.0}])
    >>> rows.mean, round(rows.high - interval([1.5, 2.5]).high, 12)
    (2.0, 0.0)
    """
    common = set[int].intersection(*(set(row) for row in rows))
    means = [math.fsum(row.values()) / len(row) for row in rows]
    mean, error = math.fsum(means) / len(rows), None
    if len(common) > 1:
        moved: dict[int, float] = dict.fromkeys({seed for row in rows for seed in row}, 0.0)
        for row, centre in zip(rows, means, strict=True):
            for seed, value in row.items():
                moved[seed] += (value - centre) / math.sqrt(len(row) * (len(row) - 1))
        error = math.sqrt(math.fsum(one * one for one in moved.values())) / len(rows)
    return _around(mean, error, len(common) - 1, max(1, len(common)))


def judge(advantage: Interval, margin: float | None) -> Outcome:
    """Judge how much better one model is than another, given what difference would not matter.

    equivalent: the interval is inside (-margin, margin) and includes 0; better_within, worse_within: it is
    inside and excludes 0; better, worse: it is not inside and excludes 0; undecided: neither; untested: there
    is no interval, or no margin and 0 is included.

    >>> judge(Interval(mean=0.1, low=-0.2, high=0.4, count=5), 0.5)
    'equivalent'
    >>> judge(Interval(mean=0.1, low=-0.2, high=0.4, count=5), 0.3)
    'undecided'
    """
    low, high = advantage.low, advantage.high
    if low is None or high is None:
        return "untested"
    if margin is not None and -margin < low and high < margin:
        return "better_within" if low > 0.0 else "worse_within" if high < 0.0 else "equivalent"
    if low > 0.0 or high < 0.0:
        return "better" if low > 0.0 else "worse"
    return "untested" if margin is None else "undecided"


def seeds_to_decide(values: Sequence[float], margin: float) -> int | None:
    """Return how many seeds would decide, if mean and standard deviation stay; None: over a thousand.

    That many seeds bring the interval inside the margin, or to one side of 0, about four times out of five.

    >>> seeds_to_decide([-1.0, 0.0, 1.0], 1.0)
    8
    """
    spread, size = deviation(values), abs(math.fsum(values) / len(values))
    if spread is None:
        return None
    counts = np.arange(2, MOST_SEEDS + 1)
    reach = (stats.t.ppf(UPPER, counts - 1) + _POWER) * spread / np.sqrt(counts)
    enough = counts[reach < max(size, margin - size)]  # whichever of both comes first
    return int(enough[0]) if len(enough) else None


def pool(datasets: Effects) -> Pooled | None:
    """Estimate the mean effect over datasets, and the effect on a new one; None of fewer than two datasets.

    A random-effects model: seed j of row h of dataset i shows effect_i + row_ih + noise; rows of a dataset,
    such as horizons, count alike. The variance of seeds is that of a row, drawn towards the common one as if
    that were known from five seeds, so one seed is enough to count. Variance between datasets after Paule and
    Mandel; interval of the mean after Hartung and Knapp, never narrower than without their factor; prediction
    interval after Higgins, Thompson and Spiegelhalter, with two degrees of freedom less than datasets.

    >>> pooled = pool([[[1.0, 1.0]], [[2.0, 2.0]], [[3.0, 3.0]]])
    >>> round(pooled.interval.high - 2.0, 4), round(pooled.prediction.high - 2.0, 4)
    (1.6859, 7.2905)
    """
    count = len(datasets)
    if count < 2:
        return None
    means = np.array([np.mean([np.mean(row) for row in rows]) for rows in datasets])
    mean, error, between = random_effects(means, _variances(datasets))
    new = math.sqrt(between + error**2)
    return Pooled(
        interval=_around(mean, error, count - 1, count),
        prediction=_around(mean, new, count - 2, count) if count > 2 else None,
        pairs=sum(len(row) for rows in datasets for row in rows),
    )


def random_effects(means: NDArray[np.float64], variances: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the pooled mean, its standard error and the variance between, of means with known variances."""

    def weigh(between: float) -> tuple[float, float, float]:
        weights = 1.0 / np.maximum(variances + between, 1e-30)
        mean = float(np.average(means, weights=weights))
        factor = float(np.sum(weights * (means - mean) ** 2)) / (len(means) - 1)
        return mean, factor, float(weights.sum())

    between = 0.0
    if weigh(0.0)[1] > 1.0:
        most = float(np.sum((means - means[0]) ** 2))
        between = float(optimize.brentq(lambda value: weigh(value)[1] - 1.0, 0.0, most, xtol=1e-15))
    mean, factor, weight = weigh(between)
    return mean, math.sqrt(max(1.0, factor) / weight), between


def bootstrap_difference(
    ours: Mapping[int, NDArray[np.float64]], theirs: Mapping[int, NDArray[np.float64]]
) -> Interval | None:
    """Return the mean lead over common seeds with its percentile interval, of samples by seed.

    Seeds are drawn with replacement and, within each, its samples; equal input gives an equal answer.

    >>> scores = {0: np.array([50.0, 52.0]), 1: np.array([51.0, 49.0])}
    >>> lead = bootstrap_difference(scores, {seed: values - 10.0 for seed, values in scores.items()})
    >>> lead.mean, lead.low < 10.0 < lead.high
    (10.0, True)
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    rng = np.random.default_rng(0)
    chosen = rng.integers(len(seeds), size=(BOOTSTRAP_DRAWS, len(seeds)))
    leads = np.empty(chosen.shape)
    for index, seed in enumerate(seeds):
        places = chosen == index  # a seed that is drawn twice has other samples the second time
        count = int(places.sum())
        leads[places] = _resampled(ours[seed], count, rng) - _resampled(theirs[seed], count, rng)
    low, high = np.quantile(leads.mean(axis=1), [1.0 - UPPER, UPPER])
    mean = float(np.mean([ours[seed].mean() - theirs[seed].mean() for seed in seeds]))
    return Interval(mean=mean, low=float(low), high=float(high), count=len(seeds))


def _around(mean: float, error: float | None, degrees: int, count: int) -> Interval:
    if error is None:
        return Interval(mean=mean, low=None, high=None, count=count)
    half = float(stats.t.ppf(UPPER, degrees)) * error
    return Interval(mean=mean, low=mean - half, high=mean + half, count=count)


def _variances(datasets: Effects) -> NDArray[np.float64]:
    """Return the variance of each dataset's mean."""
    rows = [row for dataset in datasets for row in dataset]
    degrees = sum(len(row) - 1 for row in rows)
    squares = [(len(row) - 1) * (deviation(row) or 0.0) ** 2 for row in rows]
    common = math.fsum(squares) / degrees if degrees else 0.0

    def moderated(row: Sequence[float]) -> float:
        square, free = (deviation(row) or 0.0) ** 2, len(row) - 1
        return (_PRIOR_DEGREES * common + free * square) / (_PRIOR_DEGREES + free)

    return np.array([sum(moderated(row) / len(row) for row in rows) / len(rows) ** 2 for rows in datasets])


def _resampled(scores: NDArray[np.float64], draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the means of so many draws, each of as many samples as there are."""
    means: NDArray[np.float64] = scores[rng.integers(len(scores), size=(draws, len(scores)))].mean(axis=1)
    return means
