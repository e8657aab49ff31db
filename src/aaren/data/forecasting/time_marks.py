"""Dates as four numbers in [-0.5, 0.5]: hour, weekday, day of the month, day of the year.

The marks of the Time-Series-Library for the frequency "h", which it uses for every dataset, so minutes are
not seen.
"""

import numpy as np
from numpy.typing import NDArray

NUM_MARKS = 4


def time_marks(dates: NDArray[np.datetime64]) -> NDArray[np.float32]:
    """Compute (rows, 4) marks.

    >>> time_marks(np.array(["2018-01-01T00:00", "2018-12-31T23:00"], dtype="datetime64[s]")).tolist()[0]
    [-0.5, -0.5, -0.5, -0.5]
    """
    days = dates.astype("datetime64[D]")
    hour = (dates - days) // np.timedelta64(1, "h")
    weekday = (days.astype(np.int64) + 3) % 7  # day 0, 1970-01-01, was a Thursday; Monday is 0
    day_of_month = (days - days.astype("datetime64[M]")).astype(np.int64)
    day_of_year = (days - days.astype("datetime64[Y]")).astype(np.int64)
    marks = np.stack([hour / 23, weekday / 6, day_of_month / 30, day_of_year / 365], axis=1) - 0.5
    return marks.astype(np.float32)
