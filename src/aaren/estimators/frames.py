"""Data frames into series and forecasts into data frames, long or wide. Knows nothing of models.

long   one row per series and time: `unique_id, ds, y`, in any order of rows
wide   one row per time: `ds` (or a DatetimeIndex) and one column of numbers per series

Times are dates or whole numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.errors import DataError, require_extra

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

Layout: TypeAlias = Literal["long", "wide"]
FORECAST = "AarenForecaster"  # the column of a long forecast, named after the model as the field does


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """What the columns of a frame are called."""

    series: str = "unique_id"
    time: str = "ds"
    value: str = "y"


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class SeriesRows:
    """Some rows of one series, in the order of their times."""

    times: NDArray[np.generic]  # (rows,) datetime64[s] or int64
    values: NDArray[np.float64]  # (rows,)


def read_frame(
    frame: "pandas.DataFrame", columns: Columns, *, layout: Layout | None = None
) -> tuple[Layout, dict[str, SeriesRows]]:
    """Return the layout and the rows of each series by its name.

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
    if not is_long:
        return "wide", _read_wide(frame, columns)
    if columns.value not in frame.columns:
        raise DataError(
            f"no column {columns.value!r}; the frame has {_listed(frame.columns)}. Name the column of values "
            f"with target_column=..."
        )
    grouped = frame.groupby(columns.series, sort=True)
    return "long", {
        str(name): _rows(rows[columns.time], rows[columns.value], f"series {str(name)!r}", columns)
        for name, rows in grouped
    }


def write_frame(
    layout: Layout,
    columns: Columns,
    times: Mapping[str, NDArray[np.generic]],
    forecasts: Mapping[str, NDArray[np.float64]],
) -> "pandas.DataFrame":
    """Return forecasts as a frame of the layout that was fitted."""
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    if layout == "wide":
        return pandas.DataFrame({columns.time: next(iter(times.values())), **forecasts})
    return pandas.DataFrame(
        {
            columns.series: np.repeat(list(times), [len(some) for some in times.values()]),
            columns.time: np.concatenate(list(times.values())),
            FORECAST: np.concatenate([forecasts[name] for name in times]),
        }
    )


def usual_step(times: NDArray[np.generic]) -> int:
    """Return the median distance of two neighbouring times, in seconds or units; 1 if there is none."""
    gaps = np.diff(times.astype(np.int64))
    return max(1, int(np.median(gaps))) if len(gaps) else 1


def require_regular(name: str, times: NDArray[np.generic]) -> None:
    """Raise if a series has gaps: times much farther apart, or nearer, than usual."""
    gaps, usual = np.diff(times.astype(np.int64)), usual_step(times)
    wrong = np.flatnonzero((gaps > 1.5 * usual) | (gaps < 0.5 * usual))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"series {name!r} has {len(wrong)} gap(s), the first from {times[row]} to {times[row + 1]}. Fill "
            f"it, or accept this with allow_irregular=True."
        )


def _read_wide(frame: "pandas.DataFrame", columns: Columns) -> dict[str, SeriesRows]:
    names = [name for name in frame.columns if name != columns.time]
    if not names:
        raise DataError(
            f"the frame has only the column {columns.time!r}; expected columns of numbers beside it."
        )
    return {
        str(name): _rows(frame[columns.time], frame[name], f"column {str(name)!r}", columns) for name in names
    }


def _rows(times: "pandas.Series", values: "pandas.Series", name: str, columns: Columns) -> SeriesRows:
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    stamps = _times(times, name, columns)
    numbers = np.asarray(pandas.to_numeric(values, errors="coerce"), dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{name}, row {row} ({columns.time} = {times.iloc[row]}): expected a finite number; got "
            f"{values.iloc[row]} ({len(wrong)} such). Fill or drop these rows first."
        )
    order = np.argsort(stamps, kind="stable")
    stamps, numbers = stamps[order], numbers[order]
    repeated = np.flatnonzero(stamps[1:] == stamps[:-1])
    if len(repeated):
        raise DataError(f"{name}: {columns.time} = {stamps[repeated[0]]} comes twice. Keep one row per time.")
    return SeriesRows(times=stamps, values=numbers)


def _times(times: "pandas.Series", name: str, columns: Columns) -> NDArray[np.generic]:
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    if pandas.api.types.is_integer_dtype(times.dtype):
        return np.asarray(times, dtype=np.int64)
    parsed = pandas.to_datetime(times, errors="coerce", utc=True)
    wrong = np.flatnonzero(parsed.isna().to_numpy())
    if len(wrong):
        raise DataError(
            f"{name}, row {wrong[0]}: {columns.time} must be a date or a whole number; got "
            f"{times.iloc[int(wrong[0])]!r}."
        )
    stamps: NDArray[np.generic] = parsed.dt.tz_localize(None).to_numpy().astype("datetime64[s]")
    return stamps


def _listed(names: Sequence[object]) -> str:
    texts = [repr(str(name)) for name in names]
    return ", ".join(texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")
