import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest

from aaren.datasets.verify import check_file, guess_setting
from aaren.errors import ConfigError, DataError

HEADER = "@problemName X\n@timeStamps false\n@classLabel true a b c\n@data\n"
TS = HEADER + "1,2,3:4,5,6:a\n4,?,6:1,1,1:b\n1,3,5:2,4,6:a\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_table_of_dates(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_text("date,a\n2020-01-01,1\n2020-01-02,2\n2020-01-03,-9999\n")
    with pytest.raises(DataError, match="sentinel"):
        check_file(path)
    finding = check_file(path, allow_irregular=True)
    assert dict(finding.measured) == {
        "rows": 3,
        "series": 1,
        "first": "2020-01-01T00:00:00",
        "last": "2020-01-03T00:00:00",
        "sentinels": 1,
    }


def test_a_folder_of_series(tmp_path: Path) -> None:
    folder = tmp_path / "gestures"
    folder.mkdir()
    with pytest.raises(DataError, match=r"expected one file NAME_TRAIN.ts .*; found 0"):
        check_file(folder)
    (folder / "gestures_TRAIN.ts").write_text(TS)
    (folder / "gestures_TEST.ts").write_text(TS)
    with pytest.raises(DataError, match="1 missing value"):
        check_file(folder)
    finding = check_file(folder, allow_irregular=True)
    assert dict(finding.measured) == {"train": 3, "test": 3, "channels": 2, "length": 3, "classes": 2}


@pytest.mark.parametrize(
    ("train", "test", "words"),
    [
        ("1,2:a\n3,4:a\n5,6:b\n", "1,2:c\n", "labels unseen in TRAIN: c"),
        ("1,2:a\n3,4:a\n", "", "one class only"),
        ("1,2:a\n3,4:b\n", "", "every case has a label of its own"),
        ("1,2:a\n3,4:a\n1:b\n", "1,2:a\n", r"case 2 has 1 time step\(s\)"),
        ("1,2:a\n3,4:a\n1,inf:b\n", "1,2:a\n", "case 2, channel 0 holds inf"),
        ("1,2:a\n3,4:a\n5,6:b\n7,8:b\n", "", "2 of 4 cases are held out"),
    ],
)
def test_series_that_training_would_refuse(tmp_path: Path, train: str, test: str, words: str) -> None:
    path = tmp_path / "mine_TRAIN.ts"
    path.write_text(HEADER + train)
    if test:
        path.with_name("mine_TEST.ts.gz").write_bytes(gzip.compress((HEADER + test).encode()))
    with pytest.raises(DataError, match=words):
        check_file(path)


def test_a_test_part_alone_need_not_be_fit_for_training(tmp_path: Path) -> None:
    path = tmp_path / "mine_TEST.ts"
    path.write_text(HEADER + "1,2:a\n")
    assert check_file(path).measured["classes"] == 1
    path.write_text(path.read_text() + "1:a\n")
    with pytest.raises(DataError, match=r"mine_TEST\.ts: case 1 has 1 time step"):
        check_file(path)


def test_an_event_table(tmp_path: Path) -> None:
    path = tmp_path / "events.npz"
    np.savez(path, times=np.array([0.0, 1.0, 0.5, 2.0]), offsets=np.array([0, 2, 4]))
    with pytest.raises(ConfigError, match=r"cannot tell what events.npz is: add --as"):
        check_file(path)
    assert check_file(path, setting="events").measured["sequences"] == 2


def test_settings_are_guessed_or_asked_for(tmp_path: Path) -> None:
    assert guess_setting(Path("a.parquet")) == "events"
    assert guess_setting(Path("a.hdf5")) == "rl"
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(ConfigError, match="unknown setting 'event'; did you mean 'events'"):
        check_file(tmp_path / "a.csv", setting="event")


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(DataError, match="is a pickle"):
        check_file(path)


def test_a_table_that_is_no_series_may_be_events(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("user,hour\na,1.5\na,2.5\n")
    with pytest.raises(DataError, match=r"If it is a table of events, add --as events\.$"):
        check_file(path)
    with pytest.raises(DataError, match=r"--column time=NAME --column sequence=NAME"):
        check_file(path, setting="events")


def test_columns_of_events_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user,when,action\na,1.0,x\na,2.0,y\n")
    columns = {"sequence": "user", "time": "when", "mark": "action"}
    assert check_file(path, setting="events", columns=columns).measured["marks"] == 2
    with pytest.raises(ConfigError, match="unknown column of events 'tme'; did you mean 'time'"):
        check_file(path, setting="events", columns={"tme": "when"})
    with pytest.raises(ConfigError, match="forecasting has no columns to name"):
        check_file(path, setting="forecasting", columns=columns)
