import pickle
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import DataError
from aaren.events import files as event_files
from aaren.events.files import Repairs
from aaren.events.sequences import EventSequences


def test_the_layout_keeps_everything(tmp_path: Path) -> None:
    events = EventSequences.from_lists(
        [[1.0, 2.0], [3.0, 5.0]],
        [[0, 1], [1, 1]],
        num_marks=4,
        unit="hours",
        observed_from=0.0,
        observed_until=6.0,
    ).with_split(np.array([0, 2]))
    again = event_files.read(event_files.write_npz(tmp_path / "my.npz", events))
    for name in ("times", "offsets", "marks", "observed_from", "observed_until", "split"):
        np.testing.assert_array_equal(getattr(again, name), getattr(events, name))
    assert (again.num_marks, again.unit) == (4, "hours")


def test_a_common_end_may_be_one_number(tmp_path: Path) -> None:
    path = tmp_path / "taxi.npz"
    np.savez(path, times=np.array([1.0, 2.0, 3.0, 4.0]), offsets=np.array([0, 2, 4]), t_max=24.0)
    events = event_files.read(path, unit="hours")
    assert events.final_gaps is not None
    assert events.final_gaps.tolist() == [22.0, 20.0]
    assert events.gaps.tolist() == [1.0, 1.0, 3.0, 1.0]


def test_bad_events_in_the_layout_are_told_with_file_and_place(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, times=np.array([2.0, 1.0]), offsets=np.array([0, 2]))
    with pytest.raises(DataError, match=r"bad\.npz: sequence 0, event 1: time 1 follows 2"):
        event_files.read(path)


def test_the_suffix_chooses_the_reader(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="tables need the extra aaren[data]")
    (tmp_path / "a.csv").write_text("sequence,time\n1,1\n1,1\n1,2\n")
    events = event_files.read(tmp_path / "a.csv", repairs=Repairs(drop_duplicates=True))
    assert events.num_events == 2
    (tmp_path / "a.jsonl").write_text('{"time_since_start": [0, 1], "type_event": [0, 0]}\n')
    assert event_files.read(str(tmp_path / "a.jsonl"), unit="days").unit == "days"


def test_pickles_and_strangers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.pkl").write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(DataError, match="is a pickle"):
        event_files.read(tmp_path / "train.pkl")
    (tmp_path / "disguised.npz").write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(DataError, match="is a pickle"):
        event_files.read(tmp_path / "disguised.npz")
    (tmp_path / "events.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"expected \.csv, \.parquet, \.json, \.jsonl or \.npz; got '\.xlsx'"):
        event_files.read(tmp_path / "events.xlsx")
    with pytest.raises(DataError, match=r"nothing\.csv: no such file"):
        event_files.read(tmp_path / "nothing.csv")
