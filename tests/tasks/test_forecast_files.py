import numpy as np
import pytest

from aaren.errors import DataError
from aaren.tasks.forecast_files import continue_dates


def dates(*texts: str) -> np.ndarray:
    return np.array(texts, dtype="datetime64[s]")


def test_dates_go_on_at_the_usual_step_even_after_a_gap() -> None:
    known = dates("2024-01-01T00:00", "2024-01-01T00:15", "2024-01-01T00:30", "2024-01-01T02:00")
    assert continue_dates(known, 2).tolist() == dates("2024-01-01T02:15", "2024-01-01T02:30").tolist()


def test_months_keep_their_day() -> None:
    assert continue_dates(dates("2023-11-01", "2023-12-01", "2024-01-01"), 3).tolist() == (
        dates("2024-02-01", "2024-03-01", "2024-04-01").tolist()
    )


def test_one_row_has_no_step() -> None:
    with pytest.raises(DataError, match=r"got 1 row\(s\), need 2"):
        continue_dates(dates("2024-01-01"), 3)
