"""The benchmark of the defaults: its data, a row of each field, and its tables."""

import numpy as np
import pytest

import defaults
from aaren.bench.record import BenchRecord


def test_a_seed_draws_the_same_data_again() -> None:
    for draw in (lambda rng: defaults.classes(rng, 12), defaults.series, defaults.events):
        one, same = (draw(np.random.default_rng(3)) for _ in range(2))
        assert list(one) == list(same)
    values, labels = defaults.classes(np.random.default_rng(3), 12)["the frequency"]
    assert values.shape == (12, defaults.STEPS)
    assert set(labels.tolist()) <= {0, 1, 2}


@pytest.mark.long
@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("classification", "the place of a peak"),
        ("forecasting", "60 series of three years, monthly"),
        ("events", "after an hour, or at once"),
    ],
)
def test_defaults_are_not_behind_the_simplest_alternatives(field: str, name: str) -> None:
    kind = defaults.FIELDS[field]
    row = kind.judge(name, 0)
    alternatives = [row[who] for who in kind.alternatives]
    assert row["ours"] > max(alternatives) - 0.02 if kind.is_better_high else row["ours"] < min(alternatives)
    record = BenchRecord(
        kind="defaults",
        command="-",
        settings={},
        measurements=[{"field": field, "data": name, "seed": 0, **row}],
    )
    (table,) = defaults.tables(record)
    assert table.title == kind.title
