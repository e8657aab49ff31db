"""Data frames into series and forecasts into data frames, long or wide.

long   one row per series and time: `unique_id, ds, y`, in any order of rows
wide   one row per time: `ds` (or a DatetimeIndex) and one column of numbers per series

Times are dates or whole numbers. Series are known by their ids as they are: 1 and "1" are two.
"""

import datetime
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from aaren.errors import DataError, require_extra
from aaren.forecasting.calendar import Dates, is_regular

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package


Layout: TypeAlias = Literal["long", "wide"]
SeriesId: TypeAlias = Hashable
FORECAST = "AarenForecaster"  # the column of a long forecast, named after the model as the field does


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """What the columns of a frame are called."""

    series: Hashable = "unique_id"
    time: Hashable = "ds"
    value: Hashable = "y"


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class SeriesRows:
    """Some rows of one series, in the order of their times."""

    times: NDArray[np.generic]  # (rows,) datetime64 of UTC, or int64
    values: NDArray[np.float64]  # (rows,)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Panel:
    """What a frame holds."""

    layout: Layout
    series: Mapping[SeriesId, SeriesRows]
    id_type: str  # of a long frame's column of ids, as pandas calls it
    time_zone: datetime.tzinfo | None  # None: dates without one, or whole numbers


def read_frame(frame: "pandas.DataFrame", columns: Columns, *, layout: Layout | None = None) -> Panel:
    """Return the rows of each series by its id.

    Args:
        frame: long or wide.
        columns: what its columns are called.
        layout: the one to insist on; default: what the frame looks like.
    """
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    if not isinstance(frame, pandas.DataFrame):
        raise DataError(
            f"expected a pandas DataFrame, long ({columns.series}, {columns.time}, {columns.value}) or wide; "
            f"got {type(frame).__name__}."
        )
    if isinstance(frame.columns, pandas.MultiIndex):
        raise DataError("columns of several levels are not read. Join them: frame.columns.map('/'.join).")
    if columns.time not in frame.columns and isinstance(frame.index, pandas.DatetimeIndex):
        frame = frame.rename_axis(index=columns.time).reset_index()
    if columns.time not in frame.columns:
        raise DataError(
            f"no column {columns.time!r} and no DatetimeIndex; the frame has {_listed(frame.columns)}. Name "
            f"the column of times with time_column=..."
        )
    if not len(frame):
        raise DataError("the frame has no rows.")
    is_long = columns.series in frame.columns
    if layout is not None and (layout == "long") != is_long:
        raise DataError(
            f"the model was fitted on a {layout} frame; this one has {_listed(frame.columns)}. Give the same "
            f"layout again."
        )
    used = [columns.series, columns.time, columns.value] if is_long else list(frame.columns)
    repeated = [name for name in dict.fromkeys(used) if list(frame.columns).count(name) > 1]
    if repeated:
        raise DataError(f"the frame has several columns {repeated[0]!r}. Keep one, or give them other names.")
    times, time_zone = _times(frame[columns.time], columns)
    if not is_long:
        return Panel(
            layout="wide", series=_read_wide(frame, times, columns), id_type="object", time_zone=time_zone
        )
    if columns.value not in frame.columns:
        raise DataError(
            f"no column {columns.value!r}; the frame has {_listed(frame.columns)}. Name the column of values "
            f"with target_column=..."
        )
    ids = frame[columns.series]
    missing = np.flatnonzero(ids.isna().to_numpy())
    if len(missing):
        raise DataError(
            f"row {missing[0]}: {columns.series!r} is missing ({len(missing)} such), so that nobody knows "
            f"whose row it is. Fill or drop these rows first."
        )
    unusable = next((name for name in ids if not isinstance(name, Hashable)), None)
    if unusable is not None:
        raise DataError(f"ids in {columns.series!r} must be text or numbers; got {unusable!r}.")
    order = pandas.Series(np.arange(len(frame))).groupby(ids.to_numpy(dtype=object), sort=True)
    series = {}
    for name, places in order:
        rows = places.to_numpy()
        series[name] = _rows(times[rows], frame[columns.value].iloc[rows], f"series {name!r}", columns)
    return Panel(layout="long", series=series, id_type=str(ids.dtype), time_zone=time_zone)


def write_frame(
    panel: Panel,
    columns: Columns,
    times: Mapping[SeriesId, NDArray[np.generic]],
    forecasts: Mapping[SeriesId, NDArray[np.float64]],
) -> "pandas.DataFrame":
    """Return forecasts as a frame of the layout, the types and the time zone that were fitted.

    In a wide frame, series whose rows end at different times leave empty what they do not forecast.
    """
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")

    def stamps(found: NDArray[np.generic]) -> object:
        column = pandas.Series(found)
        return (
            column if panel.time_zone is None else column.dt.tz_localize("UTC").dt.tz_convert(panel.time_zone)
        )

    if panel.layout == "wide":
        union = np.unique(np.concatenate(list(times.values())))
        frame = pandas.DataFrame({columns.time: stamps(union)})
        for name, found in forecasts.items():
            column = np.full(len(union), np.nan)
            column[np.searchsorted(union, times[name].astype(union.dtype))] = found
            frame[name] = column
        return frame
    ids = [name for name, some in times.items() for _ in range(len(some))]
    return pandas.DataFrame(
        {
            columns.series: pandas.Series(ids, dtype=panel.id_type),
            columns.time: stamps(np.concatenate(list(times.values()))),
            FORECAST: np.concatenate([forecasts[name] for name in times]),
        }
    )


def show_time(time: np.generic, time_zone: datetime.tzinfo | None = None) -> str:
    """Write a time as people read it."""
    if time.dtype.kind != "M":
        return str(time)
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    stamp = pandas.Timestamp(time)
    return str(stamp if time_zone is None else stamp.tz_localize("UTC").tz_convert(time_zone))


def usual_step(times: NDArray[np.generic]) -> int:
    """Return the median distance of two neighbouring times, in their unit; 1 if there is none."""
    gaps = np.diff(times.astype(np.int64))
    return max(1, int(np.median(gaps))) if len(gaps) else 1


def require_regular(
    name: SeriesId, times: NDArray[np.generic], *, time_zone: datetime.tzinfo | None = None
) -> None:
    """Raise if a series has gaps: times much farther apart, or nearer, than usual; weekends are none."""
    gaps, usual = np.diff(times.astype(np.int64)), usual_step(times)
    wrong = np.flatnonzero((gaps > 1.5 * usual) | (gaps < 0.5 * usual))
    if len(wrong) and not (times.dtype.kind == "M" and is_regular(cast("Dates", times), time_zone=time_zone)):
        row = int(wrong[0])
        raise DataError(
            f"series {name!r} has {len(wrong)} gap(s), the first from {show_time(times[row], time_zone)} to "
            f"{show_time(times[row + 1], time_zone)}. Fill it, or accept this with allow_irregular=True."
        )


def _read_wide(
    frame: "pandas.DataFrame", times: NDArray[np.generic], columns: Columns
) -> dict[SeriesId, SeriesRows]:
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    names = [name for name in frame.columns if name != columns.time]
    if not names:
        raise DataError(
            f"the frame has only the column {columns.time!r}; expected columns of numbers beside it."
        )
    nameless = [
        place
        for place, name in enumerate(frame.columns)
        if pandas.api.types.is_scalar(name) and pandas.isna(name)
    ]
    if nameless:
        raise DataError(f"column {nameless[0]} of the frame has no name. Give it one.")
    return {name: _rows(times, frame[name], f"column {name!r}", columns) for name in names}


def _rows(stamps: NDArray[np.generic], values: "pandas.Series", name: str, columns: Columns) -> SeriesRows:
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    numbers = np.asarray(pandas.to_numeric(values, errors="coerce"), dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{name}, row {row} ({columns.time} = {show_time(stamps[row])}): expected a finite number; got "
            f"{values.iloc[row]} ({len(wrong)} such). Fill or drop these rows first."
        )
    order = np.argsort(stamps, kind="stable")
    stamps, numbers = stamps[order], numbers[order]
    repeated = np.flatnonzero(stamps[1:] == stamps[:-1])
    if len(repeated):
        time = show_time(stamps[repeated[0]])
        raise DataError(f"{name}: {columns.time} = {time} comes twice. Keep one row per time.")
    return SeriesRows(times=stamps, values=numbers)


def _times(times: "pandas.Series", columns: Columns) -> tuple[NDArray[np.generic], datetime.tzinfo | None]:
    """Return whole numbers, or dates in UTC and the time zone that they came in."""
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    kind = pandas.api.types.infer_dtype(times, skipna=True)
    if kind in ("integer", "floating", "mixed-integer", "mixed-integer-float", "boolean", "decimal"):
        numbers = np.asarray(pandas.to_numeric(times, errors="coerce"), dtype=np.float64)
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers == np.round(numbers))) | (kind == "boolean"))
        _refuse_times(times, wrong, columns)
        return np.asarray(times, dtype=np.int64), None
    if kind == "period":
        raise DataError(
            f"{columns.time!r} holds periods; give dates: frame[{columns.time!r}].dt.to_timestamp()."
        )
    try:
        parsed = pandas.to_datetime(times, errors="coerce")
    except ValueError:  # several time zones
        parsed = pandas.to_datetime(times, errors="coerce", utc=True)
    _refuse_times(times, np.flatnonzero(parsed.isna().to_numpy()), columns)
    time_zone = parsed.dt.tz
    if time_zone is not None:
        parsed = parsed.dt.tz_convert("UTC").dt.tz_localize(None)
    stamps: NDArray[np.generic] = parsed.to_numpy()
    return stamps, time_zone


def _refuse_times(times: "pandas.Series", wrong: NDArray[np.intp], columns: Columns) -> None:
    if len(wrong):
        raise DataError(
            f"row {wrong[0]}: {columns.time} must be a date or a whole number; got "
            f"{times.iloc[int(wrong[0])]!r}."
        )


def _listed(names: Sequence[object]) -> str:
    texts = [repr(str(name)) for name in names]
    return ", ".join(texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")
