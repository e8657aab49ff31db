"""Means, standard deviations, t intervals, equivalence tests, pooling over datasets, bootstrap.

One level everywhere: intervals are at 90 %, so that an interval inside the margin is exactly two one-sided
tests (TOST) passed at 5 %. docs/report.md explains why.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.90
ONE_SIDED_LEVEL = (1.0 - CONFIDENCE) / 2.0
BOOTSTRAP_DRAWS = 2_000
_TINY = 1e-300
_MOST_TERMS = 500  # of the continued fraction

MOST_SEEDS = 1_000  # that are considered
_POWER = 0.84  # standard errors that the mean may still move, four times out of five no further
_PRIOR_DEGREES = 4.0  # of the common variance of seeds: as much as five seeds of a row's own

Outcome: TypeAlias = Literal[
    "equivalent", "better_within", "worse_within", "better", "worse", "undecided", "untested"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Mean and sample standard deviation (ddof 1) of some numbers; None for a single number."""

    mean: float
    deviation: float | None
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A mean and where the true one may lie; `low` and `high` are None if one number is all there is."""

    mean: float
    low: float | None
    high: float | None
    count: int

    @property
    def is_open(self) -> bool:
        """Tell whether nothing is known but the mean."""
        return self.low is None


def summarise(values: Sequence[float]) -> Summary:
    """Return mean and sample standard deviation.

    >>> summarise([1.0, 2.0, 3.0])
    Summary(mean=2.0, deviation=1.0, count=3)
    >>> summarise([1.0]).deviation is None
    True
    """
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Summary(mean=mean, deviation=None, count=1)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return Summary(mean=mean, deviation=math.sqrt(squares / (len(values) - 1)), count=len(values))


def interval(values: Sequence[float]) -> Interval:
    """Return the mean with its t interval.

    >>> found = interval([0.0, 1.0, 2.0, 3.0, 4.0])
    >>> found.mean, round(found.low, 4), round(found.high, 4)
    (2.0, 0.4926, 3.5074)
    """
    summary = summarise(values)
    if summary.deviation is None:
        return Interval(mean=summary.mean, low=None, high=None, count=1)
    half = half_width(summary.deviation, summary.count)
    return Interval(mean=summary.mean, low=summary.mean - half, high=summary.mean + half, count=summary.count)


def interval_over_rows(rows: Sequence[Mapping[int, float]]) -> Interval:
    """Return the mean of several rows' means with its t interval; a row is a number by seed.

    Rows of one seed may move together: each seed's deviations are added up over the rows that have it before
    they are squared. With the same seeds everywhere this is the interval of the seeds' averages; seeds that
    only some rows have count there. Degrees of freedom are those of the seeds that all rows have.

    >>> interval_over_rows([{0: 1.0, 1: 3.0}, {0: 2.0, 1: 2.0}]) == interval([1.5, 2.5])
    True
    >>> interval_over_rows([{0: 1.0, 1: 3.0, 2: 5.0}, {0: 2.0, 1: 2.0}]).mean
    2.5
    """
    common = set[int].intersection(*(set(row) for row in rows))
    means = [math.fsum(row.values()) / len(row) for row in rows]
    mean = math.fsum(means) / len(rows)
    if len(common) < 2:
        return Interval(mean=mean, low=None, high=None, count=max(1, len(common)))
    moved: dict[int, float] = dict.fromkeys({seed for row in rows for seed in row}, 0.0)
    for row, centre in zip(rows, means, strict=True):
        for seed, value in row.items():
            moved[seed] += (value - centre) / math.sqrt(len(row) * (len(row) - 1))
    error = math.sqrt(math.fsum(one * one for one in moved.values())) / len(rows)
    half = t_quantile(1.0 - ONE_SIDED_LEVEL, len(common) - 1) * error
    return Interval(mean=mean, low=mean - half, high=mean + half, count=len(common))


def equivalence_p(values: Sequence[float], margin: float) -> float | None:
    """Return the p-value of two one-sided t tests: that the mean is not inside (-margin, margin).

    None for fewer than two numbers. With no spread at all it is 0 inside the margin and 1 outside.

    >>> equivalence_p([0.0, 0.1, -0.1], 1.0) < 0.05 < equivalence_p([0.0, 2.0, -2.0], 1.0)
    True
    """
    summary = summarise(values)
    if summary.deviation is None:
        return None
    if summary.deviation == 0.0:
        return 0.0 if abs(summary.mean) < margin else 1.0
    error = summary.deviation / math.sqrt(summary.count)
    return _two_one_sided(summary.mean, error, summary.count - 1, margin)


def judge(advantage: Interval, margin: float | None) -> Outcome:
    """Judge how much better one thing is than another, given what difference would not matter.

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
    if low > 0.0:
        return "better"
    if high < 0.0:
        return "worse"
    return "untested" if margin is None else "undecided"


def half_width(deviation: float, count: int) -> float:
    """Return half of the interval that so many numbers of a standard deviation give their mean.

    >>> round(half_width(1.0, 5), 4)
    0.9534
    """
    return t_quantile(1.0 - ONE_SIDED_LEVEL, count - 1) * deviation / math.sqrt(count)


def seeds_to_decide(summary: Summary, margin: float) -> int | None:
    """Return how many seeds would decide, if mean and standard deviation stay; None: over a thousand.

    That many seeds bring the interval inside the margin, or to one side of 0, about four times out of five
    (three where the mean is near 0, since it must then stay clear of both sides).

    >>> seeds_to_decide(Summary(mean=0.0, deviation=1.0, count=3), 1.0)
    8
    """
    if summary.deviation is None:
        return None
    size = abs(summary.mean)
    reach = max(size, margin - size)  # whichever of both comes first
    for count in range(2, MOST_SEEDS + 1):
        if half_width(summary.deviation, count) + _POWER * summary.deviation / math.sqrt(count) < reach:
            return count
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pooled:
    """One estimate over several datasets."""

    interval: Interval  # its count is that of datasets
    between: float  # standard deviation between datasets, seeds' own scatter taken off
    seeds: int  # observations in all


def pool(datasets: Sequence[Sequence[Sequence[float]]]) -> Pooled | None:
    """Estimate the mean effect over datasets from rows of seeds; None of fewer than two datasets.

    A random-effects model: seed j of row h of dataset i shows effect_i + row_ih + noise; rows of a dataset,
    such as horizons, count alike. The variance of seeds is a row's own, drawn towards the common one as if
    that were known from five seeds, so that one seed is enough to count. Between-dataset variance after Paule
    and Mandel; interval after Hartung and Knapp, never narrower than without their factor; t with one degree
    of freedom less than datasets.

    >>> found = pool([[[1.0, 1.0]], [[2.0, 2.0]], [[3.0, 3.0]]])
    >>> found.interval.mean, round(found.interval.high - 2.0, 4), found.between
    (2.0, 1.6859, 1.0)
    """
    if len(datasets) < 2:
        return None
    means = [math.fsum(math.fsum(row) / len(row) for row in rows) / len(rows) for rows in datasets]
    mean, error, between = random_effects(means, _variances(datasets))
    half = t_quantile(1.0 - ONE_SIDED_LEVEL, len(datasets) - 1) * error
    found = Interval(mean=mean, low=mean - half, high=mean + half, count=len(datasets))
    seeds = sum(len(row) for rows in datasets for row in rows)
    return Pooled(interval=found, between=math.sqrt(between), seeds=seeds)


def seeds_to_decide_pooled(datasets: Sequence[Sequence[Sequence[float]]], margin: float) -> int | None:
    """Return how many seeds of every row would decide the pooled estimate, if all variances and it stay.

    None where no number of seeds would: the datasets differ too much, and only more datasets would tell.

    >>> seeds_to_decide_pooled([[[0.2, -1.0]], [[0.4, 1.6]]], 1.0) is None
    True
    """
    pooled = pool(datasets)
    if pooled is None:
        return None
    size = abs(pooled.interval.mean)
    reach = max(size, margin - size) / (t_quantile(1.0 - ONE_SIDED_LEVEL, len(datasets) - 1) + _POWER)
    for count in range(1, MOST_SEEDS + 1):
        weights = [1.0 / max(one + pooled.between**2, 1e-30) for one in _variances(datasets, count)]
        if 1.0 / math.sqrt(math.fsum(weights)) < reach:
            return count
    return None


def random_effects(means: Sequence[float], variances: Sequence[float]) -> tuple[float, float, float]:
    """Return the pooled mean, its standard error and the variance between, of means with known variances."""

    def spread(between: float) -> tuple[float, float, float]:
        weights = [1.0 / max(variance + between, 1e-30) for variance in variances]
        mean = math.fsum(w * y for w, y in zip(weights, means, strict=True)) / math.fsum(weights)
        squares = math.fsum(w * (y - mean) ** 2 for w, y in zip(weights, means, strict=True))
        return mean, squares / (len(means) - 1), math.fsum(weights)

    between = 0.0
    if spread(0.0)[1] > 1.0:
        low, high = 0.0, math.fsum((y - means[0]) ** 2 for y in means)
        for _ in range(100):
            between = 0.5 * (low + high)
            low, high = (between, high) if spread(between)[1] > 1.0 else (low, between)
    mean, factor, weight = spread(between)
    return mean, math.sqrt(max(1.0, factor) / weight), between


def _variances(datasets: Sequence[Sequence[Sequence[float]]], count: int | None = None) -> list[float]:
    """Return the variance of each dataset's mean; with a count, if each of its rows had so many seeds."""
    common = _common_variance([row for rows in datasets for row in rows])
    return [
        math.fsum(_moderated(row, common) / (count or len(row)) for row in rows) / len(rows) ** 2
        for rows in datasets
    ]


def _common_variance(rows: Sequence[Sequence[float]]) -> float:
    several = [row for row in rows if len(row) > 1]
    degrees = sum(len(row) - 1 for row in several)
    squares = math.fsum((len(row) - 1) * (summarise(row).deviation or 0.0) ** 2 for row in several)
    return squares / degrees if degrees else 0.0


def _moderated(row: Sequence[float], common: float) -> float:
    own, degrees = (summarise(row).deviation or 0.0) ** 2, len(row) - 1
    return (_PRIOR_DEGREES * common + degrees * own) / (_PRIOR_DEGREES + degrees)


def welch_equivalence_p(one: Summary, other: Summary, margin: float) -> float | None:
    """Return the p-value of the same tests, unpaired, from means and standard deviations alone.

    >>> a = Summary(mean=0.50, deviation=0.01, count=5)
    >>> round(welch_equivalence_p(a, a, 0.02), 4)
    0.0067
    """
    if one.deviation is None or other.deviation is None:
        return None
    parts = [
        summary.deviation**2 / summary.count for summary in (one, other) if summary.deviation is not None
    ]
    difference = one.mean - other.mean
    if sum(parts) == 0.0:
        return 0.0 if abs(difference) < margin else 1.0
    error = math.sqrt(sum(parts))
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / (one.count - 1) + parts[1] ** 2 / (other.count - 1))
    return _two_one_sided(difference, error, degrees, margin)


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
    low, high = np.quantile(leads.mean(axis=1), [ONE_SIDED_LEVEL, 1.0 - ONE_SIDED_LEVEL])
    mean = float(np.mean([ours[seed].mean() - theirs[seed].mean() for seed in seeds]))
    return Interval(mean=mean, low=float(low), high=float(high), count=len(seeds))


def t_cdf(value: float, degrees: float) -> float:
    """Return P(T <= value) for Student's T with so many degrees of freedom.

    Through the regularised incomplete beta function, by its continued fraction (modified Lentz); good to
    about twelve digits for the few degrees of freedom that seeds give.

    >>> round(t_cdf(2.132, 4), 4), t_cdf(0.0, 3)
    (0.95, 0.5)
    """
    if math.isinf(value):
        return 1.0 if value > 0 else 0.0
    tail = 0.5 * _beta(degrees / (degrees + value * value), 0.5 * degrees, 0.5)
    return 1.0 - tail if value > 0 else tail


@cache
def t_quantile(probability: float, degrees: float) -> float:
    """Return the value below which T stays with a probability above 0 and below 1.

    >>> round(t_quantile(0.95, 4), 3), round(t_quantile(0.95, 1), 3)
    (2.132, 6.314)
    """
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        high *= 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if t_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def _two_one_sided(mean: float, error: float, degrees: float, margin: float) -> float:
    above = 1.0 - t_cdf((mean + margin) / error, degrees)
    below = t_cdf((mean - margin) / error, degrees)
    return max(above, below)


def _beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # where the fraction converges slowly, its mirror image does not
        return 1.0 - _beta(1.0 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    product = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            product *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return product


def _away_from_zero(number: float) -> float:
    return number if abs(number) > _TINY else _TINY


def _resampled(scores: NDArray[np.float64], draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the means of so many draws, each of as many samples as there are."""
    means: NDArray[np.float64] = scores[rng.integers(len(scores), size=(draws, len(scores)))].mean(axis=1)
    return means
