"""The bootstrap over seeds and episodes."""

from pathlib import Path

import numpy as np
import pytest

from aaren.report.gathered import gather
from aaren.report.tables import difference, episodes_table


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(100):
        ours = {0: rng.normal(5.0, 3.0, 20)}
        found = difference(ours, {0: rng.normal(0.0, 3.0, 20)})
        assert found is not None
        hits += found.low < 5.0 < found.high
    assert 80 <= hits <= 98


def test_seeds_that_differ_widen_it() -> None:
    rng = np.random.default_rng(2)
    base = {seed: rng.normal(50.0, 1.0, 10) for seed in range(4)}
    near = difference({seed: scores + 5.0 for seed, scores in base.items()}, base)
    far = difference({seed: scores + 5.0 + 10.0 * (-1) ** seed for seed, scores in base.items()}, base)
    assert near.mean == pytest.approx(far.mean)
    assert far.high - far.low > 3.0 * (near.high - near.low)
    assert difference({0: base[0]}, {1: base[1]}) is None


def test_the_table_has_both_differences(full_results: Path) -> None:
    table = episodes_table(gather(full_results), "cpu")
    assert table is not None
    first = [cell.text for cell in table.rows[0]]
    assert first[:4] == ["halfcheetah-medium-regen", "", "3", "30"]
    assert all("[" in text for text in first[4:])
    assert episodes_table(gather(full_results), "paper") is None


def test_a_seed_that_is_drawn_twice_has_other_episodes_the_second_time() -> None:
    rng = np.random.default_rng(3)
    widths = []
    for _ in range(20):
        ours = {seed: rng.normal(0.0, 1.0, 20) for seed in range(5)}
        theirs = {seed: rng.normal(0.0, 1.0, 20) for seed in range(5)}
        found = difference(ours, theirs)
        widths.append(found.high - found.low)
    # Of 2 x 100 independent episodes it is 2 x 1.645 x sqrt(2 / 100) = 0.47; drawing seeds too adds to it.
    assert 0.5 < np.mean(widths) < 0.72
