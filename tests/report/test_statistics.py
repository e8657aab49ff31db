"""Intervals and equivalence: one level, two readings."""

import math
import random

import numpy as np
import pytest

from aaren.report.statistics import (
    ONE_SIDED_LEVEL,
    Interval,
    Summary,
    bootstrap_difference,
    equivalence_p,
    interval,
    judge,
    summarise,
    t_cdf,
    t_quantile,
    welch_equivalence_p,
)


def test_deviations_are_sample_deviations() -> None:
    assert summarise([1.0, 3.0]) == Summary(mean=2.0, deviation=2.0**0.5, count=2)


def test_one_number_has_no_interval_and_no_test() -> None:
    assert interval([0.3]) == Interval(mean=0.3, low=None, high=None, count=1)
    assert interval([0.3]).is_open
    assert equivalence_p([0.3], 1.0) is None
    assert judge(interval([0.3]), 1.0) == "untested"


def test_an_interval_inside_the_margin_is_exactly_a_test_passed() -> None:
    rng = random.Random(3)
    for _ in range(300):
        values = [rng.gauss(rng.choice([0.0, 0.5, 1.0]), 0.5) for _ in range(rng.randint(2, 8))]
        p_value = equivalence_p(values, 1.0)
        assert p_value is not None
        assert (judge(interval(values), 1.0) == "equivalent") == (p_value < ONE_SIDED_LEVEL)


def test_interval_and_test_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = [0.1, -0.2, 0.05, 0.3, 0.0]
    want = stats.ttest_1samp(values, 0.0).confidence_interval(0.90)
    found = interval(values)
    assert (found.low, found.high) == pytest.approx((want.low, want.high))
    one_sided = [
        stats.ttest_1samp(values, -0.4, alternative="greater").pvalue,
        stats.ttest_1samp(values, 0.4, alternative="less").pvalue,
    ]
    assert equivalence_p(values, 0.4) == pytest.approx(max(one_sided))


@pytest.mark.parametrize(
    ("low", "high", "margin", "outcome"),
    [
        (-0.2, 0.4, 0.5, "equivalent"),
        (0.1, 0.4, 0.5, "equivalent"),  # better, but by less than matters
        (0.1, 0.6, 0.5, "better"),
        (-0.6, -0.1, 0.5, "worse"),
        (-0.6, 0.1, 0.5, "undecided"),
        (-0.6, 0.1, None, "untested"),
        (-0.6, -0.1, None, "worse"),
    ],
)
def test_judgements(low: float, high: float, margin: float | None, outcome: str) -> None:
    assert judge(Interval(mean=(low + high) / 2, low=low, high=high, count=5), margin) == outcome


def test_no_spread_at_all() -> None:
    assert equivalence_p([0.1, 0.1], 0.2) == 0.0
    assert equivalence_p([0.3, 0.3], 0.2) == 1.0
    same = Summary(mean=1.0, deviation=0.0, count=5)
    assert welch_equivalence_p(same, same, 0.1) == 0.0


def test_welch_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    a, b = [0.1, 0.2, 0.4, 0.3], [0.2, 0.1, 0.15, 0.3, 0.25]
    upper = stats.ttest_ind([x + 0.3 for x in a], b, equal_var=False, alternative="greater").pvalue
    lower = stats.ttest_ind([x - 0.3 for x in a], b, equal_var=False, alternative="less").pvalue
    assert welch_equivalence_p(summarise(a), summarise(b), 0.3) == pytest.approx(max(upper, lower))


@pytest.mark.parametrize("degrees", [1, 2, 4, 7.3, 30, 400])
def test_the_t_distribution_agrees_with_scipy(degrees: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    for value in (-30.0, -3.0, -0.2, 0.0, 0.5, 2.0, 10.0):
        assert t_cdf(value, degrees) == pytest.approx(stats.t.cdf(value, degrees), rel=1e-10)
    for probability in (0.01, 0.05, 0.5, 0.95, 0.999):
        want = stats.t.ppf(probability, degrees)
        assert t_quantile(probability, degrees) == pytest.approx(want, rel=1e-9, abs=1e-12)


def test_the_far_ends_of_the_t_distribution() -> None:
    assert (t_cdf(math.inf, 3), t_cdf(-math.inf, 3)) == (1.0, 0.0)


def test_bootstrap_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(100):
        ours = {0: rng.normal(5.0, 3.0, 20)}
        found = bootstrap_difference(ours, {0: rng.normal(0.0, 3.0, 20)})
        assert found is not None
        hits += found.low < 5.0 < found.high
    assert 80 <= hits <= 98


def test_seeds_that_differ_widen_the_bootstrap() -> None:
    rng = np.random.default_rng(2)
    base = {seed: rng.normal(50.0, 1.0, 10) for seed in range(4)}
    near = bootstrap_difference({seed: scores + 5.0 for seed, scores in base.items()}, base)
    far = bootstrap_difference(
        {seed: scores + 5.0 + 10.0 * (-1) ** seed for seed, scores in base.items()}, base
    )
    assert near.mean == pytest.approx(far.mean)
    assert far.high - far.low > 3.0 * (near.high - near.low)
    assert bootstrap_difference({0: base[0]}, {1: base[1]}) is None


def test_a_seed_that_is_drawn_twice_has_other_samples_the_second_time() -> None:
    rng = np.random.default_rng(3)
    widths = []
    for _ in range(20):
        ours = {seed: rng.normal(0.0, 1.0, 20) for seed in range(5)}
        theirs = {seed: rng.normal(0.0, 1.0, 20) for seed in range(5)}
        found = bootstrap_difference(ours, theirs)
        widths.append(found.high - found.low)
    # Of 2 x 100 independent episodes it is 2 x 1.645 x sqrt(2 / 100) = 0.47; drawing seeds too adds to it.
    assert 0.5 < np.mean(widths) < 0.72
