"""Own files of events: every format, every repair, and every fault with its line and its cure."""

import json
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import DataError
from aaren.events.config import EventsConfig, OwnEventsConfig
from aaren.events.data import generate
from aaren.events.experiment import PREDICTION_WORDS, open_events, read_own
from aaren.events.files import write_npz
from aaren.events.sequences import EventSequences


def write_csv(path: Path, rows: list[tuple[object, ...]], header: str = "sequence,time,mark") -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def some_rows(sequences: int = 10, events: int = 8, step: float = 1.0) -> list[tuple[object, ...]]:
    rng = np.random.default_rng(0)
    return [
        (f"user{i}", round(float(time), 9), ["buy", "look", "leave"][int(rng.integers(3))])
        for i in range(sequences)
        for time in np.cumsum(rng.uniform(0.1, 2.0, events) * step)
    ]


def test_easytpp_records_and_npz_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    record = {"time_since_start": [0.0, 1.0, 2.5], "type_event": [0, 1, 0], "dim_process": 2}
    path.write_text(json.dumps([record] * 6))
    events = open_events(EventsConfig(data_file=str(path)))
    assert (len(events), events.num_marks) == (6, 2)
    packed = write_npz(tmp_path / "packed.npz", generate("hawkes", count=6))
    assert open_events(EventsConfig(data_file=str(packed))).observed_until is not None


def test_a_known_window_of_observation_is_used(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "visits.csv", some_rows())
    own = OwnEventsConfig(observed_from=0.0, observed_until=100.0)
    events = open_events(EventsConfig(data_file=str(path), own=own))
    assert events.final_gaps is not None
    assert events.gaps[0] > 0.0
    with pytest.raises(DataError, match=r"has an event at .* outside its observed_until = 1"):
        open_events(EventsConfig(data_file=str(path), own=OwnEventsConfig(observed_until=1.0)))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("a", 2.0, 0), ("a", 1.0, 0)], r"line 3: time 1 follows 2: a negative gap.*--set own.sort=true"),
        ([("a", 1.0, 0), ("a", 1.0, 0)], r"line 3: time 1 occurs twice.*--set own.drop_duplicates=true"),
        ([("a", 1.0, 0), ("a", "nan", 0)], r"line 3: expected a number in column 'time'"),
        ([("a", 1.0, 0), ("a", 2.0, -1)], r"line 3: mark -1 is outside"),
        (
            [("a", 1.0, 0), ("b", 1.0, 0), ("b", 2.0, 0)],
            r"line 2: sequence 'a' has one event.*--set own.drop_single=true",
        ),
        ([], "the table has no rows"),
    ],
)
def test_bad_tables_are_told_by_line(tmp_path: Path, rows: list[tuple[object, ...]], words: str) -> None:
    path = write_csv(tmp_path / "bad.csv", rows)
    with pytest.raises(DataError, match=words):
        open_events(EventsConfig(data_file=str(path)))


def test_a_missing_column_is_named_with_its_cure(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "bad.csv", [("a", 1.0)], header="user,time")
    with pytest.raises(DataError, match=r"no column 'sequence'; it has user, time.*own.sequence_column=NAME"):
        open_events(EventsConfig(data_file=str(path)))


def test_an_empty_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("")
    with pytest.raises(DataError, match="the file is empty"):
        open_events(EventsConfig(data_file=str(path)))


def test_what_can_be_mended_is_mended_on_request(tmp_path: Path) -> None:
    rows = [("a", 2.0, 0), ("a", 1.0, 0), ("a", 2.0, 1), ("b", 1.0, 0)]
    path = write_csv(tmp_path / "mixed.csv", rows)
    own = OwnEventsConfig(sort=True, drop_duplicates=True, drop_single=True)
    events = open_events(EventsConfig(data_file=str(path), own=own))
    assert events.times.tolist() == [1.0, 2.0]


def test_single_events_in_arrays_are_refused_or_left_out(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "single.npz", EventSequences.from_lists([[1.0, 2.0], [1.0]]))
    with pytest.raises(DataError, match=r"1 sequences have one event.*number 1.*own.drop_single=true"):
        open_events(EventsConfig(data_file=str(path)))
    own = OwnEventsConfig(drop_single=True)
    assert len(open_events(EventsConfig(data_file=str(path), own=own))) == 1


def test_new_data_is_told_what_training_has_chosen(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("user,time\na,1\n")
    with pytest.raises(DataError, match="Call them as the training file did"):
        read_own(path, OwnEventsConfig(), words=PREDICTION_WORDS)
    path.write_text("sequence,time\na,2\na,1\n")
    with pytest.raises(DataError, match=r"--set own\.sort=true when training"):
        read_own(path, OwnEventsConfig(), words=PREDICTION_WORDS)
