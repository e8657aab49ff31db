import gzip
import lzma
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import DataError, MissingDependencyError
from aaren.forecasting.data import read_series

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def put(*rows: str, name: str = "mine.csv") -> Path:
        path = tmp_path / name
        content = ("\n".join(rows) + "\n").encode()
        packers = {".gz": gzip.compress, ".xz": lzma.compress}
        path.write_bytes(packers[path.suffix](content) if path.suffix in packers else content)
        return path

    return put


GOOD = ("date,a,OT,b", "2020-01-01 00:00,1,2,3", "2020-01-01 01:00,4,5,6", "2020-01-01 02:00,7,8,9")


@pytest.mark.parametrize("name", ["mine.csv", "mine.csv.gz", "mine.csv.xz"])
def test_dates_columns_and_numbers_are_read(write: Write, name: str) -> None:
    series = read_series(write(*GOOD, name=name))
    assert series.columns == ("a", "OT", "b")
    assert series.values.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert series.dates[1] == np.datetime64("2020-01-01T01:00:00")
    assert series.irregular == {}


def test_the_target_moves_to_the_end_or_stays_alone(write: Write) -> None:
    series = read_series(write(*GOOD))
    moved = series.with_target("OT")
    assert moved.columns == ("a", "b", "OT")
    assert moved.values[0].tolist() == [1, 3, 2]
    assert series.with_target("OT", only=True).values.tolist() == [[2], [5], [8]]


def test_a_missing_column_is_named_with_those_that_exist(write: Write) -> None:
    with pytest.raises(DataError, match=r"mine\.csv: no column 'CO2'; its columns are a, OT, b\."):
        read_series(write(*GOOD)).with_target("CO2")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            "2020-01-01 03:00,1,x1,3",
            r"mine\.csv, line 5, column 'OT': expected a finite number; got 'x1' \(1 such",
        ),
        ("2020-01-01 03:00,1,,3", r"line 5, column 'OT': expected a finite number; the value is missing"),
        ("2020-01-01 03:00,1,2", r"line 5, column 'b': expected a finite number; the value is missing"),
        ("2020-01-01 03:00,1,inf,3", r"line 5, column 'OT': expected a finite number; got "),
        ("2020-01-01 03:00,1,2,3,4", r"not a CSV table .*Expected 4 fields in line 5, saw 5"),
        ("yesterday,1,2,3", r"line 5: the first column \('date'\) must hold dates .*; got 'yesterday'"),
        ("2019-12-31 03:00,1,2,3", r"line 5: dates must not go back; 2019-12-31T03:00:00 comes after"),
    ],
)
def test_what_no_model_can_use_is_an_error_with_line_and_column(write: Write, row: str, words: str) -> None:
    for allow in (False, True):
        with pytest.raises(DataError, match=words):
            read_series(write(*GOOD, row), allow_irregular=allow)


def test_days_before_months_are_found_by_all_rows_or_asked_for(write: Write) -> None:
    rows = [f"{day:02}.01.2020,{day}" for day in range(1, 15)]
    dates = read_series(write("date,a", *rows)).dates
    assert dates[[0, 13]].tolist() == [datetime(2020, 1, 1), datetime(2020, 1, 14)]
    assert read_series(write("date,a", *rows[:13]), last=2).dates.tolist() == [
        datetime(2020, 1, 12),
        datetime(2020, 1, 13),
    ]
    with pytest.raises(
        DataError, match=r"mine\.csv, column 'date': .* day first or month first. Write dates"
    ):
        read_series(write("date,a", *rows[:12]))


def test_a_first_column_of_numbers_is_no_date(write: Write) -> None:
    with pytest.raises(DataError, match=r"the first column \('x'\) must hold dates"):
        read_series(write("x,y", "1,2", "2,3"))


def test_a_file_without_columns_or_rows_is_refused(write: Write) -> None:
    with pytest.raises(DataError, match="got 1 columns and 1 rows"):
        read_series(write("date", "2020-01-01"))
    with pytest.raises(DataError, match="got 2 columns and 0 rows"):
        read_series(write("date,a", name="b.csv"))
    with pytest.raises(DataError, match="not a CSV table"):
        read_series(write("", name="c.csv"))


@pytest.mark.parametrize(
    ("row", "words", "kind"),
    [
        (
            "2020-01-01 02:00,1,2,3",
            r"1 repeated date\(s\), .* 2020-01-01T02:00:00 in line 5",
            "duplicate_dates",
        ),
        ("2020-01-01 07:00,1,2,3", r"1 gap\(s\), the first from 2020-01-01T02:00:00 to .* in line 5", "gaps"),
        ("2020-01-01 03:00,1,-9999,3", r"1 sentinel code\(s\) -9999, .* line 5, column 'OT'", "sentinels"),
    ],
)
def test_oddities_are_errors_unless_allowed(write: Write, row: str, words: str, kind: str) -> None:
    path = write(*GOOD, row)
    with pytest.raises(DataError, match=words + r".*--set allow_irregular=true.*--allow-irregular"):
        read_series(path)
    assert read_series(path, allow_irregular=True).irregular == {kind: 1}
    assert read_series(path, accepted={kind: 1}).irregular == {kind: 1}


def test_more_oddities_than_known_are_an_error(write: Write) -> None:
    path = write(*GOOD, "2020-01-01 02:00,1,2,3", "2020-01-01 02:00,1,2,3")
    with pytest.raises(DataError, match="2 repeated date"):
        read_series(path, accepted={"duplicate_dates": 1})


def test_months_of_unequal_length_are_no_gaps(write: Write) -> None:
    rows = [f"{year}-{month:02}-01,1" for year in (2019, 2020) for month in range(1, 13)]
    assert read_series(write("month,sales", *rows)).irregular == {}


def test_without_pandas_the_cure_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        MissingDependencyError, match=r"reading mine.csv needs 'pandas': pip install 'aaren\[data\]'"
    ):
        read_series(write(*GOOD))


def test_a_cached_file_needs_no_pandas(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(*GOOD)
    first = read_series(path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    again = read_series(path)
    assert np.array_equal(first.values, again.values)
    assert np.array_equal(first.dates, again.dates)
    assert first.columns == again.columns
