"""Means, deviations, intervals and equivalence tests over seeds. Knows nothing of runs or tables.

One level everywhere: intervals are at 90 %, so that an interval inside the margin is exactly two one-sided
tests (TOST) passed at 5 %. docs/report.md explains why.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from aaren.report import student

CONFIDENCE = 0.90
ONE_SIDED_LEVEL = (1.0 - CONFIDENCE) / 2.0

Outcome: TypeAlias = Literal["equivalent", "better", "worse", "undecided", "untested"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Mean and sample deviation (ddof 1) of some numbers; the deviation of one number is not known."""

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
    """Return mean and sample deviation.

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
    factor = student.quantile(1.0 - ONE_SIDED_LEVEL, summary.count - 1)
    half = factor * summary.deviation / math.sqrt(summary.count)
    return Interval(mean=summary.mean, low=summary.mean - half, high=summary.mean + half, count=summary.count)


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
    above = 1.0 - student.cdf((summary.mean + margin) / error, summary.count - 1)
    below = student.cdf((summary.mean - margin) / error, summary.count - 1)
    return max(above, below)


def judge(advantage: Interval, margin: float | None) -> Outcome:
    """Judge how much better one thing is than another, given what difference would not matter.

    equivalent: the interval is inside (-margin, margin), whichever side of 0; better or worse: it is not, and
    excludes 0; undecided: neither; untested: there is no interval, or no margin and 0 is inside.

    >>> judge(Interval(mean=0.1, low=-0.2, high=0.4, count=5), 0.5)
    'equivalent'
    >>> judge(Interval(mean=0.1, low=-0.2, high=0.4, count=5), 0.3)
    'undecided'
    """
    low, high = advantage.low, advantage.high
    if low is None or high is None:
        return "untested"
    if margin is not None and -margin < low and high < margin:
        return "equivalent"
    if low > 0.0:
        return "better"
    if high < 0.0:
        return "worse"
    return "untested" if margin is None else "undecided"


def welch_equivalence_p(one: Summary, other: Summary, margin: float) -> float | None:
    """Return the p-value of the two one-sided tests where only means and deviations are known, unpaired.

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
    above = 1.0 - student.cdf((difference + margin) / error, degrees)
    below = student.cdf((difference - margin) / error, degrees)
    return max(above, below)
