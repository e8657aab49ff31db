"""Dates as people write them: 13.02.2026, 2/13/2026. Which is the day is found, or asked for, never guessed.

pandas decides by the first date alone: 01.02.2026 is January the 2nd to it, whatever follows.
"""

import re
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from aaren.errors import DataError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

# Two numbers that may be day and month, in either order, and what follows them.
_NUMBERS = re.compile(r"\s*(\d{1,2})([./-])(\d{1,2})(?:\2(\d{4}|\d{2})(?!\d)|\2?(?=\s|$))(.*)", re.DOTALL)
_CLOCK = re.compile(r"\s*\d{1,2}:\d{2}")
_HOUR = re.compile(r"^([ T])(?=\d:)")  # of one digit
_ISO = re.compile(r"\s*\d{4}-\d\d(-\d\d([ T]\d\d(:\d\d(:\d\d(\.\d+)?)?)?)?)?\s*", re.ASCII)
LAST_MONTH = 12


def as_iso(column: "pandas.Series", *, where: str, cure: str) -> "pandas.Series":
    """Return a column whose texts such as 13.02.2026 are 2026-02-13; all else stays as it is.

    Args:
        column: of texts, dates or anything.
        where: it is, for errors.
        cure: how to say it if day and month cannot be told apart.

    >>> import pandas
    >>> as_iso(pandas.Series(["1.2.2026 10:00", "13.2.2026 9:30"]), where="ds", cure="").tolist()
    ['2026-02-01 10:00', '2026-02-13 09:30']
    """
    texts_or_dates = column.dropna()
    for text in filter(is_moment, texts_or_dates):
        raise DataError(f"{where}: {text!r} is no date: it means another one every day.")
    first = texts_or_dates.iloc[0] if len(texts_or_dates) else None
    if not isinstance(first, str):
        return column
    if _NUMBERS.match(first) is None:
        if _CLOCK.match(first):
            raise DataError(f"{where}: {first!r} is a time of day without a date. Give both in one column.")
        return column
    parts = [_NUMBERS.match(text) if isinstance(text, str) else None for text in column]
    read = [part for part in parts if part is not None]
    for part in read:
        if len(part.group(4) or "") != 4:
            raise DataError(f"{where}: {part.string!r} has no year of four digits. Write dates with it.")
    one, other = (max(int(part.group(place)) for part in read) for place in (1, 3))
    if max(one, other) <= LAST_MONTH:
        raise DataError(f"{where}: {first!r}: every date here can be read day first or month first. {cure}")
    if min(one, other) > LAST_MONTH:
        raise DataError(
            f"{where}: {first!r}: some dates here have the day first, some the month. Write all one way."
        )
    day, month = (1, 3) if one > LAST_MONTH else (3, 1)
    texts = [
        text
        if part is None
        else f"{part.group(4)}-{part.group(month):0>2}-{part.group(day):0>2}"
        + _HOUR.sub(r"\g<1>0", part.group(5))
        for text, part in zip(column, parts, strict=True)
    ]
    return type(column)(texts, index=column.index, name=column.name, dtype=object)


def is_moment(value: object) -> bool:
    """Tell whether pandas would read this as the time at which it reads.

    >>> is_moment("Now"), is_moment("2026-01-31")
    (True, False)
    """
    return isinstance(value, str) and value.strip().lower() in ("now", "today")


def refuse_unordered(given: object, *, name: str) -> None:
    """Raise if one date, by itself, does not say which of its numbers is the month.

    >>> refuse_unordered("13.02.2026", name="when")
    Traceback (most recent call last):
    aaren.errors.DataError: when='13.02.2026': write it year first, as 2026-01-31 08:15.
    """
    if isinstance(given, str) and (_NUMBERS.match(given) or _CLOCK.match(given)):
        raise DataError(f"{name}={given!r}: write it year first, as 2026-01-31 08:15.")


def read_date(value: object, *, name: str) -> np.datetime64:
    """Return a field of a row that is a date, year first.

    >>> read_date("2026-01-31 07:00", name="date")
    np.datetime64('2026-01-31T07:00:00')
    """
    try:
        if not isinstance(value, str) or not _ISO.fullmatch(value):
            raise ValueError(value)
        return np.datetime64(value.strip(), "s")
    except ValueError as error:
        raise DataError(
            f"the field {name!r} must be a date like 2026-01-31 07:00; got {short(value)}."
        ) from error


def look_like_dates(numbers: NDArray[np.int64]) -> str:
    """Return how whole numbers may be meant as dates, in the letters of strptime; empty: they are not.

    >>> look_like_dates(np.array([20260131, 20260201])), look_like_dates(np.array([31, 32]))
    ('%Y%m%d', '')
    """
    if len(numbers) < 2:
        return ""
    for form, days in (("%Y%m%d", 100), ("%Y%m", 1)):
        years, months, day = numbers // (100 * days), numbers // days % 100, numbers % days
        may_be: Any = (years >= 1900) & (years <= 2100) & (months >= 1) & (months <= LAST_MONTH)
        if days > 1:
            may_be &= (day >= 1) & (day <= 31)
        if bool(may_be.all()):
            return form
    return ""
