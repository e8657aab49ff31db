"""Numbers that no model can compute with are refused where they enter, in every format alike."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aaren.classification.batches import open_files
from aaren.datasets.numbers import flags, narrow, reals, wholes
from aaren.errors import DataError
from aaren.events import files as event_files
from aaren.events.sequences import EventSequences
from aaren.forecasting.batches import open_file
from aaren.rl import data as trajectory_files
from aaren.rl.data import Trajectories

HUGE = ("1e200", "-1e39", "3.5e38")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def forecasting(path: Path, value: str) -> object:
    rows = [f"2020-01-{day:02},{day},{value if day == 9 else day % 3}" for day in range(1, 31)]
    path.with_suffix(".csv").write_text("\n".join(["date,a,b", *rows]) + "\n")
    return open_file(path.with_suffix(".csv"))


def classification(path: Path, value: str) -> object:
    cases = "".join(f"{k},2,3:4,{value if k == 3 else 5},6:{'ab'[k % 2]}\n" for k in range(6))
    path.with_suffix(".ts").write_text("@problemName x\n@classLabel true a b\n@data\n" + cases)
    return open_files(path.with_suffix(".ts"))


def events_table(path: Path, value: str) -> object:
    rows = (
        f"sequence,time\na,-1\na,{value}\nb,0\nb,1\n"
        if float(value) > 0
        else f"sequence,time\na,{value}\na,1\n"
    )
    path.with_suffix(".csv").write_text(rows)
    return event_files.read(path.with_suffix(".csv"))


def events_record(path: Path, value: str) -> object:
    times = sorted([0.0, float(value)])
    record = {"time_since_start": times, "type_event": [0, 0]}
    path.with_suffix(".json").write_text(json.dumps([record]))
    return event_files.read(path.with_suffix(".json"))


def events_npz(path: Path, value: str) -> object:
    np.savez(path.with_suffix(".npz"), times=sorted([0.0, float(value)]), offsets=[0, 2])
    return event_files.read(path.with_suffix(".npz"))


def trajectories(key: str) -> Callable[[Path, str], object]:
    def read(path: Path, value: str) -> object:
        arrays = {"observations": np.zeros((6, 2)), "actions": np.zeros((6, 1)), "rewards": np.zeros(6)}
        arrays[key].reshape(-1)[2] = float(value)
        ends = np.arange(6) == 5
        np.savez(path.with_suffix(".npz"), **arrays, terminals=ends, timeouts=~ends & False)
        return trajectory_files.read(path.with_suffix(".npz"))

    return read


READERS = {
    "forecasting": forecasting,
    "classification": classification,
    "events csv": events_table,
    "events json": events_record,
    "events npz": events_npz,
    "rl observations": trajectories("observations"),
    "rl actions": trajectories("actions"),
    "rl rewards": trajectories("rewards"),
}


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("reader", READERS)
def test_what_float32_cannot_hold_is_refused_by_every_reader(tmp_path: Path, reader: str, value: str) -> None:
    READERS[reader](tmp_path / "good", "7")
    with pytest.raises(DataError, match="float32"):
        READERS[reader](tmp_path / "bad", value)


def test_a_value_too_far_from_the_training_rows_is_refused(tmp_path: Path) -> None:
    """It fits into float32 by itself, but not on the scale of its column."""
    rows = [f"2020-01-{day:02},{1e37 if day == 30 else 1e-9 * (day % 2)}" for day in range(1, 31)]
    path = tmp_path / "far.csv"
    path.write_text("\n".join(["date,a", *rows]) + "\n")
    with pytest.raises(DataError, match=r"far\.csv, scaled \(row, column\): .* at \(29, 0\) is too large"):
        open_file(path)


def test_rewards_whose_sum_float32_cannot_hold_are_refused() -> None:
    ends = np.arange(9) == 8
    with pytest.raises(DataError, match=r"the sum of rewards .* too large for float32"):
        Trajectories.from_flat(
            observations=np.zeros((9, 1)),
            actions=np.zeros((9, 1)),
            rewards=np.full(9, 3e38),
            terminals=ends,
            timeouts=~ends & False,
        )


def write_events(path: Path, **changes: object) -> Path:
    arrays = {
        "times": np.array([0.0, 1.0, 2.5, 0.5, 3.0]),
        "offsets": np.array([0, 3, 5]),
        "marks": np.array([0, 1, 2, 0, 1]),
        **changes,
    }
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})  # type: ignore[arg-type]
    return path


def test_whole_floats_are_whole_numbers(tmp_path: Path) -> None:
    path = write_events(
        tmp_path / "a.npz", marks=[0.0, 1.0, 2.0, 0.0, 1.0], offsets=[0.0, 3.0, 5.0], split=[0, 2.0]
    )
    found = event_files.read(path)
    assert found.marks is not None
    assert found.marks.tolist() == [0, 1, 2, 0, 1]
    assert found.split is not None
    assert found.split.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"marks": [0, 1.7, 2, 0, 1]}, r"marks: expected whole numbers; got 1\.7 at 1"),
        ({"marks": [0, np.nan, 2, 0, 1]}, "marks: expected whole numbers; got nan"),
        ({"marks": [0, -1, 2, 0, 1]}, "sequence 0, event 1: mark -1 is outside"),
        ({"marks": [True, False, True, True, True]}, "marks: expected whole numbers; got bool"),
        ({"marks": ["a", "b", "c", "a", "b"]}, "marks: expected whole numbers; got <U1"),
        ({"marks": [[0, 1, 2, 0, 1]]}, "5 times but 5 marks"),
        ({"marks": np.array(3)}, "5 times but 1 marks"),
        ({"marks": [0, 1, 10**12, 0, 1]}, "num_marks, the number of kinds of events, must be 1 to"),
        ({"marks": np.array([0, 1, 2**63, 0, 1], dtype=np.uint64)}, "marks: expected whole numbers"),
        ({"offsets": [0, 2.5, 5]}, r"offsets: expected whole numbers from 0; got 2\.5 at 1"),
        ({"offsets": [0, -3, 5]}, "offsets: expected whole numbers from 0; got -3"),
        ({"offsets": np.array(5)}, "offsets must run from 0"),
        ({"offsets": []}, "offsets must run from 0"),
        ({"offsets": [[0, 3, 5]]}, "offsets must run from 0"),
        ({"split": [0.5, 1]}, "split: expected whole numbers from 0 to 2; got 0.5"),
        ({"split": [0, 3]}, "split: expected whole numbers from 0 to 2; got 3"),
        ({"split": [-1, 0]}, "split: expected whole numbers from 0 to 2; got -1"),
        ({"split": [0]}, "split needs one entry per sequence"),
        (
            {"times": np.array([0, 1, 2.5, 0.5, 3], dtype=complex)},
            "times: expected real numbers; got complex128",
        ),
        ({"times": ["0", "1", "2", "0", "3"]}, "times: expected real numbers; got <U1"),
        ({"times": np.zeros((5, 1))}, "times must be flat float64"),
        ({"num_marks": -3}, "num_marks: expected whole numbers from 1; got -3"),
        ({"num_marks": 0}, "num_marks: expected whole numbers from 1; got 0"),
        ({"num_marks": 3.5}, "num_marks: expected whole numbers from 1; got 3.5"),
        ({"num_marks": [3, 3]}, "num_marks must be a single value"),
        ({"num_marks": 10**12}, "num_marks, the number of kinds of events, must be 1 to"),
        ({"mark_names": ["a", "b"]}, "3 kinds of events need as many different mark_names; got 2"),
        ({"mark_names": ["a", "b", "b"]}, "need as many different mark_names; got 3, 2 different"),
        ({"mark_names": [1, 2, 3]}, "mark_names must be a list of texts"),
        ({"t_max": np.inf}, "observed_until of sequence 0 is inf"),
        ({"t_max": [4.0, 4.0]}, "t_max must be a single value"),
        ({"t_max": "x"}, "t_max: expected real numbers"),
        ({"observed_until": [np.inf, np.inf]}, "observed_until of sequence 0 is inf"),
        ({"observed_from": [np.nan, 0]}, "observed_from of sequence 0 is nan"),
        ({"unit": ["a", "b"]}, "unit must be a single value"),
    ],
)
def test_event_arrays_are_checked_like_tables(tmp_path: Path, changes: dict[str, object], fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        event_files.read(write_events(tmp_path / "a.npz", **changes))


def test_event_lists_are_checked_too() -> None:
    with pytest.raises(DataError, match=r"marks of sequence 0: expected whole numbers; got 1\.7"):
        EventSequences.from_lists([[0.0, 1.0]], [[0, 1.7]])
    with pytest.raises(DataError, match="times of sequence 0: expected real numbers; got complex128"):
        EventSequences.from_lists([[0.0, 1j]])


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"actions": np.array([0, 1, -1, 0, 1, 0])}, "actions: expected whole numbers from 0; got -1 at 2"),
        ({"actions": np.zeros(6, dtype=bool)}, "actions: expected real numbers; got bool"),
        ({"actions": np.zeros((6, 2, 2))}, r"one row per transition .* actions \(6, 2, 2\)"),
        ({"actions": np.zeros((6, 1), dtype=complex)}, "actions: expected real numbers; got complex128"),
        ({"actions": np.zeros((6, 0))}, "need at least one number"),
        ({"rewards": np.zeros((6, 1))}, r"one row per transition .* rewards \(6, 1\)"),
        ({"rewards": np.array(["1"] * 6)}, "rewards: expected real numbers; got <U1"),
        ({"observations": np.zeros(6)}, r"one row per transition .* observations \(6,\)"),
        ({"observations": np.zeros((6, 0))}, "need at least one number"),
        ({"observations": np.array(1.0)}, "one row per transition"),
        (
            {"terminals": np.array([0, 0, 0, 0, 0, 0.5])},
            "terminals: expected whole numbers from 0 to 1; got 0.5",
        ),
        (
            {"terminals": np.array([0, 0, 0, 0, 0, np.nan])},
            "terminals: expected whole numbers from 0 to 1; got nan",
        ),
        ({"timeouts": np.array([0, 0, 0, 0, 0, 2])}, "timeouts: expected whole numbers from 0 to 1; got 2"),
        ({"timeouts": np.zeros((6, 1), dtype=bool)}, r"timeouts \(6, 1\)"),
        ({"record": np.array("[1]")}, "its record must be a JSON object"),
        ({"record": np.array("{")}, "readable record"),
        ({"record": np.array(["{}", "{}"])}, "readable record"),
        ({"record": np.array("[" * 100_000)}, "readable record"),
    ],
)
def test_trajectory_arrays_are_checked(tmp_path: Path, changes: dict[str, np.ndarray], fault: str) -> None:
    arrays = {
        "observations": np.zeros((6, 2)),
        "actions": np.zeros((6, 1)),
        "rewards": np.zeros(6),
        "terminals": np.arange(6) == 5,
        "timeouts": np.zeros(6, dtype=bool),
    }
    np.savez(tmp_path / "a.npz", **{**arrays, **changes})
    with pytest.raises(DataError, match=fault):
        trajectory_files.read(tmp_path / "a.npz")


def test_numbers_pass_as_they_are() -> None:
    assert reals([1, 2], name="x").dtype == np.float64
    assert wholes(np.array([3.0]), name="x").tolist() == [3]
    assert flags([0, 1], name="x").tolist() == [False, True]
    assert narrow(np.array([3e38]), name="x").dtype == np.float32
    with pytest.raises(DataError, match="x: expected numbers"):
        reals([[1], [1, 2]], name="x")
