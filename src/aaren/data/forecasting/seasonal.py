"""A generated multivariate series with days, weeks, a slow drift and noise: a first run without a download.

Each column is its own mixture; the last one follows the first with a delay, so that the past of one column
tells something about the future of another. Not real, and never named as anything else.
"""

import numpy as np

from aaren.data.forecasting.series import Series

DELAY_STEPS = 6
NOISE_MEMORY = 0.8  # of one step in the next
DAY, WEEK = 24, 168


def seasonal(*, rows: int = 4_000, num_series: int = 7, seed: int = 0) -> Series:
    """Generate hourly series; the same arguments give the same numbers."""
    generator = np.random.default_rng(seed)
    hours = np.arange(rows)[:, None]
    amplitude = generator.uniform(0.5, 1.5, size=(3, num_series))
    phase = generator.uniform(0.0, 2 * np.pi, size=(3, num_series))
    level = generator.uniform(-5.0, 5.0, size=num_series)
    values = level + sum(
        amplitude[place] * np.sin(2 * np.pi * hours / period + phase[place])
        for place, period in enumerate((DAY, WEEK, 10 * WEEK))
    )
    noise = generator.normal(scale=0.2, size=(rows, num_series))
    for row in range(1, rows):
        noise[row] += NOISE_MEMORY * noise[row - 1]
    values = values + noise
    if num_series > 1:
        values[DELAY_STEPS:, -1] = 0.5 * values[DELAY_STEPS:, -1] + values[:-DELAY_STEPS, 0]
    dates = np.datetime64("2020-01-01T00:00:00", "s") + np.arange(rows) * np.timedelta64(1, "h")
    columns = (*(f"series_{place}" for place in range(num_series - 1)), "OT")
    return Series(name="seasonal", columns=columns, dates=dates, values=values)
