from pathlib import Path

import numpy as np
import pytest

from aaren.datasets.verify import check_file, guess_setting
from aaren.errors import DataError

HEADER = "@problemName X\n@timeStamps false\n@classLabel true a b c\n@data\n"
TS = HEADER + "1,2,3:4,5,6:a\n4,?,6:1,1,1:b\n1,3,5:2,4,6:a\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_table_of_dates(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_text("date,a\n2020-01-01,1\n2020-01-02,2\n2020-01-03,-9999\n")
    with pytest.raises(DataError):
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
    with pytest.raises(DataError):
        check_file(folder)
    (folder / "gestures_TRAIN.ts").write_text(TS)
    (folder / "gestures_TEST.ts").write_text(TS)
    with pytest.raises(DataError):
        check_file(folder)
    finding = check_file(folder, allow_irregular=True)
    assert dict(finding.measured) == {"train": 3, "test": 3, "channels": 2, "length": 3, "classes": 2}


def test_a_test_part_alone_need_not_be_fit_for_training(tmp_path: Path) -> None:
    path = tmp_path / "mine_TEST.ts"
    path.write_text(HEADER + "1,2:a\n")
    assert check_file(path).measured["classes"] == 1
    path.write_text(path.read_text() + "1:a\n")
    with pytest.raises(DataError):
        check_file(path)


def test_an_event_table(tmp_path: Path) -> None:
    path = tmp_path / "events.npz"
    np.savez(path, times=np.array([0.0, 1.0, 0.5, 2.0]), offsets=np.array([0, 2, 4]))
    assert check_file(path, setting="events").measured["sequences"] == 2


def test_columns_of_events_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user,when,action\na,1.0,x\na,2.0,y\n")
    columns = {"sequence": "user", "time": "when", "mark": "action"}
    assert check_file(path, setting="events", columns=columns).measured["marks"] == 2


def test_settings_are_guessed() -> None:
    assert guess_setting(Path("a.parquet")) == "events"
    assert guess_setting(Path("a.hdf5")) == "rl"
