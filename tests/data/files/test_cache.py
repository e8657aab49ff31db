from pathlib import Path

import numpy as np
import pytest

from aaren.data.files.cache import Arrays, cached


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "series.csv"
    path.write_text("1")
    return path


def counting(calls: list[int]) -> Arrays:
    calls.append(1)
    return {"values": np.arange(3.0), "names": np.array(["a", "b"])}


def test_what_was_parsed_once_is_read_from_the_cache_until_something_changes(source: Path) -> None:
    calls: list[int] = []
    for _ in range(3):
        arrays = cached([source], "reader 1", lambda: counting(calls))
        assert arrays["values"].tolist() == [0.0, 1.0, 2.0]
        assert arrays["names"].tolist() == ["a", "b"]
    assert len(calls) == 1
    cached([source], "reader 2", lambda: counting(calls))
    assert len(calls) == 2
    source.write_text("22")
    cached([source], "reader 1", lambda: counting(calls))
    assert len(calls) == 3


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not an archive"])
def test_a_damaged_entry_is_made_again(source: Path, tmp_path: Path, damage: bytes) -> None:
    calls: list[int] = []
    cached([source], "1", lambda: counting(calls))
    (entry,) = (tmp_path / "cache").rglob("*.npz")
    entry.write_bytes(damage)
    assert cached([source], "1", lambda: counting(calls))["values"].tolist() == [0.0, 1.0, 2.0]
    assert len(calls) == 2
    cached([source], "1", lambda: counting(calls))
    assert len(calls) == 2


def test_a_cache_that_cannot_be_written_costs_only_time(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    calls: list[int] = []
    assert cached([source], "1", lambda: counting(calls))["values"].shape == (3,)
