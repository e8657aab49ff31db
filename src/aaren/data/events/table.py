"""Events from a table: one row per event with its sequence, its time and, if there is one, its mark.

Rows of different sequences may be mixed; within a sequence time must increase down the file. A fault is told
with its line (of a CSV, whose header is line 1) or row (of a Parquet table, from 0). Knows no other format.
"""

import io
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.data.events.grouping import LooseEvents, Repairs, group
from aaren.data.events.sequences import EventSequences, Integers, Times
from aaren.data.files.packed import parsing, read_bytes, require_size
from aaren.data.numbers import LARGEST_WHOLE
from aaren.errors import DataError, require_extra

Column: TypeAlias = NDArray[np.object_]  # (rows,) what stands in the file: text in a CSV, values in Parquet

MARK = "mark"
_PURPOSE = "reading a table of events"


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """What the columns are called."""

    sequence: str = "sequence"  # any values; sequences are numbered in the order of their first rows
    time: str = "time"  # numbers, or dates, which become seconds since the first
    mark: str | None = MARK  # whole numbers from 0, or names; may be absent; None: not read


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Turns a row of a table into words: a line of a text file, a row of a binary one."""

    path: Path
    is_text: bool

    def say(self, row: int) -> str:
        """Name the row."""
        return f"{self.path}, line {row + 2}" if self.is_text else f"{self.path}, row {row}"


def read_table(
    path: Path,
    *,
    columns: Columns,
    repairs: Repairs,
    num_marks: int | None = None,
    mark_names: tuple[str, ...] = (),
    unit: str = "",
) -> EventSequences:
    """Read a CSV (plain, .gz or .xz) or Parquet table of events."""
    place = Place(path=path, is_text=".parquet" not in path.suffixes)
    table = _read_csv(path) if place.is_text else _read_parquet(path, columns)
    for column in (columns.sequence, columns.time):
        if column not in table:
            found = ", ".join(table)
            raise DataError(
                f"{path}: no column {column!r}; it has {found}. Name the columns with Columns(...). One long "
                "stream needs a column of sequences too: cut it by day or by session."
            )
    if not len(table[columns.time]):
        raise DataError(f"{path}: the table has no rows. Give one row per event.")
    sequence, names = _sequences(table[columns.sequence], columns.sequence, place)
    times, is_date = _times(table[columns.time], columns.time, place)
    marks = None
    if columns.mark not in (None, MARK, *table):  # under its usual name it may be absent
        raise DataError(f"{path}: no column {columns.mark!r} for marks; it has {', '.join(table)}.")
    if columns.mark is not None and columns.mark in table:
        marks, mark_names = _marks(table[columns.mark], columns.mark, mark_names, place)
    return group(
        LooseEvents(sequence, times, marks, names),
        repairs,
        path=str(path),
        where=place.say,
        num_marks=num_marks,
        mark_names=mark_names,
        unit=unit or ("seconds" if is_date else "time units"),
    )


def _read_csv(path: Path) -> dict[str, Column]:
    pandas = require_extra("pandas", extra="data", purpose=_PURPOSE)
    content = io.BytesIO(read_bytes(path))
    with parsing(path, "a CSV file", cure="Its first line should name the columns."):
        try:
            # Text everywhere and blank lines kept: a row's number gives its line, and a fault shows its text.
            frame = pandas.read_csv(content, dtype=str, keep_default_na=False, skip_blank_lines=False)
        except pandas.errors.EmptyDataError:
            raise DataError(f"{path}: the file is empty. Its first line should name the columns.") from None
    if not isinstance(frame.index, pandas.RangeIndex):
        raise DataError(f"{path}: its rows have more values than the first line names columns.")
    table = {str(name): frame[name].to_numpy(dtype=object, na_value="") for name in frame.columns}
    is_blank = np.logical_and.reduce([column == "" for column in table.values()])
    filled = np.flatnonzero(~is_blank)
    rows = filled[-1] + 1 if len(filled) else 0  # blank lines at the very end are harmless
    return {name: column[:rows] for name, column in table.items()}


def _read_parquet(path: Path, columns: Columns) -> dict[str, Column]:
    pandas = require_extra("pandas", extra="data", purpose=_PURPOSE)
    parquet = require_extra("pyarrow.parquet", extra="data", purpose=_PURPOSE)
    content = read_bytes(path)
    with parsing(path, "a whole Parquet file"):
        described = parquet.read_metadata(io.BytesIO(content))
        require_size(path, 8 * described.num_rows * described.num_columns, len(content))
        for field in described.schema.to_arrow_schema():
            if field.type.num_fields and field.name in (columns.sequence, columns.time, columns.mark):
                raise DataError(f"{path}: column {field.name!r} holds {field.type}; expected single values.")
        frame = pandas.read_parquet(io.BytesIO(content))
        return {str(name): frame[name].to_numpy(dtype=object, na_value=None) for name in frame.columns}


def _sequences(column: Column, name: str, place: Place) -> tuple[Integers, list[str]]:
    pandas = require_extra("pandas", extra="data", purpose=_PURPOSE)
    _require_values(column, name, place, "every event belongs to a sequence")
    codes, labels = pandas.factorize(column)
    return codes.astype(np.int64), [str(label) for label in labels]


def _times(column: Column, name: str, place: Place) -> tuple[Times, bool]:
    pandas = require_extra("pandas", extra="data", purpose=_PURPOSE)
    read_dates = partial(pandas.to_datetime, format="ISO8601", utc=True, errors="coerce")
    numbers = np.full(len(column), np.nan)
    is_date = isinstance(column[0], pandas.Timestamp)
    if not is_date:
        numbers = _numbers(column, name, place)
        is_date = bool(np.isnan(numbers[0])) and not pandas.isna(read_dates(column[:1])[0])
    if is_date:
        dates = pandas.Series(read_dates(column))
        numbers = (dates - dates.min()).dt.total_seconds().to_numpy(dtype=np.float64)
    for row in np.flatnonzero(np.isnan(numbers))[:1]:
        wanted = "a date, as in the first row," if is_date else "a number"
        raise DataError(f"{place.say(row)}: expected {wanted} in column {name!r}; got {column[row]!r}.")
    return numbers, is_date


def _marks(
    column: Column, name: str, names: tuple[str, ...], place: Place
) -> tuple[Integers, tuple[str, ...]]:
    """Number the marks: by the names given; as they are, if whole numbers; else by their sorted names."""
    pandas = require_extra("pandas", extra="data", purpose=_PURPOSE)
    _require_values(column, name, place, "give every event a mark, or leave the column out")
    if names:
        codes = pandas.Index(names).get_indexer(column.astype(str))
        for row in np.flatnonzero(codes < 0)[:1]:
            known = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
            raise DataError(f"{place.say(row)}: unknown mark {column[row]!r}. Known: {known}.")
        return codes.astype(np.int64), names
    numbers = _numbers(column, name, place)
    if np.isnan(numbers).all():
        codes, found = pandas.factorize(column.astype(str), sort=True)
        return codes.astype(np.int64), tuple(map(str, found))
    is_whole = (numbers == np.floor(numbers)) & (np.abs(numbers) < LARGEST_WHOLE)
    for row in np.flatnonzero(~is_whole)[:1]:
        raise DataError(
            f"{place.say(row)}: expected a whole number from 0 in column {name!r}, as in other rows; "
            f"got {column[row]!r}."
        )
    return numbers.astype(np.int64), ()


def _numbers(column: Column, name: str, place: Place) -> Times:
    """Return the column as numbers, NaN where there is none."""
    pandas = require_extra("pandas", extra="data", purpose=_PURPOSE)
    with parsing(place.path, f"a table with numbers in column {name!r}", cure="Give real numbers."):
        return np.asarray(pandas.to_numeric(column, errors="coerce"), dtype=np.float64)


def _require_values(column: Column, name: str, place: Place, reason: str) -> None:
    pandas = require_extra("pandas", extra="data", purpose=_PURPOSE)
    for row in np.flatnonzero(pandas.isna(column) | (column == ""))[:1]:
        raise DataError(f"{place.say(row)}: no value in column {name!r}; {reason}.")
