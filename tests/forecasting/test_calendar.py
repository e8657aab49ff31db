"""Dates continue as the calendar has it."""

import numpy as np
import pandas as pd
import pytest

from aaren.forecasting.calendar import continue_dates, every_date, is_regular

STEPS = [
    *("QE", "YE", "QS", "YS", "ME", "MS", "B", "D", "W-SUN", "W-WED", "h", "15min", "s", "500ms", "7us"),
    *("QE-NOV", "QS-FEB", "YE-MAR", "YS-JUL", "BME", "BMS", "BQE", "BQS", "BYE", "BYS", "SME", "SMS"),
    *("2h", "36h", "3D", "2W-MON", "2ME", "2QS", "2B", "2YE", "WOM-3FRI", "6ME"),
]


def utc(index: pd.DatetimeIndex) -> np.ndarray:
    return (index if index.tz is None else index.tz_convert("UTC").tz_localize(None)).to_numpy()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("start", ["2023-02-28 09:30", "2024-01-01"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def test_dates_go_on_at_every_step_of_the_calendar(step: str, start: str, zone: str | None) -> None:
    whole = pd.date_range(start, periods=52, freq=step, tz=zone)
    found = continue_dates(utc(whole)[:40], 12, time_zone=whole.tz)
    np.testing.assert_array_equal(found, utc(whole)[40:])
    assert is_regular(utc(whole), time_zone=whole.tz)


@pytest.mark.parametrize("step", ["ME", "MS", "QE", "QS", "YE", "YS", "D", "h", "250ms", "W-TUE"])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_few_dates_are_enough(step: str, count: int) -> None:
    whole = pd.date_range("2024-01-01", periods=count + 6, freq=step).to_numpy()
    np.testing.assert_array_equal(continue_dates(whole[:count], 6), whole[count:])


@pytest.mark.parametrize("step", ["ME", "B", "h", "D", "YS", "20ms"])
def test_one_date_goes_on_like_others(step: str) -> None:
    whole = pd.date_range("2024-01-01", periods=30, freq=step).to_numpy()
    np.testing.assert_array_equal(continue_dates(whole[20:21], 4, like=whole[:20]), whole[21:25])


def test_a_day_of_the_month_or_year_is_kept() -> None:
    for months, first in ((1, "2023-01-15"), (3, "2023-01-15T08:00"), (12, "2020-07-04"), (1, "2023-01-30")):
        stamps = [pd.Timestamp(first) + pd.DateOffset(months=months * place) for place in range(20)]
        whole = pd.DatetimeIndex(stamps).to_numpy()
        np.testing.assert_array_equal(continue_dates(whole[:14], 6), whole[14:])


def test_weekdays_with_holidays_have_no_weekends() -> None:
    whole = pd.date_range("2024-01-01", periods=40, freq="B").delete([7, 20]).to_numpy()
    found = pd.DatetimeIndex(continue_dates(whole, 10))
    assert found.equals(pd.bdate_range("2024-02-26", periods=10))


WEEKS = {"closed on Mondays": "0111111", "never on Sundays": "1111110", "Tuesdays and Fridays": "0100100"}


@pytest.mark.parametrize("mask", WEEKS.values(), ids=WEEKS)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_days_of_the_week_that_are_never_there_are_no_gaps(mask: str, zone: str | None) -> None:
    step = pd.offsets.CustomBusinessDay(weekmask=mask)
    whole = pd.date_range("2024-02-01 09:30", periods=90, freq=step, tz=zone)
    assert is_regular(utc(whole[:40]), time_zone=whole.tz)
    np.testing.assert_array_equal(continue_dates(utc(whole[:40]), 50, time_zone=whole.tz), utc(whole[40:]))
    if mask.count("1") > 2:  # and some that should be there are missing
        holes = whole.delete([9, 30, 31])
        found = continue_dates(utc(holes), 3, time_zone=whole.tz)
        np.testing.assert_array_equal(found, utc(pd.date_range(whole[-1], periods=4, freq=step)[1:]))
        np.testing.assert_array_equal(every_date(utc(holes), time_zone=whole.tz), utc(whole))


def test_a_day_that_is_missing_twice_is_a_gap() -> None:
    days = pd.date_range("2024-01-01", periods=15, freq="D")
    assert not is_regular(days[days.dayofweek != 1].to_numpy())


def test_summer_time_moves_days_but_not_hours() -> None:
    days = pd.date_range("2024-03-20 02:30", periods=5, freq="D", tz="Europe/Berlin")
    found = pd.DatetimeIndex(continue_dates(utc(days), 10, time_zone=days.tz)).tz_localize("UTC")
    clocks = found.tz_convert("Europe/Berlin").strftime("%d %H:%M").tolist()
    assert clocks[6] == "31 03:00"  # 02:30 is skipped
    assert [clock[3:] for clock in clocks[:6] + clocks[7:]] == ["02:30"] * 9
    for start in ("2024-03-30", "2024-10-26"):
        hours = pd.date_range(start, periods=60, freq="h", tz="Europe/Berlin")
        np.testing.assert_array_equal(
            continue_dates(utc(hours)[:10], 50, time_zone=hours.tz), utc(hours)[10:]
        )


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_unit_of_time_stays(unit: str) -> None:
    dates = np.array(["2024-01-31", "2024-02-29", "2024-03-31"], dtype=f"datetime64[{unit}]")
    found = continue_dates(dates, 2)
    assert found.dtype == dates.dtype
    assert [str(date)[:10] for date in found] == ["2024-04-30", "2024-05-31"]
