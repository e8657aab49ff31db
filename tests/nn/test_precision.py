"""Streams without end stay exact; the short version of the same is in tests/bench/test_precision.py."""

import pytest

from aaren.bench.stream import PrecisionSettings, measure_precision


@pytest.mark.endless
def test_thirty_million_equal_scores_stay_an_exact_mean() -> None:
    row = measure_precision(PrecisionSettings())
    assert row["tokens"] == 30_000_000
    assert float(row["forward_error"] or 0.0) <= 1e-9
    assert float(row["step_error"] or 0.0) <= 1e-9
