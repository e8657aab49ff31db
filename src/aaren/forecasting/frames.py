"""Data frames into series and forecasts into data frames, long or wide.

long   one row per series and time: `unique_id, ds, y`, in any order of rows
wide   one row per time: `ds` (or a DatetimeIndex) and one column of numbers per series

A Series or an array is wide, a dictionary or list of series of any lengths is long. Times are dates or whole
numbers. Series are known by their ids as they are: 1 and "1" are two.
"""

import datetime
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from aaren.datasets.dates import as_iso, look_like_dates
from aaren.datasets.numbers import refuse_masked
from aaren.errors import DataError, require_extra
from aaren.forecasting.calendar import Dates, every_date, find_clock, find_slots, is_regular, season_rows

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package


Layout: TypeAlias = Literal["long", "wide"]
SeriesId: TypeAlias = Hashable
Fill: TypeAlias = Literal["error", "interpolate", "seasonal"]
Table: TypeAlias = (
    "pandas.DataFrame | pandas.Series | NDArray[np.generic] | Mapping[Any, Any] | Sequence[Any]"
)
MOST_FAULTS = 20  # told at once
FILL_VALUE = 1e9  # times as far as nine of ten other values are from the median: no observation
SECONDS_OF_AN_HOUR, LATEST_CHANGE = 3600, 3  # the hour at which clocks are set at the latest
SAY_WHERE = "frame[{}].dt.tz_localize('Europe/Berlin'{})."
FORECAST = "AarenForecaster"  # the column of a long forecast, named after the model as the field does


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """What the columns of a frame are called."""

    series: Hashable = "unique_id"
    time: Hashable = "ds"
    value: Hashable = "y"
    covariates: tuple[Hashable, ...] = ()  # columns that are known of the future too


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class SeriesRows:
    """Some rows of one series, in the order of their times."""

    times: NDArray[np.generic]  # (rows,) datetime64 of UTC, or int64
    values: NDArray[np.float64]  # (rows,)
    covariates: NDArray[np.float64] | None = None  # (rows, k)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Panel:
    """What a frame holds."""

    layout: Layout
    series: Mapping[SeriesId, SeriesRows]
    id_type: str  # of a long frame's column of ids, as pandas calls it
    time_zone: datetime.tzinfo | None  # None: dates without one, or whole numbers


def read_frame(
    given: Table,
    columns: Columns,
    *,
    layout: Layout | None = None,
    fill: Fill = "error",
    after: Mapping[SeriesId, SeriesRows] | None = None,
) -> Panel:
    """Return the rows of each series by its id; all that is wrong with them is told at once.

    Args:
        given: a frame, long or wide; a Series, an array (rows, series), a dictionary or list of series.
        columns: what its columns are called.
        layout: the one to insist on; default: what the frame looks like.
        fill: what to do about missing values and rows.
        after: what is known already of each series, at least the last rows: new ones must follow on.
    """
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    frame = _as_frame(pandas, given, columns)
    if not isinstance(frame, pandas.DataFrame):
        raise DataError(
            f"expected a pandas DataFrame, long ({columns.series}, {columns.time}, {columns.value}) or wide, "
            f"a Series, an array, or a dictionary or list of series; got {type(frame).__name__}."
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
    for name in columns.covariates:
        if name not in frame.columns:
            raise DataError(
                f"no column {name!r}, which covariates= names; there are {_listed(frame.columns)}."
            )
    times, time_zone = read_times(frame[columns.time], columns)
    reader = _Reader(frame, times, columns, fill, time_zone, after or {})
    if not is_long:
        _require_names(frame, columns)
        _refuse_several(frame, times, columns)
        everything = np.arange(len(frame))
        for name in frame.columns:
            if name != columns.time and name not in columns.covariates:
                reader.read(name, everything, name, f"column {name!r}")
        reader.raise_faults()
        return Panel(layout="wide", series=reader.series, id_type="object", time_zone=time_zone)
    if columns.value not in frame.columns:
        raise DataError(
            f"no column {columns.value!r}; the frame has {_listed(frame.columns)}. Name the column of values "
            f"with target_column=..."
        )
    ids = frame[columns.series]
    missing = np.flatnonzero(ids.isna().to_numpy())
    if len(missing):
        raise DataError(
            f"row {missing[0]}: {columns.series!r} is missing ({len(missing)} such), so it is of no series. "
            f"Fill or drop these rows first."
        )
    unusable = next((name for name in ids if not isinstance(name, Hashable)), None)
    if unusable is not None:
        raise DataError(f"ids in {columns.series!r} must be text or numbers; got {unusable!r}.")
    order = pandas.Series(np.arange(len(frame))).groupby(ids.to_numpy(dtype=object), sort=True)
    for name, places in order:
        reader.read(name, places.to_numpy(), columns.value, f"series {name!r}")
    reader.raise_faults()
    return Panel(layout="long", series=reader.series, id_type=str(ids.dtype), time_zone=time_zone)


def write_frame(
    panel: Panel,
    columns: Columns,
    times: Mapping[SeriesId, NDArray[np.generic]],
    forecasts: Mapping[str, Mapping[SeriesId, NDArray[np.float64]]],
) -> "pandas.DataFrame":
    """Return forecasts as a frame of the layout, the types and the time zone that were fitted.

    In a wide frame, series whose rows end at different times leave empty what they do not forecast.

    Args:
        panel: what was fitted.
        columns: what its columns are called.
        times: of each series' forecast.
        forecasts: by what they are called beside the series ("" is the forecast itself, "-lo-80" a bound).
    """
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")

    def stamps(found: NDArray[np.generic]) -> object:
        column = pandas.Series(found)
        return (
            column if panel.time_zone is None else column.dt.tz_localize("UTC").dt.tz_convert(panel.time_zone)
        )

    if panel.layout == "wide":
        union = np.unique(np.concatenate(list(times.values())))
        # All columns at once: pandas warns of many inserts.
        found: dict[Hashable, object] = {columns.time: stamps(union)}
        for name, stamped in times.items():
            places = np.searchsorted(union, stamped.astype(union.dtype))
            for suffix, values in forecasts.items():
                column = np.full(len(union), np.nan)
                column[places] = values[name]
                found[f"{name}{suffix}" if suffix else name] = column
        return pandas.DataFrame(found)
    ids = [name for name, some in times.items() for _ in range(len(some))]
    filled: dict[Hashable, object] = {
        columns.series: pandas.Series(ids, dtype=panel.id_type),
        columns.time: stamps(np.concatenate(list(times.values()))),
    }
    for suffix, values in forecasts.items():
        filled[f"{FORECAST}{suffix}"] = np.concatenate([values[name] for name in times])
    return pandas.DataFrame(filled)


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


class _Reader:
    """Reads the series of one frame and keeps a list of what is wrong with them."""

    def __init__(
        self,
        frame: "pandas.DataFrame",
        times: NDArray[np.generic],
        columns: Columns,
        fill: Fill,
        time_zone: datetime.tzinfo | None,
        after: Mapping[SeriesId, SeriesRows],
    ) -> None:
        self.pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
        self.frame, self.times, self.columns = frame, times, columns
        self.fill, self.time_zone, self.after = fill, time_zone, after
        self.series: dict[SeriesId, SeriesRows] = {}
        self.faults: list[str] = []

    def read(self, name: SeriesId, rows: NDArray[np.int64], column: Hashable, title: str) -> None:
        """Read one series: the given rows of a column."""
        values = self._numbers(rows, column, title, may_miss=self.fill != "error")
        fill_value = find_fill_value(values)
        if fill_value is not None:
            self.faults.append(
                f"{title}, row {fill_value} ({self.columns.time} = "
                f"{show_time(self.times[rows][fill_value], self.time_zone)}): {values[fill_value]:g} is more "
                f"than {FILL_VALUE:g} times as large as the other values: a fill value? Make it missing "
                f"first: frame.replace({values[fill_value]:g}, float('nan'))."
            )
            return
        covariates = [self._numbers(rows, some, title, may_miss=False) for some in self.columns.covariates]
        order = np.argsort(self.times[rows], kind="stable")
        stamps, values = self.times[rows][order], values[order]
        given = np.stack(covariates, axis=1)[order] if covariates else None
        repeated = np.flatnonzero(stamps[1:] == stamps[:-1])
        if len(repeated):
            time = show_time(stamps[repeated[0]], self.time_zone)
            hint = ""
            if self.time_zone is None and _are_set_clocks(stamps[repeated], stamps):
                hint = " If the clocks were set back then, say where: " + SAY_WHERE.format(
                    f"{self.columns.time!r}", ", ambiguous='infer'"
                )
            self.faults.append(
                f"{title}: {self.columns.time} = {time} comes twice. Keep one row per time.{hint}"
            )
            return
        is_real = np.isfinite(values)
        if not is_real.any():
            if self.fill != "error":
                self.faults.append(f"{title}: no value at all.")
            return
        if self.fill != "error":
            kept = slice(int(is_real.argmax()), len(values) - int(is_real[::-1].argmax()))
            stamps, values, is_real = stamps[kept], values[kept], is_real[kept]
            given = given if given is None else given[kept]
        found = SeriesRows(times=stamps, values=values, covariates=given)
        known = self.after.get(name)
        if known is not None and len(known.times) and not stamps[0] > known.times[-1]:
            self.faults.append(
                f"series {name!r}: {show_time(stamps[0], self.time_zone)} is not after "
                f"{show_time(known.times[-1], self.time_zone)}, the last time known. Give only new rows."
            )
            return
        try:
            self.series[name] = without_gaps(name, found, known, self.fill, time_zone=self.time_zone)
        except DataError as error:
            self.faults.append(str(error))

    def raise_faults(self) -> None:
        """Report everything that was wrong, a line each."""
        if self.faults:
            rest = (
                f"\n... and {len(self.faults) - MOST_FAULTS} more" if len(self.faults) > MOST_FAULTS else ""
            )
            raise DataError("\n".join(self.faults[:MOST_FAULTS]) + rest)

    def _numbers(
        self, rows: NDArray[np.int64], column: Hashable, title: str, *, may_miss: bool
    ) -> NDArray[np.float64]:
        values = self.frame[column].iloc[rows]
        if self.pandas.api.types.is_complex_dtype(values):
            self.faults.append(f"{title}: expected real numbers; got {values.dtype}.")
            return np.zeros(len(values))
        numbers = np.asarray(self.pandas.to_numeric(values, errors="coerce"), dtype=np.float64)
        is_wrong = ~np.isfinite(numbers)
        if may_miss:
            is_wrong &= ~values.isna().to_numpy()
        wrong = np.flatnonzero(is_wrong)
        if len(wrong):
            row = int(wrong[0])
            where = f", {column!r}" if column in self.columns.covariates else ""
            cure = "Fill or drop these rows first, or let fill='interpolate' or fill='seasonal' do it."
            if isinstance(values.iloc[row], str):
                cure = "Make numbers of text first: pandas.to_numeric, or pandas.get_dummies for names."
                if re.fullmatch(r"\s*[-+]?[\d.]*,\d+\s*", values.iloc[row]):
                    cure = "Read the comma as a point: pandas.read_csv(..., decimal=',')."
            self.faults.append(
                f"{title}{where}, row {row} ({self.columns.time} = "
                f"{show_time(self.times[rows][row], self.time_zone)}): expected a finite number; got "
                f"{values.iloc[row]!s} ({len(wrong)} such). {cure}"
            )
        return numbers


def require_regular(
    name: SeriesId, times: NDArray[np.generic], *, time_zone: datetime.tzinfo | None = None
) -> None:
    """Raise if a series has gaps: times much farther apart, or nearer, than usual; days of rest are none."""
    gaps, usual = np.diff(times.astype(np.int64)), usual_step(times)
    wrong = np.flatnonzero((gaps > 1.5 * usual) | (gaps < 0.5 * usual))
    if len(wrong) and not (times.dtype.kind == "M" and is_regular(cast("Dates", times), time_zone=time_zone)):
        row = int(wrong[0])
        hint = ""
        if time_zone is None and _are_set_clocks(times[wrong] + (times[1] - times[0]), times):
            hint = " If the clocks were set forward then, say where: " + SAY_WHERE.format("...", "")
        raise DataError(
            f"series {name!r} has {len(wrong)} gap(s), the first from {show_time(times[row], time_zone)} to "
            f"{show_time(times[row + 1], time_zone)}. Fill it, or let fill='interpolate' or fill='seasonal' "
            f"do it.{hint}"
        )


def _are_set_clocks(moments: NDArray[np.generic], times: NDArray[np.generic]) -> bool:
    """Tell whether all these are early on Sundays, when clocks are set, in a series of hours or less."""
    if times.dtype.kind != "M" or usual_step(times.astype("datetime64[s]")) > SECONDS_OF_AN_HOUR:
        return False
    hours = moments.astype("datetime64[h]").astype(np.int64)
    is_sunday = (hours // 24 + 4) % 7 == 0  # 1970 began on a Thursday
    return bool((is_sunday & (hours % 24 <= LATEST_CHANGE)).all())


def without_gaps(
    name: SeriesId,
    rows: SeriesRows,
    known: SeriesRows | None,
    fill: Fill,
    *,
    time_zone: datetime.tzinfo | None = None,
) -> SeriesRows:
    """Return new rows that follow on those known: gaps are filled, or refused where `fill` is "error"."""
    whole = rows if known is None else _join(known, rows)
    if fill == "error":
        require_regular(name, whole.times, time_zone=time_zone)
        return rows
    filled = fill_gaps(name, whole, fill, time_zone=time_zone)
    first = 0 if known is None else int(np.searchsorted(filled.times, known.times[-1], "right"))
    return SeriesRows(
        times=filled.times[first:],
        values=filled.values[first:],
        covariates=None if filled.covariates is None else filled.covariates[first:],
    )


def find_fill_value(values: NDArray[np.float64]) -> int | None:
    """Return the row of a value that is too large to be an observation among the others; None: there is none.

    >>> find_fill_value(np.array([3.0, 4.0, 9.97e36, 5.0]))
    2
    """
    finite = values[np.isfinite(values)]
    if len(finite) < 3:
        return None
    with np.errstate(over="ignore"):
        sizes = np.sort(np.abs(finite))
        usual = sizes[int(0.9 * (len(sizes) - 1))] or next((size for size in sizes if size), 0.0)
        usual = sizes[len(sizes) // 2] if usual > FILL_VALUE * sizes[len(sizes) // 2] > 0 else usual
        wrong = np.flatnonzero(np.abs(values) > FILL_VALUE * usual)
    return int(wrong[0]) if len(wrong) else None


def fill_gaps(
    name: SeriesId, rows: SeriesRows, fill: Fill, *, time_zone: datetime.tzinfo | None = None
) -> SeriesRows:
    """Return a row for every step: missing values between their neighbours, or as a season before.

    Covariates of a missing row are those of the row before it.
    """
    times = rows.times
    if len(times) < 3:
        return rows
    if times.dtype.kind == "M":
        every = every_date(cast("Dates", times), time_zone=time_zone)
    else:
        every = np.arange(int(times[0]), int(times[-1]) + 1, usual_step(times)).astype(times.dtype)
    places = np.searchsorted(every, times)
    is_off = (places >= len(every)) | (every[np.minimum(places, len(every) - 1)] != times)
    if is_off.any():
        row = int(np.flatnonzero(is_off)[0])
        raise DataError(
            f"series {name!r}: {show_time(times[row], time_zone)} is between two steps of the others, "
            f"{int(is_off.sum())} such. Bring the times onto one step: frame.resample(...)."
        )
    values = np.full(len(every), np.nan)
    values[places] = rows.values
    season = _season_rows(every) if fill == "seasonal" else 0
    if season:
        for row in np.flatnonzero(np.isnan(values)):
            if row >= season:
                values[row] = values[row - season]
    is_real = np.isfinite(values)
    values = np.interp(np.arange(len(every)), np.flatnonzero(is_real), values[is_real])
    covariates = None
    if rows.covariates is not None:
        covariates = rows.covariates[np.maximum(np.searchsorted(times, every, side="right") - 1, 0)]
    return SeriesRows(times=every, values=values, covariates=covariates)


def _season_rows(times: NDArray[np.generic]) -> int:
    if times.dtype.kind != "M":
        return 0
    dates = cast("Dates", times)
    clock, seconds = find_clock(dates)
    seasons = season_rows(clock, seconds, find_slots(dates, clock, seconds))
    return next(iter(seasons.values()), 0)


def _join(known: SeriesRows, new: SeriesRows) -> SeriesRows:
    covariates = None
    if known.covariates is not None and new.covariates is not None:
        covariates = np.concatenate([known.covariates, new.covariates])
    return SeriesRows(
        times=np.concatenate([known.times, new.times]),
        values=np.concatenate([known.values, new.values]),
        covariates=covariates,
    )


def join_series(
    given: Mapping[Any, Any] | Sequence[Any] | NDArray[np.generic],
    columns: Columns,
    *,
    times: "Callable[[SeriesId, int], pandas.Series | NDArray[np.generic]] | None" = None,
) -> "pandas.DataFrame":
    """Return series of any lengths as a long frame; a list numbers them.

    Args:
        given: arrays, lists or Series of pandas; those with dates as their index keep them.
        columns: what the columns are to be called.
        times: of a series without dates, by its name and length; default: counted from 0.
    """
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    parts = []
    refuse_masked(list(given.values()) if isinstance(given, Mapping) else list(given), name="series")
    for name, series in given.items() if isinstance(given, Mapping) else enumerate(given):
        if np.ndim(series) != 1 or not len(series):
            raise DataError(
                f"series {name!r}: expected numbers along one axis; got {type(series).__name__} of shape "
                f"{np.shape(series)}. A dictionary or list holds one array, list or Series for each series."
            )
        count = len(series)
        stamps = np.arange(count) if times is None else times(name, count)
        if isinstance(getattr(series, "index", None), pandas.DatetimeIndex | pandas.PeriodIndex):
            stamps = series.index
        parts.append(
            pandas.DataFrame(
                {columns.series: [name] * count, columns.time: stamps, columns.value: np.asarray(series)}
            )
        )
    if not parts:
        raise DataError("there are no series.")
    return pandas.concat(parts, ignore_index=True)


def _as_frame(pandas: Any, given: Any, columns: Columns) -> Any:  # Any: pandas has no types
    """Turn what is no frame into one; periods into the dates that they begin with."""
    if isinstance(given, Mapping):
        is_table = columns.time in given and np.ndim(given[columns.time]) == 1
        given = pandas.DataFrame(given) if is_table else join_series(given, columns)
    elif isinstance(given, list | tuple) and len(given):
        given = join_series(given, columns) if np.ndim(given[0]) else np.asarray(given)
    if isinstance(given, np.ndarray) and given.ndim in (1, 2) and given.dtype.kind in "biufc":
        refuse_masked(given, name="the array")
        table = given[:, None] if given.ndim == 1 else given
        names = [columns.value] if given.ndim == 1 else list(range(table.shape[1]))
        given = pandas.DataFrame(table, columns=names)
        given.insert(0, columns.time, np.arange(len(table)))
    if isinstance(given, pandas.Series):
        given = given.to_frame(columns.value if given.name is None else given.name)
        if isinstance(given.index, pandas.RangeIndex):
            given = given.rename_axis(index=columns.time).reset_index()
    if isinstance(given, pandas.DataFrame):
        if isinstance(given.index, pandas.PeriodIndex):
            given = given.set_axis(given.index.to_timestamp(), axis=0)
        is_there = list(given.columns).count(columns.time) == 1
        if is_there and isinstance(given[columns.time].dtype, pandas.PeriodDtype):
            given = given.assign(**{str(columns.time): given[columns.time].dt.to_timestamp()})
    return given


def _refuse_several(frame: "pandas.DataFrame", times: NDArray[np.generic], columns: Columns) -> None:
    """Raise if a column tells rows of equal times apart: the frame is long, and the column has its ids."""
    if len(np.unique(times)) == len(times):
        return
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    for name in frame.columns:
        if name == columns.time or pandas.api.types.is_float_dtype(frame[name]):
            continue
        if not all(isinstance(one, Hashable) for one in frame[name]):
            continue
        pairs = pandas.DataFrame({"time": times, "id": frame[name].to_numpy()})
        if not pairs.duplicated().any() and frame[name].duplicated().any():
            others = [other for other in frame.columns if other not in (name, columns.time)]
            value = f", target_column={others[0]!r}" if len(others) == 1 else ", target_column=..."
            raise DataError(
                f"{columns.time} comes more than once, with several {name!r}: if these are several series, "
                f"name the columns, id_column={name!r}{'' if columns.value in others else value}."
            )


def _require_names(frame: "pandas.DataFrame", columns: Columns) -> None:
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    if all(name == columns.time or name in columns.covariates for name in frame.columns):
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


def read_times(
    times: "pandas.Series", columns: Columns
) -> tuple[NDArray[np.generic], datetime.tzinfo | None]:
    """Return whole numbers, or dates in UTC and the time zone that they came in."""
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    kind = pandas.api.types.infer_dtype(times, skipna=True)
    if kind in ("integer", "floating", "mixed-integer", "mixed-integer-float", "boolean", "decimal"):
        numbers = np.asarray(pandas.to_numeric(times, errors="coerce"), dtype=np.float64)
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers == np.round(numbers))) | (kind == "boolean"))
        _refuse_times(times, wrong, columns)
        whole = np.asarray(times, dtype=np.int64)
        form = look_like_dates(whole)
        if form:
            raise DataError(
                f"{columns.time} holds whole numbers such as {whole[0]}, which would be counted, gaps at the "
                f"ends of months and all. Make dates of them: pandas.to_datetime(frame[{columns.time!r}], "
                f"format={form!r})."
            )
        return whole, None
    if kind in ("timedelta", "timedelta64", "time"):
        raise DataError(
            f"{columns.time} must hold dates or whole numbers; got {times.iloc[0]!r}. Add the day that they "
            f"are counted from, or count steps: .dt.total_seconds()."
        )
    times = as_iso(
        times,
        where=str(columns.time),
        cure=f"Say which: pandas.to_datetime(frame[{columns.time!r}], dayfirst=True), or False.",
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
        given = times.iloc[int(wrong[0])]
        hint = (
            f" If it is one, say how it is written: pandas.to_datetime(frame[{columns.time!r}], format=...)."
        )
        raise DataError(
            f"row {wrong[0]}: {columns.time} must be a date or a whole number; got {given!r}."
            + (hint if isinstance(given, str) else "")
        )


def _listed(names: Sequence[object]) -> str:
    texts = [repr(str(name)) for name in names]
    return ", ".join(texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")
