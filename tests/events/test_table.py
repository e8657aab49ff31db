import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import DataError, MissingDependencyError
from aaren.events.files import Columns, Repairs, read_table
from aaren.events.sequences import EventSequences

pandas = pytest.importorskip("pandas", reason="tables need the extra aaren[data]")


def read(path: Path, text: str | None = None, **options: bool) -> EventSequences:
    if text is not None:
        path.write_text(text)
    return read_table(path, columns=Columns(), repairs=Repairs(**options))


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return tmp_path / "events.csv"


def test_rows_of_different_sequences_may_be_mixed(csv: Path) -> None:
    events = read(csv, "sequence,time,mark\nb,1,0\na,1.5,2\nb,2.25,1\na,3,0\n")
    assert events.times.tolist() == [1.0, 2.25, 1.5, 3.0]
    assert events.offsets.tolist() == [0, 2, 4]
    assert events.marks is not None
    assert events.marks.tolist() == [0, 1, 2, 0]
    assert events.num_marks == 3
    assert events.unit == "time units"


def test_marks_may_be_absent_or_left_out(csv: Path) -> None:
    assert read(csv, "sequence,time\n1,1\n1,2\n").marks is None
    csv.write_text("sequence,time,mark\n1,1,x\n1,2,y\n")
    assert read_table(csv, columns=Columns(mark=None), repairs=Repairs()).marks is None


def test_columns_may_have_other_names(csv: Path) -> None:
    csv.write_text("user,when,what\n1,0,1\n1,2,0\n")
    columns = Columns(sequence="user", time="when", mark="what")
    events = read_table(csv, columns=columns, repairs=Repairs(), num_marks=5, unit="days")
    assert (events.num_marks, events.unit) == (5, "days")


def test_named_marks_are_numbered_by_name_and_new_data_by_the_old_names(csv: Path) -> None:
    events = read(csv, "sequence,time,mark\n1,0,sell\n1,1,buy\n1,2,sell\n")
    assert events.mark_names == ("buy", "sell")
    assert events.marks is not None
    assert events.marks.tolist() == [1, 0, 1]
    csv.write_text("sequence,time,mark\n1,0,sell\n1,1,sell\n")
    again = read_table(csv, columns=Columns(), repairs=Repairs(), mark_names=events.mark_names)
    assert again.marks is not None
    assert again.marks.tolist() == [1, 1]
    assert again.num_marks == 2
    csv.write_text("sequence,time,mark\n1,0,sell\n1,1,hold\n")
    with pytest.raises(DataError, match=r"events\.csv, line 3: unknown mark 'hold'\. Known: buy, sell"):
        read_table(csv, columns=Columns(), repairs=Repairs(), mark_names=events.mark_names)


def test_a_compressed_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.csv.gz"
    path.write_bytes(gzip.compress(b"sequence,time\n1,1\n1,2\n"))
    assert read(path).times.tolist() == [1.0, 2.0]


def test_a_parquet_table_is_read_with_its_types(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    pandas.DataFrame(
        {"sequence": [3, 3, 4, 4], "time": [0.5, 1.5, 1.0, 2.0], "mark": [0, 1, 1, 0]}
    ).to_parquet(path)
    events = read(path)
    assert events.gaps.tolist() == [0.0, 1.0, 0.0, 1.0]
    assert events.num_marks == 2
    dates = pandas.to_datetime(["2024-01-01 00:00:00.0", "2024-01-01 00:01:00.5"])
    pandas.DataFrame({"sequence": ["a", "a"], "time": dates}).to_parquet(path)
    events = read(path)
    assert events.times.tolist() == [0.0, 60.5]
    assert events.unit == "seconds"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"events\.csv: the file is empty"),
        ("sequence,time\n", r"events\.csv: the table has no rows"),
        ("id,time\n1,2\n", r"no column 'sequence'; it has id, time\. Name the columns with Columns"),
        ("sequence,when\n1,2\n", r"no column 'time'; it has sequence, when"),
        ("sequence,time\n1,1\n1,later\n", r"line 3: expected a number in column 'time'; got 'later'"),
        ("sequence,time\n1,1\n1,nan\n", r"line 3: expected a number in column 'time'; got 'nan'"),
        ("sequence,time\n1,1\n1,\n1,3\n", r"line 3: expected a number in column 'time'; got ''"),
        ("sequence,time\n1,1\n1,inf\n", r"line 3: the time is inf"),
        ("sequence,time\n1,1\n1,now\n", r"line 3: .*'now'"),
        ("sequence,time\n1,2026-01-01\n1,today\n", r"line 3: .*'today'"),
        ("sequence,time,time\n1,1,2\n1,2,3\n", r"'time' is there twice"),
        ("sequence,time\n1,1\n,2\n", r"line 3: no value in column 'sequence'"),
        ("sequence,time\n1,1\n\n1,2\n", r"line 3: no value in column 'sequence'"),
        ("sequence,time\n1,2\n1,1\n", r"line 3: time 1 follows 2: a negative gap\. Sort by time"),
        ("sequence,time\n1,2\n2,0\n1,2\n2,1\n", r"line 4: time 2 occurs twice.*drop_duplicates=True"),
        ("sequence,time,mark\n1,1,-1\n1,2,0\n", r"line 2: mark -1 is outside 0\.\.0"),
        ("sequence,time,mark\n1,1,0\n1,2,1.5\n", r"line 3: expected a whole number from 0 in column 'mark'"),
        ("sequence,time,mark\n1,1,0\n1,2,x\n", r"line 3: expected a whole number.*as in other rows; got 'x'"),
        ("sequence,time,mark\n1,1,0\n1,2,\n", r"line 3: no value in column 'mark'; give every event a mark"),
        ("sequence,time\n1,1\n1,2\n2,5\n", r"line 4: sequence '2' has one event.*drop_single=True"),
        ("sequence,time\n1,1\n1,2,3,4\n", r"not a CSV file \(.*line 3"),
    ],
)
def test_faults_are_told_with_their_line(csv: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read(csv, text)


def test_a_mark_outside_the_range_given_is_told_with_its_line(csv: Path) -> None:
    csv.write_text("sequence,time,mark\n1,1,0\n1,2,7\n")
    with pytest.raises(DataError, match=r"line 3: mark 7 is outside 0\.\.4 \(num_marks=5\)"):
        read_table(csv, columns=Columns(), repairs=Repairs(), num_marks=5)


def test_faults_in_parquet_are_told_with_their_row(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    pandas.DataFrame({"sequence": [1, 1], "time": [2.0, np.nan]}).to_parquet(path)
    with pytest.raises(DataError, match=r"events\.parquet, row 1: expected a number in column 'time'"):
        read(path)
    path.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(DataError, match="not a whole Parquet file"):
        read(path)


def test_without_the_extra_the_cure_is_told(csv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        MissingDependencyError, match=r"a table of events needs 'pandas': pip install 'aaren\[data\]'"
    ):
        read(csv, "sequence,time\n1,1\n1,2\n")


def test_repairs_are_by_name(csv: Path) -> None:
    events = read(
        csv, "sequence,time\n1,2\n1,1\n1,2\n2,7\n", sort=True, drop_duplicates=True, drop_single=True
    )
    assert events.times.tolist() == [1.0, 2.0]


def test_blank_lines_at_the_end_are_harmless(csv: Path) -> None:
    assert len(read(csv, "sequence,time\n1,1\n1,2\n\n\n")) == 1


def test_dates_become_seconds(csv: Path) -> None:
    csv.write_text("sequence,time\na,2024-01-01 00:00:00\na,2024-01-01 00:01:30\na,2024-01-02\n")
    events = read_table(csv, columns=Columns(), repairs=Repairs())
    assert events.unit == "seconds"
    assert events.times.tolist() == [0.0, 90.0, 86_400.0]
    csv.write_text("sequence,time\na,2024-01-01\na,yesterday\n")
    with pytest.raises(DataError, match=r"line 3: expected a date, as in the first row, .* got 'yesterday'"):
        read_table(csv, columns=Columns(), repairs=Repairs())


def test_a_misspelt_mark_column_is_not_taken_for_none(csv: Path) -> None:
    csv.write_text("sequence,time,action\na,1,login\n")
    with pytest.raises(DataError, match="no column 'acton' for marks; it has sequence, time, action"):
        read_table(csv, columns=Columns(mark="acton"), repairs=Repairs())
