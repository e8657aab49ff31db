"""The exponentials of the kernels have the stated relative error, and are 0 or NaN where they should be."""

import numpy as np
import pytest
from numba import njit

from aaren.ops.cpu.exp_kernel import exp_double, exp_single


@pytest.mark.parametrize(
    ("exp", "dtype", "lowest", "bound"),
    [(exp_double, np.float64, -700.0, 5e-16), (exp_single, np.float32, -87.0, 2e-7)],
)
def test_the_relative_error_is_as_stated(exp, dtype, lowest, bound):
    @njit(fastmath={"reassoc", "contract"})  # as the loops of the kernels are compiled
    def fill(items, found):
        for place in range(len(items)):
            found[place] = exp(items[place])

    items = np.random.default_rng(3).uniform(lowest, 0.0, 100_000).astype(dtype)
    items[:4] = [0.0, -3e38, -np.inf, np.nan]
    found = np.empty_like(items)
    fill(items, found)
    assert found[0] == 1.0
    assert found[1] == found[2] == 0.0
    assert np.isnan(found[3])
    truth = np.exp(items[4:].astype(np.longdouble))
    assert (np.abs(found[4:] - truth) <= bound * truth).all()
