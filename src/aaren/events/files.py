"""Event sequences in files: our flat `.npz` layout, tables of events (CSV, Parquet) and EasyTPP's JSON.

npz     arrays `times` float64 and `offsets` int (both required), `marks` int from 0, `split` int per sequence
        (0 train, 1 validation, 2 test), a scalar `t_max` (observed over [0, t_max]) or `observed_from` and
        `observed_until` per sequence, `num_marks`, `mark_names`, `unit`
table   one row per event with its sequence, its time and, if there is one, its mark; rows of different
        sequences may be mixed, but within a sequence time must increase down the file
JSON    one object per sequence with `time_since_start` and `type_event`, in a list or one per line;
        `dim_process` is the number of kinds

An error names its place in the file: a line (of a CSV, whose header is line 1), a row (of a Parquet
table, from 0) or a record. Only what the reader was allowed to repair is repaired.
"""

import io
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from aaren.datasets.dates import is_moment
from aaren.datasets.numbers import LARGEST_WHOLE, Integers, offsets_from_lengths, reals, wholes
from aaren.errors import DataError, require_extra
from aaren.events.sequences import MAX_MARKS, EventSequences, Times, first_fault
from aaren.files import npz
from aaren.files.archive import parsing, read_bytes, refuse_pickle, require_size

Column: TypeAlias = NDArray[np.object_]  # (rows,) what stands in the file: text in a CSV, values in Parquet
MARK = "mark"
_PURPOSE = "reading a table of events"


@dataclass(frozen=True, kw_only=True, slots=True)
class Repairs:
    """What may be repaired while reading; every other fault raises."""

    sort: bool = False  # put the events of a sequence in the order of time
    drop_duplicates: bool = False  # of events of one sequence at the same time, keep the first
    drop_single: bool = False  # leave out sequences of one event, which have no gap to learn from


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """What the columns are called."""

    sequence: str = "sequence"  # any values; sequences are numbered in the order of their first rows
    time: str = "time"  # numbers, or dates, which become seconds since the first
    mark: str | None = MARK  # whole numbers from 0, or names; may be absent; None: not read


def read(
    path: str | Path,
    *,
    columns: Columns | None = None,
    repairs: Repairs | None = None,
    num_marks: int | None = None,
    mark_names: tuple[str, ...] = (),
    unit: str = "",
) -> EventSequences:
    """Read a user's events from `.csv`, `.parquet`, `.json`/`.jsonl` (EasyTPP's record) or our `.npz` layout.

    Args:
        path: The file; tables and records may lie behind `.gz` or `.xz`.
        columns: What a table's columns are called.
        repairs: What may be repaired; by default every fault raises.
        num_marks: Number of kinds, when the file may not show them all.
        mark_names: Names of the kinds of a model at hand, so that new data gets the same numbers.
        unit: The unit of the times, for display and records.
    """
    path = Path(path)
    refuse_pickle(path)
    kind = next((suffix for suffix in reversed(path.suffixes) if suffix not in (".gz", ".xz")), "")
    if kind == ".npz":
        return read_npz(path, unit=unit)
    if kind in (".csv", ".parquet"):
        return read_table(
            path,
            columns=columns or Columns(),
            repairs=repairs or Repairs(),
            num_marks=num_marks,
            mark_names=mark_names,
            unit=unit,
        )
    if kind in (".json", ".jsonl"):
        return read_records(path, repairs=repairs or Repairs(), unit=unit)
    raise DataError(f"{path}: expected .csv, .parquet, .json, .jsonl or .npz; got {kind or 'no suffix'!r}.")


def read_npz(path: Path, *, name: str = "", unit: str = "") -> EventSequences:
    """Read the `.npz` layout, plain or behind `.gz` or `.xz`."""
    arrays = npz.load(path, required=("times", "offsets"))
    offsets = wholes(arrays["offsets"], name=f"{path}: offsets")
    marks = None
    if "marks" in arrays:
        marks = wholes(arrays["marks"], name=f"{path}: marks", least=-LARGEST_WHOLE)
    begin, end = (
        reals(arrays[key], name=f"{path}: {key}") if key in arrays else None
        for key in ("observed_from", "observed_until")
    )
    if "t_max" in arrays:
        until = float(reals(_single(path, arrays, "t_max"), name=f"{path}: t_max"))
        begin, end = np.zeros(max(0, offsets.size - 1)), np.full(max(0, offsets.size - 1), until)
    num_marks = 1 if marks is None or not marks.size else max(1, int(marks.max()) + 1)
    if "num_marks" in arrays:
        num_marks = int(wholes(_single(path, arrays, "num_marks"), name=f"{path}: num_marks", least=1))
    return EventSequences(
        times=reals(arrays["times"], name=f"{path}: times"),
        offsets=offsets,
        marks=marks,
        num_marks=num_marks,
        mark_names=_texts(path, arrays["mark_names"]) if "mark_names" in arrays else (),
        unit=unit or (str(_single(path, arrays, "unit")) if "unit" in arrays else "time units"),
        observed_from=begin,
        observed_until=end,
        split=wholes(arrays["split"], name=f"{path}: split", most=2) if "split" in arrays else None,
        name=name or str(path),
    )


def write_npz(path: Path, events: EventSequences) -> Path:
    """Write the `.npz` layout, whole or not at all."""
    arrays: npz.Arrays = {
        "times": events.times,
        "offsets": events.offsets,
        "unit": np.asarray(events.unit),
        "num_marks": np.asarray(events.num_marks),
    }
    if events.marks is not None:
        arrays["marks"] = events.marks.astype(np.int32)
    if events.mark_names:
        arrays["mark_names"] = np.asarray(events.mark_names)
    if events.split is not None:
        arrays["split"] = events.split.astype(np.int8)
    if events.observed_from is not None:
        arrays["observed_from"] = events.observed_from
    if events.observed_until is not None:
        arrays["observed_until"] = events.observed_until
    return npz.save(path, arrays)


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
    place = Location(path=path, is_text=".parquet" not in path.suffixes)
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
    times, origin = _times(table[columns.time], columns.time, place)
    marks = None
    if columns.mark not in (None, MARK, *table):  # under its usual name it may be absent
        raise DataError(f"{path}: no column {columns.mark!r} for marks; it has {', '.join(table)}.")
    if columns.mark is not None and columns.mark in table:
        marks, mark_names = _marks(table[columns.mark], columns.mark, mark_names, place)
    events = group(
        LooseEvents(sequence, times, marks, names),
        repairs,
        path=str(path),
        where=place.say,
        num_marks=num_marks,
        mark_names=mark_names,
        unit=unit or ("seconds" if origin else "time units"),
    )
    return replace(events, origin=origin)


def read_records(path: Path, *, repairs: Repairs, unit: str = "") -> EventSequences:
    """Read EasyTPP's JSON or JSON-lines file, plain or behind .gz or .xz."""
    times: list[list[float]] = []
    marks: list[list[float]] = []
    num_marks = 1
    for label, record in _records(path):
        record_times = _numbers(record, "time_since_start", label)
        record_marks = _numbers(record, "type_event", label)
        if len(record_times) != len(record_marks):
            raise DataError(f"{label}: {len(record_times)} times but {len(record_marks)} marks.")
        kinds = record.get("dim_process", 1)
        if not isinstance(kinds, int) or not 1 <= kinds <= MAX_MARKS:
            raise DataError(
                f"{label}: 'dim_process' must be a whole number of kinds, 1 to {MAX_MARKS:,}; got "
                f"{str(kinds)[:80] if not isinstance(kinds, int) else 'another one'}."
            )
        num_marks = max(num_marks, kinds)
        if record_times:
            times.append(record_times)
            marks.append(record_marks)
    if not times:
        raise DataError(
            f"{path}: no record holds an event. Expected EasyTPP's JSON: one object per sequence."
        )
    offsets = offsets_from_lengths([len(item) for item in times])
    flat_marks = np.concatenate([np.asarray(item, dtype=np.float64) for item in marks])
    is_whole = np.isfinite(flat_marks) & (flat_marks == np.floor(flat_marks)) & (flat_marks < LARGEST_WHOLE)
    for event in np.flatnonzero(~is_whole)[:1]:
        raise DataError(
            f"{_place(path, offsets, int(event))}: expected a whole mark; got {flat_marks[event]}."
        )
    loose = LooseEvents(
        sequence=np.repeat(np.arange(len(times)), np.diff(offsets)),
        times=np.concatenate([np.asarray(item, dtype=np.float64) for item in times]),
        marks=flat_marks.astype(np.int64),
        names=[str(index) for index in range(len(times))],
    )
    return group(
        loose,
        repairs,
        path=str(path),
        where=lambda event: _place(path, offsets, event),
        num_marks=num_marks,
        unit=unit or "time units",
    )


class LooseEvents(NamedTuple):
    """Events in the order of a file; those of different sequences may be mixed."""

    sequence: Integers  # (events,) numbered from 0
    times: Times  # (events,)
    marks: Integers | None  # (events,)
    names: list[str]  # what the file calls the sequences

    def take(self, events: Integers) -> "LooseEvents":
        """Keep these events, in the order given."""
        marks = None if self.marks is None else self.marks[events]
        return LooseEvents(self.sequence[events], self.times[events], marks, self.names)


def group(
    loose: LooseEvents,
    repairs: Repairs,
    *,
    path: str,
    where: Callable[[int], str],
    num_marks: int | None = None,
    mark_names: tuple[str, ...] = (),
    unit: str = "time units",
) -> EventSequences:
    """Gather the events of each sequence, repair and check; `where` describes an event of the file."""
    keys = (loose.times, loose.sequence) if repairs.sort else (loose.sequence,)
    source = np.lexsort(keys)  # a stable sort: without `sort`, events stay in the file's order
    source = source[_is_kept(loose.take(source), repairs)]
    if not len(source):
        raise DataError(f"{path}: every sequence has one event only, so there is no gap to learn from.")
    events = loose.take(source)
    lengths = np.unique(events.sequence, return_counts=True)[1]
    offsets = offsets_from_lengths(lengths)
    counted = 1 if events.marks is None else int(events.marks.max()) + 1
    kinds = num_marks or len(mark_names) or max(counted, 1)
    fault = first_fault(events.times, offsets, events.marks, kinds)
    if fault is not None:
        raise DataError(f"{where(int(source[fault.event]))}: {fault.problem}")
    for first in offsets[:-1][lengths == 1][:1]:
        raise DataError(
            f"{where(int(source[first]))}: sequence {events.names[events.sequence[first]]!r} has one event, "
            "so no gap to learn from. Leave such sequences out with drop_single=True."
        )
    return EventSequences(
        times=events.times,
        offsets=offsets,
        marks=events.marks,
        num_marks=kinds,
        mark_names=mark_names,
        unit=unit,
        sequence_names=tuple(events.names[number] for number in np.unique(events.sequence)),
        name=path,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """Turns a row of a table into words: a line of a text file, a row of a binary one."""

    path: Path
    is_text: bool

    def say(self, row: int) -> str:
        """Name the row."""
        return f"{self.path}, line {row + 2}" if self.is_text else f"{self.path}, row {row}"


def _is_kept(events: LooseEvents, repairs: Repairs) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mark the events, grouped by sequence, that the repairs leave in place."""
    keep = np.ones(len(events.times), dtype=bool)
    if repairs.drop_duplicates:
        is_same = (events.times[1:] == events.times[:-1]) & (events.sequence[1:] == events.sequence[:-1])
        keep[1:] = ~is_same
    if repairs.drop_single:
        left = np.bincount(events.sequence[keep], minlength=len(events.names))
        keep &= left[events.sequence] > 1
    return keep


def _place(path: Path, offsets: Integers, event: int) -> str:
    sequence = int(np.searchsorted(offsets, event, side="right")) - 1
    return f"{path}, record {sequence}, event {event - int(offsets[sequence])}"


def _records(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield every record with the words for its place."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a JSON file ({error}).") from error
    if not text.strip():
        raise DataError(f"{path}: the file is empty. Expected EasyTPP's JSON: one object per sequence.")
    if text.lstrip().startswith("["):
        found = _parse(text, str(path), 1)
        items = enumerate(found) if isinstance(found, list) else enumerate([found])
        labelled = ((f"{path}, record {number}", item) for number, item in items)
    else:
        lines = ((number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip())
        labelled = ((f"{path}, line {number}", _parse(line, str(path), number)) for number, line in lines)
    for label, item in labelled:
        if not isinstance(item, dict):
            raise DataError(f"{label}: expected an object with time_since_start and type_event.")
        yield label, item


def _parse(text: str, path: str, first_line: int) -> object:
    with parsing(path, "a JSON record of events"):  # nested too deep, numbers of thousands of digits
        try:
            parsed: object = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path}, line {error.lineno + first_line - 1}: not valid JSON ({error.msg})."
            ) from error
    return parsed


def _numbers(record: dict[str, object], key: str, label: str) -> list[float]:
    if key not in record:
        raise DataError(f"{label}: no {key!r}; it has {', '.join(sorted(record)) or 'nothing'}.")
    values = record[key]
    if not _is_numbers(values):
        raise DataError(f"{label}: {key!r} must be a list of numbers.")
    return [_number(value) for value in values]


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond every float
        return math.inf


def _is_numbers(values: object) -> TypeGuard[list[float]]:
    return isinstance(values, list) and all(
        isinstance(v, (int, float)) and not isinstance(v, bool) for v in values
    )


def _read_csv(path: Path) -> dict[str, Column]:
    pandas = require_extra("pandas", extra="data", purpose=_PURPOSE)
    content = io.BytesIO(read_bytes(path))
    with parsing(path, "a CSV file", cure="Its first line should name the columns."):
        try:
            # Text everywhere and blank lines kept: a row's number gives its line, and a fault shows its text.
            frame = pandas.read_csv(content, dtype=str, keep_default_na=False, skip_blank_lines=False)
            content.seek(0)  # pandas gives a second column of one name another one
            names = pandas.read_csv(content, dtype=str, keep_default_na=False, header=None, nrows=1).iloc[0]
        except pandas.errors.EmptyDataError:
            raise DataError(f"{path}: the file is empty. Its first line should name the columns.") from None
    for name in names[(names != "") & names.duplicated()][:1]:
        raise DataError(f"{path}: the column {name!r} is there twice. Give every column a name of its own.")
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


def _sequences(column: Column, name: str, place: Location) -> tuple[Integers, list[str]]:
    pandas = require_extra("pandas", extra="data", purpose=_PURPOSE)
    _require_values(column, name, place, "every event belongs to a sequence")
    codes, labels = pandas.factorize(column)
    return codes.astype(np.int64), [str(label) for label in labels]


def _times(column: Column, name: str, place: Location) -> tuple[Times, str]:
    """Return numbers, and the date that they are counted from, if they were dates."""
    pandas = require_extra("pandas", extra="data", purpose=_PURPOSE)
    read_dates = partial(pandas.to_datetime, format="ISO8601", utc=True, errors="coerce")
    numbers = np.full(len(column), np.nan)
    is_date = isinstance(column[0], pandas.Timestamp)
    is_wrong = [isinstance(value, bool) or is_moment(value) for value in column]  # pandas reads both as times
    for row in np.flatnonzero(is_wrong)[:1]:
        raise DataError(
            f"{place.say(row)}: expected a date or a number in column {name!r}; got {column[row]!r}."
        )
    if not is_date:
        numbers = _column_numbers(column, name, place)
        is_date = bool(np.isnan(numbers[0])) and not pandas.isna(read_dates(column[:1])[0])
    origin = ""
    if is_date:
        dates = pandas.Series(read_dates(column))
        numbers = (dates - dates.min()).dt.total_seconds().to_numpy(dtype=np.float64)
        has_zone = pandas.to_datetime(column[:1], format="ISO8601", errors="coerce")[0].tzinfo is not None
        first = dates.min() if has_zone else dates.min().tz_localize(None)
        origin = "" if pandas.isna(first) else first.isoformat()
    for row in np.flatnonzero(np.isnan(numbers))[:1]:
        wanted = "a date, as in the first row," if is_date else "a number"
        raise DataError(f"{place.say(row)}: expected {wanted} in column {name!r}; got {column[row]!r}.")
    return numbers, origin


def _marks(
    column: Column, name: str, names: tuple[str, ...], place: Location
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
    numbers = _column_numbers(column, name, place)
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


def _column_numbers(column: Column, name: str, place: Location) -> Times:
    """Return the column as numbers, NaN where there is none."""
    pandas = require_extra("pandas", extra="data", purpose=_PURPOSE)
    with parsing(place.path, f"a table with numbers in column {name!r}", cure="Give real numbers."):
        return np.asarray(pandas.to_numeric(column, errors="coerce"), dtype=np.float64)


def _require_values(column: Column, name: str, place: Location, reason: str) -> None:
    pandas = require_extra("pandas", extra="data", purpose=_PURPOSE)
    for row in np.flatnonzero(pandas.isna(column) | (column == ""))[:1]:
        raise DataError(f"{place.say(row)}: no value in column {name!r}; {reason}.")


def _single(path: Path, arrays: npz.Arrays, key: str) -> NDArray[np.generic]:
    if arrays[key].size != 1:
        raise DataError(f"{path}: {key} must be a single value; got {arrays[key].shape}.")
    return arrays[key].reshape(())


def _texts(path: Path, names: NDArray[np.generic]) -> tuple[str, ...]:
    if names.dtype.kind != "U" or names.ndim != 1:
        raise DataError(f"{path}: mark_names must be a list of texts; got {names.dtype} {names.shape}.")
    return tuple(names.tolist())
