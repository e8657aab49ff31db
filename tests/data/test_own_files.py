import pickle
from pathlib import Path

import numpy as np
import pytest

from aaren.data.own_files import check_file, guess_setting
from aaren.errors import ConfigError, DataError

TS = "@problemName X\n@timeStamps false\n@classLabel true a b\n@data\n1,2,3:4,5,6:a\n4,?,6:1,1,1:b\n"


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
    assert dict(finding.measured) == {"train": 2, "test": 2, "channels": 2, "length": 3, "classes": 2}


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
