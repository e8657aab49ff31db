import json
from pathlib import Path

import pytest

from aaren.errors import DataError
from aaren.events.files import Repairs, read_records

RECORDS = [
    {
        "dim_process": 3,
        "seq_len": 3,
        "seq_idx": 0,
        "time_since_start": [0.0, 0.5, 2.0],
        "time_since_last_event": [0.0, 0.5, 1.5],
        "type_event": [0, 1, 0],
    },
    {"dim_process": 3, "time_since_start": [0, 4], "type_event": [1, 1]},
]


@pytest.mark.parametrize("by_line", [False, True])
def test_a_list_and_lines_of_records_are_read(tmp_path: Path, by_line: bool) -> None:
    path = tmp_path / "train.json"
    path.write_text("\n".join(map(json.dumps, RECORDS)) + "\n" if by_line else json.dumps(RECORDS, indent=1))
    events = read_records(path, repairs=Repairs())
    assert events.times.tolist() == [0.0, 0.5, 2.0, 0.0, 4.0]
    assert events.offsets.tolist() == [0, 3, 5]
    assert events.num_marks == 3
    assert events.marks is not None
    assert events.marks.tolist() == [0, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("[]", "no record holds an event"),
        ('[{"K": [0]}]', "record 0: no 'time_since_start'; it has type_event"),
        ('[{"T": [0, 1], "K": [0]}]', "record 0: 2 times but 1 marks"),
        ('[{"T": [0, "x"], "K": [0, 0]}]', "'time_since_start' must be a list of numbers"),
        ('[{"T": [0, 1], "K": [0, 0.5]}]', r"record 0, event 1: expected a whole mark"),
        ('[{"T": [0, 2, 1], "K": [0, 0, 0]}]', "record 0, event 2: time 1 follows 2"),
        ('[{"T": [0, 2, 2], "K": [0, 0, 0]}]', "record 0, event 2: time 2 occurs twice"),
        ('[{"T": [0, NaN], "K": [0, 0]}]', "record 0, event 1: the time is nan"),
        ('[{"dim_process": 2, "T": [0, 1], "K": [0, 2]}]', r"event 1: mark 2 is outside 0\.\.1"),
        ('[{"T": [0], "K": [0]}]', "record 0, event 0: sequence '0' has one event"),
        ('{"T": [0, 1], "K": [0, 0]}\n{oops', "line 2: not valid JSON"),
        ('[{"T": [0, 1],\n "K": [0,, 0]}]', "line 2: not valid JSON"),
        ("[1]", "record 0: expected an object with time_since_start"),
    ],
)
def test_faults_are_told_with_their_place(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "train.json"
    path.write_text(text.replace("T", "time_since_start").replace("K", "type_event"))
    with pytest.raises(DataError, match=words):
        read_records(path, repairs=Repairs())


def test_coincident_times_can_be_dropped(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps([{"time_since_start": [0, 2, 2, 3], "type_event": [0, 0, 0, 0]}]))
    assert read_records(path, repairs=Repairs(drop_duplicates=True)).times.tolist() == [0.0, 2.0, 3.0]


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not a JSON file"):
        read_records(path, repairs=Repairs())
