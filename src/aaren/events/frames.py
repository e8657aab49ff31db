"""Events from frames, dictionaries or lists into `EventSequences`, and back into dates.

A frame has one row per event, in any order: the column of its time (dates or numbers), and of its sequence
and its kind where there are several. Without a column of sequences all rows are one. Dates are counted in
seconds since the first day of the data, so that microseconds keep their digits; numbers stay as they are.
"""

import datetime
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from aaren.datasets.dates import as_iso, look_like_dates
from aaren.datasets.numbers import LARGEST, Integers, offsets_from_lengths
from aaren.errors import DataError, require_extra
from aaren.events.sequences import EventSequences, Times

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

Frame: TypeAlias = "pandas.DataFrame | Mapping[Hashable, object] | Sequence[object] | NDArray[np.generic]"
Kind: TypeAlias = Hashable
PURPOSE = "AarenEventForecaster"
SEQUENCE, TIME, KIND = "sequence", "time", "kind"
# Names that a column is guessed by, the likeliest first; capitals and spaces do not matter.
SEQUENCE_NAMES = (
    *("sequence", "sequence_id", "seq", "unique_id", "session", "session_id", "case", "case_id"),
    *("case:concept:name", "user", "user_id", "userid", "customer", "customer_id", "patient", "patient_id"),
    *("device", "device_id", "machine", "machine_id", "host", "id"),
)
TIME_NAMES = (
    "time",
    "timestamp",
    "ts",
    "ds",
    "date",
    "datetime",
    "time:timestamp",
    "when",
    "created_at",
    "t",
)
KIND_NAMES = (
    *("kind", "mark", "type", "event_type", "type_event", "event", "event_name", "activity", "action"),
    *("concept:name", "category", "label", "code"),
)
ROUND = 1e-3  # how far, of a resolution, times may lie from its multiples
FEW_GAPS = 20
FEWEST_OF_A_KIND = 5  # events on average, where a column of text is guessed to hold kinds
LARGEST_INTEGER = 2.0**62  # the difference of two such times is still an int64
IN_RANGE = "a finite time that float32, or its whole number int64, can hold"
FIRST_DATE, LAST_DATE = "1677-09-22", "2262-04-11"  # that int64 counts in nanoseconds since 1970
FINE = 1e-3  # a resolution below so much of the median gap does not matter


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """What the columns are called; None: there is none."""

    time: Hashable
    sequence: Hashable | None = None
    kind: Hashable | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """How times become numbers: seconds since an origin, or, without dates, the data's own unit since one."""

    is_date: bool
    origin: int | float = 0  # nanoseconds since 1970 in UTC; of numbers, the first
    zone: str | None = None
    unit: str = "us"  # of dates that are given back

    @property
    def time_unit(self) -> str:
        """Return the unit of all numbers, in words."""
        return "seconds" if self.is_date else "time units"

    def read(self, column: "pandas.Series", name: Hashable | None) -> Times:
        """Turn a column into numbers, (rows,) float64; without a name it is one time, not a column."""
        pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
        what, name = (f"{column.iloc[0]}" if name is None else f"column {name!r}"), name or TIME
        _refuse_no_times(column, name)
        if not self.is_date:
            numbers = pandas.to_numeric(column, errors="coerce")
            is_wrong = numbers.isna() | (column.dtype.kind in "mM")  # to_numeric would count nanoseconds
            _refuse_missing(column, is_wrong, name, "a number, as those that were fitted")
            values = np.asarray(numbers, dtype=np.float64)
            whole = numbers.dtype.kind in "iu"
            _refuse_missing(
                column, ~(np.abs(values) <= (LARGEST_INTEGER if whole else LARGEST)), name, IN_RANGE
            )
            if whole:
                return np.asarray(numbers.to_numpy() - np.int64(self.origin), dtype=np.float64)
            return values - float(self.origin)
        if column.dtype.kind in "iuf":
            raise DataError(f"{what} holds numbers, but the model was fitted on dates. Give dates.")
        dates = read_dates(column, name)
        if (dates.dt.tz is None) != (self.zone is None):
            given = "without a time zone" if dates.dt.tz is None else f"in {dates.dt.tz}"
            wanted = "without one" if self.zone is None else f"in {self.zone}"
            raise DataError(
                f"{what}: times {given}; the model was fitted on times {wanted}. Use "
                f"tz_localize({self.zone!r}) first."
            )
        return (_nanoseconds(dates, name) - np.int64(self.origin)) / 1e9

    def read_one(self, value: object) -> float:
        """Turn one time into a number."""
        if not self.is_date and _is_number(value) and abs(float(value)) <= LARGEST:
            return float(value) - float(self.origin)
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value.item()
        pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
        return float(self.read(pandas.Series([value]), None)[0])

    def write(self, numbers: Times) -> "pandas.Series":
        """Turn numbers into dates, or numbers as they were; a date that no calendar holds becomes NaT."""
        pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
        if not self.is_date:
            return pandas.Series(np.asarray(numbers, dtype=np.float64) + float(self.origin))
        ticks = 1e9 if self.unit == "ns" else 1e6
        moments = np.asarray(numbers, dtype=np.float64) * ticks
        origin = int(self.origin) if self.unit == "ns" else int(self.origin) // 1000
        is_held = np.abs(moments) < 2.0**62 - abs(origin)
        whole = np.where(is_held, np.rint(np.where(is_held, moments, 0.0)), 0.0).astype(np.int64) + origin
        dates = whole.astype(f"datetime64[{self.unit}]")
        dates[~is_held] = np.datetime64("NaT")
        column = pandas.Series(dates)
        return column if self.zone is None else column.dt.tz_localize("UTC").dt.tz_convert(self.zone)

    def duration(self, value: object) -> float:
        """Read a length of time: a number, or where there are dates a Timedelta or a text such as "7D"."""
        if _is_number(value):
            found = float(value)
        elif self.is_date:
            pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
            try:
                found = float(pandas.Timedelta(value).total_seconds())
            except (ValueError, TypeError, OverflowError) as error:
                raise DataError(f"{value!r} is no length of time ({error}). Give seconds or '7D'.") from error
        else:
            raise DataError(f"times are numbers here, and so are lengths of time; got {value!r}.")
        if not (math.isfinite(found) and found > 0.0):
            raise DataError(f"a length of time is positive and finite; got {value!r}.")
        return found


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Read:
    """Events as they were given, and in the order in which `EventSequences` has them."""

    frame: "pandas.DataFrame"
    columns: Columns
    clock: Clock
    kinds: tuple[Kind, ...]  # empty: there is only one
    names: tuple[Hashable, ...]  # of the sequences
    rows: Integers  # (events,) the frame's row of each event
    events: EventSequences


def as_frame(given: Frame) -> "pandas.DataFrame":
    """Return a frame; a dictionary or a list of sequences becomes one, with our names of columns.

    Each sequence is an array of times, or a pair (times, kinds). A dictionary of columns and a list of events
    (time, kind) are read too.
    """
    pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
    if isinstance(given, pandas.DataFrame):
        frame = given
        if isinstance(frame.columns, pandas.MultiIndex):
            raise DataError("columns of several levels are not read. Join them: frame.columns.map('/'.join).")
        if isinstance(frame.index, pandas.DatetimeIndex):
            frame = frame.rename_axis(index=frame.index.name or TIME).reset_index()
    elif isinstance(given, Mapping):
        frame = _of_columns(pandas, given) if _are_columns(given) else _of_sequences(pandas, given)
    elif isinstance(given, str | bytes):
        raise DataError(f"expected a frame of events; got the text {given[:80]!r}. Read files with pandas.")
    elif isinstance(given, np.ndarray | pandas.Series | pandas.DatetimeIndex) and given.ndim == 1:
        frame = pandas.DataFrame({TIME: given})
    elif isinstance(given, Sequence) and len(given):
        if _axes(given[0]) == 0:
            frame = pandas.DataFrame({TIME: given})
        elif all(_is_event(one) for one in given):
            frame = pandas.DataFrame(list(given), columns=[TIME, KIND])
        else:
            frame = _of_sequences(pandas, dict(enumerate(given)))
    else:
        raise DataError(
            f"expected a pandas DataFrame with one row per event, a dictionary {{name: times}} or "
            f"{{name: (times, kinds)}}, or a list of such; got {type(given).__name__}."
        )
    if not len(frame):
        raise DataError("there are no events: the frame has no rows.")
    for name in frame.columns[frame.columns.duplicated()][:1]:
        raise DataError(f"the column {name!r} is there twice. Give every column a name of its own.")
    return frame


def guess_columns(
    frame: "pandas.DataFrame", *, sequence: Hashable | None, time: Hashable | None, kind: Hashable | None
) -> tuple[Columns, str]:
    """Return the columns, those not given by their usual names or by type, and what was guessed."""
    pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
    for word, name in (("sequence", sequence), ("time", time), ("kind", kind)):
        if name is not None and name not in frame.columns:
            raise DataError(f"no column {name!r}, which {word}= names; there are {_listed(frame.columns)}.")
    names = [name for name in (sequence, time, kind) if name is not None]
    if len(set(names)) < len(names):
        raise DataError(f"sequence=, time= and kind= must name different columns; got {_listed(names)}.")
    taken = {name for name in (sequence, time, kind) if name is not None}
    guessed = []
    found_time = time
    if found_time is None:
        dated = [
            name
            for name in frame.columns
            if name not in taken and pandas.api.types.is_datetime64_any_dtype(frame[name])
        ]
        found_time = dated[0] if len(dated) == 1 else _find(frame, TIME_NAMES, taken)
        if found_time is None:
            raise DataError(
                f"which column holds the times? There are {_listed(frame.columns)}. Name it with time=..."
            )
        guessed.append(f"times in {found_time!r}")
        taken.add(found_time)
    found_sequence = sequence
    if sequence is None:
        found_sequence = _find(frame, SEQUENCE_NAMES, taken)
        if found_sequence is not None and _differs_in_every_row(frame[found_sequence]):
            found_sequence = None  # the number of a row or an event: no sequence would have a gap
        if found_sequence is None:
            found_sequence = _find_by_order(
                frame, found_time, taken | {kind} | {_find(frame, KIND_NAMES, taken)}
            )
        if found_sequence is not None:
            taken.add(found_sequence)
            guessed.append(f"sequences in {found_sequence!r}")
    found_kind = kind
    if kind is None:
        found_kind = _find(frame, KIND_NAMES, taken)
        others = [name for name in frame.columns if name not in taken]
        if found_kind is None and found_sequence is not None and len(others) == 1:
            found_kind = others[0] if _are_names(pandas, frame[others[0]]) else None
        if found_kind is not None:
            guessed.append(f"kinds in {found_kind!r}")
    none = [word for word, name in (("sequence", found_sequence), ("kind", found_kind)) if name is None]
    left = [name for name in frame.columns if name not in (found_sequence, found_time, found_kind)]
    message = ""
    is_plain = (found_sequence, found_time, found_kind) in ((SEQUENCE, TIME, KIND), (SEQUENCE, TIME, None))
    if guessed and (left or not is_plain):
        message = f"reading {', '.join(guessed)}"
        if none and left:
            message += (
                f"; no column of {' or '.join(f'{word}s' for word in none)} found among {_listed(left)}"
            )
        message += f" (set {', '.join(f'{word}=' for word in ('sequence', 'time', 'kind'))} to choose)"
    return Columns(time=found_time, sequence=found_sequence, kind=found_kind), message


def _find_by_order(frame: "pandas.DataFrame", time: Hashable, taken: set[Hashable | None]) -> Hashable | None:
    """Return the one column in whose groups times never go back, if they do in the frame as a whole."""
    if frame[time].dtype.kind not in "iufM" or frame[time].is_monotonic_increasing:
        return None
    found = [
        name
        for name in frame.columns
        if name not in taken
        and 1 < frame[name].nunique() <= len(frame) // FEWEST_OF_A_KIND
        and frame.groupby(name, dropna=False)[time].is_monotonic_increasing.all()
    ]
    return found[0] if len(found) == 1 else None


def _differs_in_every_row(column: "pandas.Series") -> bool:
    return len(column) > 1 and not _are_no_names(column).any() and column.nunique() == len(column)


def _are_names(pandas: ModuleType, column: "pandas.Series") -> bool:
    """Tell whether a column holds words that come again and again, as kinds of events do."""
    is_text = not pandas.api.types.is_numeric_dtype(column) or pandas.api.types.is_bool_dtype(column)
    is_date = pandas.api.types.is_datetime64_any_dtype(column)
    return bool(is_text and not is_date and column.nunique() * FEWEST_OF_A_KIND <= len(column))


def read_events(
    given: Frame,
    columns: Columns,
    *,
    clock: Clock | None = None,
    kinds: tuple[Kind, ...] | None = None,
    resolution: float | None = None,
) -> Read:
    """Read events.

    Args:
        given: a frame, or what `as_frame` makes one of.
        columns: what its columns are called.
        clock: of a fitted model; None: made for this data.
        kinds: of a fitted model; None: those that occur here.
        resolution: of a fitted model's clock; None: found in this data.
    """
    pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
    frame = as_frame(given)
    for word, name in (("sequence", columns.sequence), ("time", columns.time), ("kind", columns.kind)):
        if name is not None and name not in frame.columns:
            raise DataError(
                f"no column {name!r} for the {word} of each event, as in the fitted data; there are "
                f"{_listed(frame.columns)}."
            )
    if clock is None:
        clock = _make_clock(frame[columns.time], columns.time)
    times = clock.read(frame[columns.time], columns.time)
    if not (np.abs(times) <= LARGEST).all():
        row = int(np.flatnonzero(~(np.abs(times) <= LARGEST))[0])
        raise DataError(f"row {row}: the time is {frame[columns.time].iloc[row]!r}; times must be finite.")
    names: tuple[Hashable, ...] = ("all",)
    codes = np.zeros(len(frame), dtype=np.int64)
    if columns.sequence is not None:
        column = frame[columns.sequence]
        _refuse_missing(column, column.isna(), columns.sequence, "the name of its sequence")
        _refuse_missing(column, _are_no_names(column), columns.sequence, "a name, text or a number")
        found, labels = pandas.factorize(column)
        codes, names = found.astype(np.int64), tuple(_plain(label) for label in labels)
    marks, kinds = _read_kinds(frame, columns, kinds)
    order = np.lexsort((times, codes))  # stable: events at equal times stay in the order of the frame
    lengths = np.bincount(codes, minlength=len(names))
    offsets = offsets_from_lengths(lengths)
    times, marks = times[order], None if marks is None else marks[order]
    if resolution is None:
        resolution = find_resolution(times, offsets)
    gaps = np.diff(times, prepend=times[:1])
    if not resolution:
        gaps[offsets[:-1]] = 1.0
        for event in np.flatnonzero(gaps == 0.0)[:1]:
            raise DataError(
                f"row {order[event]}: two events of sequence {names[codes[order[event]]]!r} come at "
                f"{frame[columns.time].iloc[order[event]]}. The fitted times were all different, to any "
                f"number of digits: keep one of them, or add what tells them apart."
            )
    events = EventSequences(
        times=times,
        offsets=offsets,
        marks=marks,
        num_marks=max(1, len(kinds)),
        unit=clock.time_unit,
        resolution=resolution,
        name="the events",
    )
    return Read(
        frame=frame, columns=columns, clock=clock, kinds=kinds, names=names, rows=order, events=events
    )


def find_resolution(times: Times, offsets: Integers) -> float:
    """Return the step that all gaps are whole multiples of; 0.0: there is none that matters.

    Times are rounded in most logs: to seconds, or to days. It matters where gaps are not much longer, and
    where events come at equal times.

    >>> find_resolution(np.array([0.0, 2.0, 2.0, 5.0]), np.array([0, 4]))
    1.0
    >>> find_resolution(np.array([0.0, 0.7312, 2.1234567]), np.array([0, 3]))
    0.0
    """
    is_gap = np.ones(len(times), dtype=bool)
    is_gap[offsets[:-1]] = False
    gaps = np.diff(times, prepend=times[:1])[is_gap]
    positive = gaps[gaps > 0.0]
    if not len(positive):
        return 1.0 if len(gaps) else 0.0
    smallest, has_ties = float(positive.min()), len(positive) < len(gaps)
    if len(positive) < FEW_GAPS and not has_ties:
        return 0.0  # few numbers have a common measure by chance
    lowest = FINE * min(float(np.median(positive)), smallest if has_ties else math.inf)
    step = _common_measure(np.unique(positive), lowest)
    if step is None:
        return smallest if has_ties else 0.0
    count = positive / step
    is_whole = bool((np.abs(count - np.rint(count)) <= ROUND + 1e-9 * count).all())
    return step if is_whole else smallest if has_ties else 0.0


def _common_measure(lengths: Times, lowest: float) -> float | None:
    """Return what all lengths are multiples of, by Euclid's algorithm; None: it lies below `lowest`."""
    found = float(lengths[0])
    for length in lengths[1:].tolist():
        rest = abs(length - found * round(length / found))
        while rest > max(ROUND * found, 1e-9 * length):
            found, rest = rest, abs(found - rest * round(found / rest))
            if found < lowest:
                return None
    return found


def read_dates(column: "pandas.Series", name: Hashable) -> "pandas.Series":
    """Return dates, from dates or text; a time zone is kept, several become UTC."""
    pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
    if not pandas.api.types.is_datetime64_any_dtype(column):
        texts = as_iso(
            column,
            where=f"column {name!r}",
            cure=f"Say which: pandas.to_datetime(frame[{name!r}], dayfirst=True), or False.",
        )
        try:
            try:
                dates = pandas.to_datetime(texts, errors="coerce", format="ISO8601")
            except ValueError:  # zones are mixed
                dates = pandas.to_datetime(texts, errors="coerce", format="ISO8601", utc=True)
        except (ValueError, TypeError, OverflowError) as error:
            raise DataError(f"column {name!r}: dates cannot be read ({error}).") from error
    else:
        dates = column
    _refuse_missing(column, dates.isna(), name, "a date such as 2026-01-31 08:15:00")
    return dates


def find_zone(name: str | None) -> str | None:
    """Return the name of a time zone if pandas finds it again by that."""
    pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
    return None if name is None else str(pandas.Timestamp(0, tz=name).tz)


def _make_clock(column: "pandas.Series", name: Hashable) -> Clock:
    pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
    _refuse_no_times(column, name)
    if pandas.api.types.is_timedelta64_dtype(column):
        raise DataError(
            f"column {name!r} holds lengths of time, such as {column.iloc[0]}; times are dates or numbers. "
            f"Choose a unit: frame[{name!r}].dt.total_seconds()."
        )
    is_number = pandas.api.types.is_numeric_dtype(column)
    if not is_number and not pandas.api.types.is_datetime64_any_dtype(column):
        numbers = pandas.to_numeric(column, errors="coerce")
        is_number = not numbers.isna().iloc[0]
    if is_number:
        numbers = pandas.to_numeric(column, errors="coerce")
        _refuse_missing(column, numbers.isna(), name, "a number, as in other rows")
        first = numbers.min()
        if not math.isfinite(float(first)):
            raise DataError(f"column {name!r}: times must be finite; got {first}.")
        form = look_like_dates(numbers.to_numpy()) if numbers.dtype.kind in "iu" else ""
        if form:
            raise DataError(
                f"column {name!r} holds whole numbers such as {first}, between which the ends of months "
                f"would be gaps. Make dates of them: pandas.to_datetime(frame[{name!r}], format={form!r})."
            )
        return Clock(is_date=False, origin=int(first) if numbers.dtype.kind in "iu" else float(first))
    dates = read_dates(column, name)
    zone = dates.dt.tz
    _nanoseconds(dates, name)  # refuses dates that do not fit
    origin = int(_nanoseconds(pandas.Series([dates.min().normalize()]), name)[0])
    unit = "ns" if getattr(dates.dt, "unit", "ns") == "ns" else "us"
    return Clock(is_date=True, origin=origin, zone=_name_zone(zone), unit=unit)


def _name_zone(zone: datetime.tzinfo | None) -> str | None:
    if zone is None:
        return None
    try:
        return find_zone(str(zone))
    except (ValueError, LookupError, TypeError):
        raise DataError(
            f"the time zone {zone!r} has no name to find it by. Use another: dt.tz_convert('Europe/Paris')."
        ) from None


def _nanoseconds(dates: "pandas.Series", name: Hashable) -> Integers:
    """Return nanoseconds since 1970 in UTC, or raise for dates that they cannot count."""
    plain = dates.dt.tz_convert("UTC").dt.tz_localize(None) if dates.dt.tz is not None else dates
    is_outside = (plain < FIRST_DATE) | (plain > LAST_DATE)
    _refuse_missing(dates, is_outside, name, f"a date from {FIRST_DATE} to {LAST_DATE}")
    return cast("Integers", plain.to_numpy(dtype="datetime64[ns]").astype(np.int64))


def _read_kinds(
    frame: "pandas.DataFrame", columns: Columns, kinds: tuple[Kind, ...] | None
) -> tuple[Integers | None, tuple[Kind, ...]]:
    pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
    if columns.kind is None:
        return None, ()
    column = frame[columns.kind]
    _refuse_missing(
        column, column.isna(), columns.kind, "a kind (fillna('other') makes those without one a kind)"
    )
    _refuse_missing(column, _are_no_names(column), columns.kind, "a kind, text or a number")
    if kinds is None:
        found = [_plain(value) for value in pandas.unique(column)]
        try:
            kinds = tuple(sorted(found, key=lambda value: (isinstance(value, str), value)))
        except TypeError as error:
            raise DataError(
                f"column {columns.kind!r}: kinds cannot be put in order ({error}). Use astype(str)."
            ) from error
    codes = pandas.Index(list(kinds), dtype=object).get_indexer(column.astype(object).map(_plain))
    for row in np.flatnonzero(codes < 0)[:1]:
        raise DataError(
            f"row {row}: the kind {column.iloc[row]!r} was not among the fitted ones: "
            f"{', '.join(map(repr, kinds[:10]))}{', ...' if len(kinds) > 10 else ''}. Leave these events out "
            f"or fit again with them."
        )
    return codes.astype(np.int64), kinds


def _are_columns(given: Mapping[Hashable, object]) -> bool:
    """Tell whether a dictionary holds the columns of a table: times, and sequences or kinds beside them."""
    names = {_usual(name) for name in given}
    return bool(names & set(TIME_NAMES) and names & {*SEQUENCE_NAMES, *KIND_NAMES})


def _is_event(given: object) -> bool:
    """Tell whether this is a time and a name of a kind, not a sequence of two times."""
    return (
        isinstance(given, tuple | list)
        and len(given) == 2
        and _axes(given[0]) == 0
        and isinstance(given[1], str)
        and not isinstance(given[0], str)
    )


def _axes(given: object) -> int:
    """Return how many axes an array of this would have; -1: its parts have different lengths."""
    try:
        return np.ndim(cast("Any", given))
    except ValueError:
        return -1


def _is_number(value: object) -> TypeGuard[Real]:
    """Tell whether this is a real number: no flag, and no numpy.timedelta64, which counts any unit."""
    return isinstance(value, Real) and not isinstance(value, bool | np.timedelta64)


def _are_no_names(column: "pandas.Series") -> NDArray[np.bool_]:
    """Mark complex numbers and what cannot be looked up, such as lists."""
    if column.dtype.kind not in "Oc":
        return np.zeros(len(column), dtype=bool)
    return np.array([isinstance(value, complex) or not isinstance(value, Hashable) for value in column])


def _usual(name: Hashable) -> str:
    return str(name).strip().lower().replace(" ", "_")


def _of_columns(pandas: Any, given: Mapping[Hashable, object]) -> "pandas.DataFrame":  # Any: the module
    try:
        return pandas.DataFrame(given)
    except ValueError as error:
        raise DataError(f"the dictionary makes no table: {error}.") from error


def _of_sequences(pandas: Any, given: Mapping[Hashable, object]) -> "pandas.DataFrame":  # Any: the module
    parts = []
    for name, sequence in given.items():
        times, kinds = sequence, None
        if isinstance(sequence, tuple) and len(sequence) == 2 and _axes(sequence[0]) == 1:
            times, kinds = sequence
        if _axes(times) != 1:
            raise DataError(
                f"sequence {name!r}: expected an array of times or a pair (times, kinds); got "
                f"{type(sequence).__name__}. Of events (time, kind) make such a pair: tuple(zip(*events))."
            )
        columns = {SEQUENCE: [name] * len(cast("Any", times)), TIME: times}
        if kinds is not None:
            if len(cast("Any", kinds)) != len(cast("Any", times)):
                raise DataError(
                    f"sequence {name!r}: {len(cast('Any', times))} times but {len(cast('Any', kinds))} kinds."
                )
            columns[KIND] = kinds
        parts.append(pandas.DataFrame(columns))
    if not parts:
        raise DataError("there are no sequences.")
    return pandas.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def _find(frame: "pandas.DataFrame", names: Sequence[str], taken: set[Hashable]) -> Hashable | None:
    """Return the first column with one of these names."""
    known = {_usual(name): name for name in reversed(frame.columns) if name not in taken}
    return next((known[name] for name in names if name in known), None)


def _refuse_no_times(column: "pandas.Series", name: Hashable) -> None:
    """Raise for flags and complex numbers, which pandas would read as numbers."""
    kinds = (bool, np.bool_, complex)
    is_wrong = column.map(lambda value: isinstance(value, kinds)) if column.dtype.kind in "Obc" else [False]
    _refuse_missing(column, is_wrong, name, "a date or a number")


def _refuse_missing(
    column: "pandas.Series", missing: Any, name: Hashable, wanted: str
) -> None:  # Any: of pandas
    for row in np.flatnonzero(np.asarray(missing))[:1]:
        raise DataError(
            f"row {row}: expected {wanted} in column {name!r}; got {column.iloc[row]!r} "
            f"({int(np.asarray(missing).sum())} such rows)."
        )


def _plain(value: object) -> Hashable:
    """Turn a number of numpy into one of Python."""
    return cast("Hashable", value.item() if isinstance(value, np.generic) else value)


def _listed(columns: Sequence[Hashable]) -> str:
    return ", ".join(map(repr, columns)) or "none"
