"""Intervals and equivalence: one level, two readings."""

import math
import random

import numpy as np
import pytest

from aaren.lab.statistics import (
    ONE_SIDED_LEVEL,
    Interval,
    Summary,
    bootstrap_difference,
    equivalence_p,
    interval,
    judge,
    pool,
    random_effects,
    seeds_to_decide,
    seeds_to_decide_pooled,
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
        is_within = judge(interval(values), 1.0) in ("equivalent", "better_within", "worse_within")
        assert is_within == (p_value < ONE_SIDED_LEVEL)


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
        (0.1, 0.4, 0.5, "better_within"),
        (-0.4, -0.1, 0.5, "worse_within"),
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


# The BCG vaccine trials (Colditz et al., 1994): log risk ratios and variances; the benchmark of the field.
BCG = (
    (-0.8893, 0.3256), (-1.5854, 0.1946), (-1.3481, 0.4154), (-1.4416, 0.0200), (-0.2175, 0.0512),
    (-0.7861, 0.0069), (-1.6209, 0.2230), (0.0120, 0.0040), (-0.4694, 0.0564), (-1.3713, 0.0730),
    (-0.3394, 0.0124), (0.4459, 0.5325), (-0.0173, 0.0714),
)  # fmt: skip


def test_random_effects_of_a_known_analysis() -> None:
    mean, error, between = random_effects([y for y, _ in BCG], [v for _, v in BCG])
    assert (mean, error, between) == pytest.approx((-0.7150, 0.1809, 0.3181), abs=5e-4)


def test_equal_variances_can_be_pooled_by_hand() -> None:
    # Means 0, 1, 2 with variance 0.5 each: 1 between; without any spread seeds alone remain.
    mean, error, between = random_effects([0.0, 1.0, 2.0], [0.5, 0.5, 0.5])
    assert (mean, error, between) == pytest.approx((1.0, (1.0 / 3.0) ** 0.5, 0.5))
    assert random_effects([1.0, 1.0], [0.5, 0.5]) == pytest.approx((1.0, 0.5, 0.0))


def test_horizons_of_a_dataset_count_as_one() -> None:
    alone = pool([[[1.0, 1.2]], [[2.0, 2.2]]])
    thrice = pool([[[1.0, 1.2]] * 3, [[2.0, 2.2]]])
    assert alone is not None
    assert thrice is not None
    assert (alone.interval.mean, thrice.interval.mean) == pytest.approx((1.6, 1.6), abs=0.01)
    assert thrice.interval.count == 2
    assert pool([[[1.0, 1.2]] * 3]) is None


@pytest.mark.parametrize(
    ("datasets", "rows", "seeds", "between"),
    [(4, 1, 3, 0.0), (7, 4, 3, 0.5), (12, 1, 1, 1.0), (6, 1, 5, 0.2)],
)
def test_pooled_intervals_cover_the_truth(datasets: int, rows: int, seeds: int, between: float) -> None:
    rng = np.random.default_rng(datasets)
    hits = 0
    for _ in range(300):
        noise = rng.uniform(0.1, 2.0, datasets)  # seeds scatter by twenty times as much in some datasets
        effects = 0.3 + between * rng.normal(size=datasets)
        drawn = [
            rng.normal(effect, scatter, (rows, seeds)).tolist()
            for effect, scatter in zip(effects, noise, strict=True)
        ]
        found = pool(drawn)
        assert found is not None
        hits += found.interval.low < 0.3 < found.interval.high
    assert hits >= 0.87 * 300  # 90 % is promised; a standard error is 1.7 %


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (0.3, 0.8), (0.9, 1.0), (1.5, 3.0)])
def test_as_many_seeds_as_are_asked_for_decide_it_most_of_the_time(mean: float, deviation: float) -> None:
    rng = np.random.default_rng(0)
    count = seeds_to_decide(Summary(mean=mean, deviation=deviation, count=3), 1.0)
    assert count is not None
    outcomes = [judge(interval(rng.normal(mean, deviation, count).tolist()), 1.0) for _ in range(300)]
    decided = sum(outcome != "undecided" for outcome in outcomes) / 300
    assert decided > 0.4
    fewer = [
        judge(interval(rng.normal(mean, deviation, max(2, count // 4)).tolist()), 1.0) for _ in range(300)
    ]
    assert sum(outcome != "undecided" for outcome in fewer) / 300 < decided - 0.1


def test_seeds_that_would_decide_a_pooled_estimate() -> None:
    drawn = [[[mean - 3.0, mean + 3.0]] for mean in (-0.6, -0.2, 0.0, 0.1, 0.3, 0.5)]
    count = seeds_to_decide_pooled(drawn, 1.0)
    assert count is not None
    assert count > 2
    apart = [[[-5.0, -5.1]], [[5.0, 5.1]], [[0.0, 0.1]]]
    assert seeds_to_decide_pooled(apart, 1.0) is None  # no seed will bring them together
