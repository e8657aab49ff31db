"""Dates whose day and month may come in either order: read if one can be, asked for if both can."""

import numpy as np
import pandas as pd
import pytest

from aaren.datasets.dates import as_iso, look_like_dates, read_date, refuse_unordered
from aaren.errors import DataError


def read(*texts: object) -> list[object]:
    return as_iso(pd.Series(list(texts), dtype=object), where="ds", cure="Say which.").tolist()


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["01.02.2026", "13.02.2026"], ["2026-02-01", "2026-02-13"]),  # pandas: January the 2nd, then NaT
        (["1/2/2026", "1/13/2026"], ["2026-01-02", "2026-01-13"]),
        (["13-2-2026T9:30", "1-2-2026T10:00"], ["2026-02-13T09:30", "2026-02-01T10:00"]),
        (["31.1.2026 8:00+01:00"], ["2026-01-31 08:00+01:00"]),
    ],
)
def test_the_only_order_that_can_be_is_found(texts: list[str], found: list[str]) -> None:
    assert read(*texts) == found


def test_what_has_the_year_first_or_is_no_text_stays() -> None:
    for given in (["2026-01-02"], ["2026/1/2 0:00"], ["Jan 2 2026"], ["10.0.0.1"], [3], [None], [None, "a"]):
        assert read(*given) == given
    moment = pd.Timestamp("2026-01-02")
    assert read(moment) == [moment]


def test_one_date_alone_never_says_its_order() -> None:
    for text in ("13.02.2026", "1/2/26", "9:30"):
        with pytest.raises(DataError, match="year first"):
            refuse_unordered(text, name="when")
    for fine in ("2026-02-13 9:30", 3, pd.Timestamp("2026-02-13")):
        refuse_unordered(fine, name="when")


def test_whole_numbers_that_are_meant_as_dates() -> None:
    assert look_like_dates(np.array([20251231, 20260101])) == "%Y%m%d"
    assert look_like_dates(np.array([202512, 202601])) == "%Y%m"
    for numbers in ([1, 2], [1999, 2000], [20251231, 20251232], [202512, 202513], [1767868885, 1767868999]):
        assert look_like_dates(np.array(numbers)) == ""


@pytest.mark.parametrize(
    "value",
    [
        "now",
        "today",
        "-1",
        "9" * 30,
        "99999-01-01",
        "2026-13-01",
        "2026-02-30",
        "soon",
        "",
        True,
        20260131,
        None,
    ],
)
def test_a_date_of_a_row_is_year_first_or_refused(value: object) -> None:
    with pytest.raises(DataError, match="'date' must be a date like 2026-01-31 07:00; got"):
        read_date(value, name="date")


@pytest.mark.parametrize(
    "text", ["2026-01-31", "2026-01-31 07", "2026-01-31T07:00", "0001-01-01", "9999-12-31 23:59:59.5"]
)
def test_a_date_of_a_row_is_read(text: str) -> None:
    assert str(read_date(text, name="date")).startswith(text[:10])
