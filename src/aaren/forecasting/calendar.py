"""Dates that follow known ones, as a calendar has it: hours, days, weekdays, weeks, months, quarters, years.

Dates are instants in UTC; with a time zone, days and longer steps keep the time on its clocks, in summer and
in winter. Sub-seconds stay.
"""

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from aaren.errors import DataError, require_extra

if TYPE_CHECKING:
    import datetime


Dates: TypeAlias = NDArray[np.datetime64]

LOOKED_AT = 64  # of the known dates, the latest
WEEKS_TO_TELL = 3  # without a day of the week, until it is taken for one that is never there
RARER = ("SMS", "SME", "2B", "3B", "4B")  # steps that pandas does not find by itself
DAY = np.timedelta64(1, "D")


def continue_dates(
    dates: Dates,
    steps: int,
    *,
    like: Dates | None = None,
    time_zone: "datetime.tzinfo | None" = None,
    freq: str | None = None,
) -> Dates:
    """Return the dates that follow the last one, at the step of the known ones.

    Args:
        dates: (n,) in UTC, increasing.
        steps: how many.
        like: dates whose step to take if there is only one date.
        time_zone: whose clocks days, months and years go by; None: UTC.
        freq: the step as pandas calls it; None: that between the known ones.

    >>> found = continue_dates(np.array(["2023-09-30", "2023-12-31", "2024-03-31"], dtype="datetime64[s]"), 2)
    >>> found.astype("datetime64[D]").astype(str).tolist()
    ['2024-06-30', '2024-09-30']
    """
    known = dates if like is None or len(dates) > 1 else like
    if len(known) < 2 and freq is None:
        raise DataError(
            f"dates continue at the step between the known ones; got {len(known)} row(s), need 2."
        )
    pandas = require_extra("pandas", extra="data", purpose="continuing dates")
    try:
        found = _continue(pandas, dates[-1:], known[-LOOKED_AT:], steps, time_zone, freq)
    except (OverflowError, pandas.errors.OutOfBoundsDatetime) as error:
        raise DataError(
            f"the {steps} dates after {dates[-1]} reach beyond what {dates.dtype} holds."
        ) from error
    return cast("Dates", found.astype(dates.dtype))


def is_regular(dates: Dates, *, time_zone: "datetime.tzinfo | None" = None) -> bool:
    """Tell whether dates keep a step of the calendar, such as weekdays."""
    pandas = require_extra("pandas", extra="data", purpose="reading dates")
    return _find_step(pandas, _index(pandas, dates, time_zone)) is not None


def _continue(
    pandas: Any,  # Any: pandas has no types
    last: Dates,
    known: Dates,
    steps: int,
    time_zone: "datetime.tzinfo | None",
    freq: str | None,
) -> Dates:
    index = _index(pandas, known, time_zone)
    step = _find_step(pandas, index) if freq is None else pandas.tseries.frequencies.to_offset(freq)
    is_tick = isinstance(step, pandas.offsets.Tick) and not isinstance(step, pandas.offsets.Day)
    if step is not None and is_tick:
        return _add(last, pandas.Timedelta(step).to_timedelta64(), steps)
    on_clocks = _on_clocks(_index(pandas, last, time_zone))
    if step is not None:
        # One more, because the first is the last known date itself if it is where the step may begin.
        later = pandas.date_range(on_clocks[0], periods=steps + 1, freq=step)
        return _from_clocks(later[later > on_clocks[0]][:steps], time_zone)
    local = _on_clocks(index).to_numpy()
    months = _whole_months(local)
    if months is not None:
        return _from_clocks(pandas.DatetimeIndex(_add_months(local, on_clocks, months, steps)), time_zone)
    gaps = np.diff(known)
    usual = max(
        np.timedelta64(1, "ns"), np.median(gaps[gaps > np.timedelta64(0)].astype(np.int64)).astype(gaps.dtype)
    )
    week = _find_week(pandas, local) if abs(usual - DAY) <= np.timedelta64(1, "h") else None
    if week is not None:
        later = pandas.date_range(on_clocks[0], periods=steps + 1, freq=week)
        return _from_clocks(later[later > on_clocks[0]][:steps], time_zone)
    if (
        time_zone is not None
        and abs(usual - round(usual / DAY) * DAY) <= np.timedelta64(1, "h")
        and usual > DAY / 2
    ):
        return _from_clocks(
            pandas.DatetimeIndex(_add(on_clocks.to_numpy(), round(usual / DAY) * DAY, steps)), time_zone
        )
    return _add(last, usual, steps)


def _index(pandas: Any, dates: Dates, time_zone: "datetime.tzinfo | None") -> Any:
    index = pandas.DatetimeIndex(dates)
    return index if time_zone is None else index.tz_localize("UTC").tz_convert(time_zone)


def _on_clocks(index: Any) -> Any:
    return index.tz_localize(None)


def _from_clocks(index: Any, time_zone: "datetime.tzinfo | None") -> Dates:
    """Return instants; of a time that clocks show twice the first, of one that they skip the next."""
    if time_zone is not None:
        index = index.tz_localize(
            time_zone, ambiguous=np.ones(len(index), dtype=bool), nonexistent="shift_forward"
        )
        index = index.tz_convert("UTC").tz_localize(None)
    return cast("Dates", index.to_numpy())


def _find_step(pandas: Any, index: Any) -> Any:
    """Return the step of the calendar that dates keep; None: there is none, or too few to tell."""
    if len(index) < 3:
        return None
    found = pandas.infer_freq(index)
    if found is not None:
        return pandas.tseries.frequencies.to_offset(found)
    local = _on_clocks(index)
    if np.diff(local.to_numpy()).min() < DAY / 2:  # the rarer steps are of days
        return None
    for step in (*RARER, _find_week(pandas, local.to_numpy())):
        if step and pandas.date_range(local[0], periods=len(local), freq=step).equals(local):
            return pandas.tseries.frequencies.to_offset(step)
    return None


def _add(last: Dates, step: np.timedelta64, steps: int) -> Dates:
    return cast("Dates", last[-1] + np.arange(1, steps + 1) * step)


def _whole_months(local: Dates) -> int | None:
    """Return how many months lie between dates on the same day of the month, or as late as it has days."""
    gaps = np.diff(local.astype("datetime64[M]").astype(np.int64))
    usual = int(np.median(gaps))
    if usual < 1:
        return None
    places = local.astype("datetime64[M]")
    days, lengths = _days(local), _lengths(places)
    is_same_day = bool((days == np.minimum(days.max(), lengths - 1)).all())
    clock = local - local.astype("datetime64[D]")
    return usual if is_same_day and bool((clock == clock[0]).all()) else None


def _add_months(local: Dates, last: Any, months: int, steps: int) -> Dates:
    moment = last.to_numpy()[0]
    following = moment.astype("datetime64[M]") + months * np.arange(1, steps + 1)
    lengths = _lengths(following)
    is_end = bool((_days(local) == _lengths(local.astype("datetime64[M]")) - 1).all())
    days = lengths - 1 if is_end else np.minimum(_days(local).max(), lengths - 1)
    return cast("Dates", following.astype("datetime64[D]") + days + (moment - moment.astype("datetime64[D]")))


def _days(dates: Dates) -> NDArray[np.int64]:
    days: NDArray[np.int64] = (dates.astype("datetime64[D]") - dates.astype("datetime64[M]")).astype(np.int64)
    return days


def _lengths(months: Dates) -> NDArray[np.int64]:
    ends, begins = (months + 1).astype("datetime64[D]"), months.astype("datetime64[D]")
    lengths: NDArray[np.int64] = (ends - begins).astype(np.int64)
    return lengths


def _find_week(pandas: Any, local: Dates) -> Any:
    """Return the step of the days of the week that dates have; None: all seven, or too soon to tell.

    Weekdays are known after one weekend, other weeks, such as that of a shop which is closed on Mondays,
    after some.
    """
    days = local.astype("datetime64[D]")
    there = np.isin(np.arange(7), _weekdays(days))
    passed = days[0] + np.arange(int((days[-1] - days[0]).astype(np.int64)) + 1)
    seen = np.bincount(_weekdays(passed), minlength=7)
    is_business = list(there) == [True] * 5 + [False] * 2
    if there.all() or there.sum() < 2 or seen[~there].min() < (1 if is_business else WEEKS_TO_TELL):
        return None
    return pandas.offsets.CustomBusinessDay(weekmask=there.astype(int).tolist())


def _weekdays(days: Dates) -> NDArray[np.int64]:
    """Return the days of the week, Monday as 0."""
    found: NDArray[np.int64] = (days.astype("datetime64[D]").astype(np.int64) + 3) % 7
    return found


def every_date(dates: Dates, *, time_zone: "datetime.tzinfo | None" = None) -> Dates:
    """Return all dates from the first to the last at the step that most of them keep.

    >>> days = np.array(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-06"], dtype="datetime64[s]")
    >>> len(every_date(days))
    6
    """
    pandas = require_extra("pandas", extra="data", purpose="reading dates")
    index = _index(pandas, dates, time_zone)
    step = _find_step(pandas, index)
    gaps = np.diff(dates)
    usual = np.median(gaps.astype(np.int64)).astype(gaps.dtype)
    if step is None and abs(usual - DAY) <= np.timedelta64(1, "h"):
        step = _find_week(pandas, _on_clocks(index).to_numpy())
    for first in range(0, len(index) - 7, 4):  # the longest step of the calendar that some stretch keeps
        if step is not None:
            break
        step = _find_step(pandas, index[first : first + 8])
    if step is not None and (
        not isinstance(step, pandas.offsets.Tick) or isinstance(step, pandas.offsets.Day)
    ):
        local = _on_clocks(index)
        every = _from_clocks(pandas.date_range(local[0], local[-1], freq=step), time_zone)
        return cast("Dates", every.astype(dates.dtype))
    return cast("Dates", np.arange(dates[0], dates[-1] + usual, usual).astype(dates.dtype))


CLOCKS = ("none", "week", "weekday", "month", "quarter")  # rows of a week, days of it, months, quarters
LONG_SEASON = {"week": "week", "weekday": "week", "month": "year", "quarter": "year"}  # of each clock
SHORTEST_SLOT_SECONDS = 300


def find_clock(dates: Dates) -> tuple[str, int]:
    """Return the clock whose slots rows of this step pass through, and the seconds of a slot.

    >>> find_clock(np.array(["2024-01-01T00", "2024-01-01T01", "2024-01-01T02"], dtype="datetime64[s]"))
    ('week', 3600)
    """
    gaps = np.diff(dates.astype("datetime64[s]").astype(np.int64))
    gaps = gaps[gaps > 0]
    usual, day = (int(np.median(gaps)) if len(gaps) else 0), 86_400
    if SHORTEST_SLOT_SECONDS <= usual < day and day % usual == 0:
        return "week", usual
    for clock, shortest, longest in (("weekday", 1, 1.5), ("month", 27, 32), ("quarter", 89, 93)):
        if shortest * day <= usual <= longest * day:
            return clock, day
    return "none", day


def count_slots(clock: str, slot_seconds: int) -> int:
    """Return how many slots a clock has."""
    return {"none": 1, "week": 7 * 86_400 // slot_seconds, "weekday": 7, "month": 12, "quarter": 4}[clock]


def season_rows(clock: str, slot_seconds: int, slots: NDArray[np.int64]) -> dict[str, int]:
    """Return how many rows the seasons of a clock have, by name, the shortest first.

    A week has the days that are among the slots: five of weekdays.

    >>> season_rows("week", 3600, np.arange(400) % 168), season_rows("weekday", 86_400, np.arange(60) % 5)
    ({'day': 24, 'week': 168}, {'week': 5})
    """
    if clock == "none":
        return {}
    longest = len(np.unique(slots)) if clock == "weekday" else count_slots(clock, slot_seconds)
    day = {"day": longest // 7} if clock == "week" and longest > 7 else {}
    return day | {LONG_SEASON[clock]: longest}


def find_season(times: NDArray[np.generic]) -> int:
    """Return the rows of the shortest season that times of this step have; 1: none.

    >>> find_season(np.arange("2024-01", "2025-01", dtype="datetime64[M]").astype("datetime64[s]"))
    12
    """
    if times.dtype.kind != "M" or len(times) < 2:
        return 1
    dates = cast("Dates", times)
    clock, seconds = find_clock(dates)
    seasons = season_rows(clock, seconds, find_slots(dates, clock, seconds))
    usual = np.median(np.diff(dates.astype("datetime64[s]").astype(np.int64))) / 86_400
    return next(iter(seasons.values()), 52 if 6.5 < usual < 7.5 else 1)


def find_slots(
    dates: Dates, clock: str, slot_seconds: int, *, time_zone: "datetime.tzinfo | None" = None
) -> NDArray[np.int64]:
    """Return the slot of each date, (n,); with a time zone by the clocks there, in summer and winter."""
    if clock == "none":
        return np.zeros(len(dates), dtype=np.int64)
    if time_zone is not None:
        pandas = require_extra("pandas", extra="data", purpose="reading dates")
        dates = _on_clocks(_index(pandas, dates, time_zone)).to_numpy()
    if clock in ("month", "quarter"):
        months = dates.astype("datetime64[M]").astype(np.int64) % 12
        return months if clock == "month" else months // 3
    days, weekday = dates.astype("datetime64[D]"), _weekdays(dates)
    if clock == "weekday":
        return weekday
    seconds = (dates - days).astype("timedelta64[s]").astype(np.int64)
    found: NDArray[np.int64] = weekday * (86_400 // slot_seconds) + seconds // slot_seconds
    return found
