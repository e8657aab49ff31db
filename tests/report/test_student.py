"""Student's t against the reference of the field."""

import math

import pytest

from aaren.report import student

scipy_stats = pytest.importorskip("scipy.stats", reason="compares with scipy")


@pytest.mark.parametrize("degrees", [1, 2, 4, 7.3, 30, 400])
def test_cdf_and_quantile(degrees: float) -> None:
    for value in (-30.0, -3.0, -0.2, 0.0, 0.5, 2.0, 10.0):
        assert student.cdf(value, degrees) == pytest.approx(scipy_stats.t.cdf(value, degrees), rel=1e-10)
    for probability in (0.01, 0.05, 0.5, 0.95, 0.999):
        want = scipy_stats.t.ppf(probability, degrees)
        assert student.quantile(probability, degrees) == pytest.approx(want, rel=1e-9, abs=1e-12)


def test_the_far_ends() -> None:
    assert (student.cdf(math.inf, 3), student.cdf(-math.inf, 3)) == (1.0, 0.0)
