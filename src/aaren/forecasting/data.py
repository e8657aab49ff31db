"""Long multivariate series as arrays: read from a CSV file, checked, generated, split into rows.

The first column holds dates, every other column numbers. What a model cannot use (text, missing values, dates
that go back) is always an error; what it could use but a user should know of (gaps, repeated dates, the
sensor code -9999) is counted, and is an error unless allowed. Scaled, and as tensors, they are in
`aaren.forecasting.batches`.
"""

import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from aaren.datasets.dataset import Dataset, Fact
from aaren.datasets.dates import as_iso
from aaren.datasets.numbers import LARGEST
from aaren.errors import DataError, require_extra, unknown_name
from aaren.files import folders
from aaren.files.archive import parsing, read
from aaren.files.atomic import write_text
from aaren.files.folders import cached

PAST_STEPS = 96
HORIZONS = (96, 192, 336, 720)
TARGET = "OT"
SENTINEL = -9999.0
NUM_MARKS = 4
DELAY_STEPS = 6
NOISE_MEMORY = 0.8  # of one step in the next
DAY, WEEK = 24, 168
_READER = "series 3"  # raise the number when the parser changes, so that old cache entries are not used
_CURE = (
    "Repair the file, or accept this: `aaren train` with --set allow_irregular=true; `aaren data verify "
    "--allow-irregular`; in Python allow_irregular=True."
)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Series:
    """A regular multivariate series as it was written down."""

    name: str
    columns: tuple[str, ...]
    dates: NDArray[np.datetime64]  # (rows,) seconds
    values: NDArray[np.float64]  # (rows, columns)
    irregular: Mapping[str, int] = field(default_factory=dict)  # kind of oddity: how many

    def __post_init__(self) -> None:
        expected = (len(self.dates), len(self.columns))
        if self.values.shape != expected:
            raise DataError(
                f"{self.name}: values must be (rows, columns) = {expected}; got {self.values.shape}."
            )

    def __len__(self) -> int:
        return len(self.dates)

    def with_target(self, target: str, *, only: bool = False) -> "Series":
        """Move the column `target` to the end, or keep it alone."""
        if target not in self.columns:
            known = ", ".join(self.columns[:12]) + (" ..." if len(self.columns) > 12 else "")
            raise DataError(f"{self.name}: no column {target!r}; its columns are {known}.")
        order = [place for place, column in enumerate(self.columns) if column != target and not only]
        order.append(self.columns.index(target))
        return Series(
            name=self.name,
            columns=tuple(self.columns[place] for place in order),
            dates=self.dates,
            values=self.values[:, order],
            irregular=self.irregular,
        )


def read_series(
    path: Path,
    *,
    allow_irregular: bool = False,
    accepted: Mapping[str, int] | None = None,
    last: int | None = None,
    only: Sequence[str] | None = None,
) -> Series:
    """Read a CSV file, plain or compressed.

    Args:
        path: The file; its first column holds dates.
        allow_irregular: Accept gaps, repeated dates and sentinel codes.
        accepted: Oddities that are known and accepted, and how many of each; more are an error.
        last: Look at so many of the last rows alone; what stands before them may be anything.
        only: Look at these columns alone, as far as they are there.
    """
    content = read(path)
    if last is None and only is None:
        arrays = cached(content.sha256, _READER, lambda: _parse(path, content.data))
    else:
        arrays = _parse(path, content.data, last=last, only=only)
    dates, values = arrays["dates"].astype("datetime64[s]"), arrays["values"].astype(np.float64, copy=False)
    columns = tuple(str(column) for column in arrays["columns"])
    found = _oddities(dates, values)
    series = Series(name=path.name, columns=columns, dates=dates, values=values, irregular=found)
    if not allow_irregular:
        for kind, count in found.items():
            if count > (accepted or {}).get(kind, 0):
                raise DataError(f"{path}: {_describe(kind, count, series)} {_CURE}")
    return series


def write_series(series: Series, target: Path) -> Path:
    """Write a series as a CSV file that reads back exactly."""
    dates = np.char.replace(np.datetime_as_string(series.dates), "T", " ").tolist()
    lines = [",".join(("date", *series.columns))]
    # repr is the shortest text that gives the same number again
    lines += [
        ",".join((date, *map(repr, row))) for date, row in zip(dates, series.values.tolist(), strict=True)
    ]
    write_text(target, "\n".join(lines) + "\n")
    return target


Part: TypeAlias = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """How many rows train, validation and test have; they follow each other."""

    train: int
    validation: int
    test: int

    def bounds(self, part: Part, past_steps: int) -> tuple[int, int]:
        """Give the first row that a part's windows may use, and the row after the last."""
        if part == "train":
            return 0, self.train
        if part == "validation":
            return self.train - past_steps, self.train + self.validation
        if part == "test":
            begin = self.train + self.validation
            return begin - past_steps, begin + self.test
        raise unknown_name("part", part, PARTS)


def split_rows(rows: int, rule: str = "ratio", *, rows_per_hour: int = 1) -> Split:
    """Split by `ratio` (70 % train, 20 % test, the rest validation) or by `months` (12, 4, 4 of 30 days).

    >>> split_rows(7588)
    Split(train=5311, validation=760, test=1517)
    """
    if rule == "ratio":
        train, test = int(0.7 * rows), int(0.2 * rows)
        return Split(train=train, validation=rows - train - test, test=test)
    if rule == "months":
        month = 30 * 24 * rows_per_hour
        if rows < 20 * month:
            raise DataError(f"a split by months needs 20 months, {20 * month} rows; got {rows}.")
        return Split(train=12 * month, validation=4 * month, test=4 * month)
    raise unknown_name("split rule", rule, ("ratio", "months"))


def measure(dataset: Dataset) -> dict[str, Fact]:
    """Open a dataset's file and count what the catalogue claims to know."""
    series = load_series(dataset)
    split = split_of(dataset, len(series))
    return {
        "rows": len(series),
        "series": len(series.columns),
        "train": split.train,
        "validation": split.validation,
        "test": split.test,
    }


def load_series(dataset: Dataset) -> Series:
    """Read a registered dataset from disk, or make it if it is a generated one; the target is last."""
    path = folders.find(dataset.setting, dataset.files[0])
    if path is None and dataset.is_generated:
        return seasonal(rows=int(dataset.facts["rows"]), num_series=int(dataset.facts["series"]))
    path = path or folders.require(
        dataset.setting, dataset.files[0], cure=f"Run: aaren data fetch {dataset.name}"
    )
    series = read_series(path, accepted=dataset.irregular)
    only = str(dataset.options.get("columns", ""))
    if only:
        return series.with_target(only, only=True)
    return series.with_target(TARGET) if TARGET in series.columns else series


def split_of(dataset: Dataset, rows: int) -> Split:
    """Split so many rows as the dataset's protocol does."""
    rule, rows_per_hour = str(dataset.options["split"]), int(dataset.options.get("rows_per_hour", 1))
    return split_rows(rows, rule, rows_per_hour=rows_per_hour)


def seasonal(*, rows: int = 4_000, num_series: int = 7, seed: int = 0) -> Series:
    """Generate hourly series; the same arguments give the same numbers."""
    generator = np.random.default_rng(seed)
    hours = np.arange(rows)[:, None]
    amplitude = generator.uniform(0.5, 1.5, size=(3, num_series))
    phase = generator.uniform(0.0, 2 * np.pi, size=(3, num_series))
    level = generator.uniform(-5.0, 5.0, size=num_series)
    values = level + sum(
        amplitude[place] * np.sin(2 * np.pi * hours / period + phase[place])
        for place, period in enumerate((DAY, WEEK, 10 * WEEK))
    )
    noise = generator.normal(scale=0.2, size=(rows, num_series))
    for row in range(1, rows):
        noise[row] += NOISE_MEMORY * noise[row - 1]
    values = values + noise
    if num_series > 1:
        values[DELAY_STEPS:, -1] = 0.5 * values[DELAY_STEPS:, -1] + values[:-DELAY_STEPS, 0]
    dates = np.datetime64("2020-01-01T00:00:00", "s") + np.arange(rows) * np.timedelta64(1, "h")
    columns = (*(f"series_{place}" for place in range(num_series - 1)), "OT")
    return Series(name="seasonal", columns=columns, dates=dates, values=values)


def time_marks(dates: NDArray[np.datetime64]) -> NDArray[np.float32]:
    """Compute (rows, 4) marks.

    >>> time_marks(np.array(["2018-01-01T00:00", "2018-12-31T23:00"], dtype="datetime64[s]")).tolist()[0]
    [-0.5, -0.5, -0.5, -0.5]
    """
    days = dates.astype("datetime64[D]")
    hour = (dates - days) // np.timedelta64(1, "h")
    weekday = (days.astype(np.int64) + 3) % 7  # day 0, 1970-01-01, was a Thursday; Monday is 0
    day_of_month = (days - days.astype("datetime64[M]")).astype(np.int64)
    day_of_year = (days - days.astype("datetime64[Y]")).astype(np.int64)
    marks = np.stack([hour / 23, weekday / 6, day_of_month / 30, day_of_year / 365], axis=1) - 0.5
    return marks.astype(np.float32)


def _parse(
    path: Path, content: bytes, *, last: int | None = None, only: Sequence[str] | None = None
) -> dict[str, NDArray[np.generic]]:
    pandas = require_extra("pandas", extra="data", purpose=f"reading {path.name}")
    with parsing(path, "a CSV table", cure="Its first line names the columns."), warnings.catch_warnings():
        warnings.simplefilter("ignore", pandas.errors.DtypeWarning)  # mixed columns are told of below
        frame = pandas.read_csv(io.BytesIO(content), float_precision="round_trip", skipinitialspace=True)
    if frame.shape[1] < 2 or not len(frame):
        raise DataError(
            f"{path}: expected a first column of dates, at least one column of numbers and at least one row; "
            f"got {frame.shape[1]} columns and {len(frame)} rows."
        )
    if only is not None and any(str(name) in only for name in frame.columns[1:]):
        frame = frame.iloc[:, [0, *(i for i, name in enumerate(frame.columns) if i and str(name) in only)]]
    where, cure = f"{path}, column {frame.columns[0]!r}", "Write dates as 2016-07-31 00:15."
    frame.isetitem(0, as_iso(frame.iloc[:, 0], where=where, cure=cure))  # by all rows: the last may not tell
    line = 2 + (0 if last is None else max(0, len(frame) - last))  # of the first row
    frame = frame if last is None else frame.tail(last)
    names = [str(name) for name in frame.columns[1:]]
    dates = _parse_dates(path, str(frame.columns[0]), frame.iloc[:, 0].to_numpy(), line)
    columns = [
        _parse_numbers(path, name, frame.iloc[:, place].to_numpy(), line)
        for place, name in enumerate(names, 1)
    ]
    return {"dates": dates.astype(np.int64), "values": np.column_stack(columns), "columns": np.array(names)}


def _parse_dates(path: Path, name: str, texts: NDArray[np.object_], line: int) -> NDArray[np.datetime64]:
    pandas = require_extra("pandas", extra="data", purpose=f"reading {path.name}")
    with warnings.catch_warnings(), parsing(path, "a table with dates in its first column"):
        warnings.simplefilter("ignore", UserWarning)  # pandas warns when it must guess; we check instead
        parsed = pandas.to_datetime(pandas.Series(texts).astype(str), errors="coerce", utc=True)
    wrong = parsed.isna().to_numpy()
    if wrong.any() or texts.dtype.kind in "fiu":
        row = int(wrong.argmax())
        raise DataError(
            f"{path}, line {row + line}: the first column ({name!r}) must hold dates such as "
            f"2016-07-01 00:15:00; got {texts[row]!r}."
        )
    dates: NDArray[np.datetime64] = parsed.dt.tz_localize(None).to_numpy().astype("datetime64[s]")
    back = np.flatnonzero(np.diff(dates) < np.timedelta64(0, "s"))
    if len(back):
        before, after = dates[back[0]], dates[back[0] + 1]
        raise DataError(
            f"{path}, line {back[0] + 1 + line}: dates must not go back; {after} comes after {before}. "
            f"Sort the rows by date."
        )
    return dates


def _parse_numbers(path: Path, name: str, column: NDArray[np.generic], line: int) -> NDArray[np.float64]:
    pandas = require_extra("pandas", extra="data", purpose=f"reading {path.name}")
    is_numeric = column.dtype.kind in "fiu"
    with parsing(path, f"a table of numbers in column {name!r}", cure="Give real numbers."):
        numbers = np.asarray(
            column if is_numeric else pandas.to_numeric(column, errors="coerce"), dtype=np.float64
        )
    wrong = np.flatnonzero(~(np.abs(numbers) <= LARGEST))
    if len(wrong):
        row = int(wrong[0])
        what = "the value is missing" if pandas.isna(column[row]) else f"got {column[row]!r}"
        if np.isfinite(numbers[row]):
            what += ", more than float32 can hold"
        raise DataError(
            f"{path}, line {row + line}, column {name!r}: expected a finite number; {what} "
            f"({len(wrong)} such in this column). Fill or drop these rows first."
        )
    return numbers


def _oddities(dates: NDArray[np.datetime64], values: NDArray[np.float64]) -> dict[str, int]:
    found = {"duplicate_dates": 0, "gaps": 0, "sentinels": int((values == SENTINEL).sum())}
    if len(dates) > 1:
        found["duplicate_dates"] = int((np.diff(dates) == np.timedelta64(0, "s")).sum())
        found["gaps"] = len(_gap_rows(dates))
    return {kind: count for kind, count in found.items() if count}


def _gap_rows(dates: NDArray[np.datetime64]) -> NDArray[np.intp]:
    """Rows after which the step is far from the usual one; months of 28 to 31 days are no gaps."""
    steps = np.diff(dates).astype(np.int64)
    usual = np.median(steps[steps > 0]) if (steps > 0).any() else 1.0
    return np.flatnonzero((steps > 1.5 * usual) | ((steps > 0) & (steps < 0.5 * usual)))


def _describe(kind: str, count: int, series: Series) -> str:
    dates = series.dates
    if kind == "duplicate_dates":
        row = int(np.flatnonzero(np.diff(dates) == np.timedelta64(0, "s"))[0])
        return f"{count} repeated date(s), the first is {dates[row]} in line {row + 3}."
    if kind == "gaps":
        row = int(_gap_rows(dates)[0])
        return f"{count} gap(s), the first from {dates[row]} to {dates[row + 1]} in line {row + 3}."
    row, column = (int(place) for place in np.argwhere(series.values == SENTINEL)[0])
    name = series.columns[column]
    return f"{count} sentinel code(s) {SENTINEL:g}, the first in line {row + 2}, column {name!r}."
