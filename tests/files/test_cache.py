import os
from pathlib import Path

import numpy as np
import pytest

from aaren.files.archive import content_sha256, noting_checksums
from aaren.files.folders import Arrays, cached
from aaren.forecasting.data import read_series


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
        arrays = cached(content_sha256(source), "reader 1", lambda: counting(calls))
        assert arrays["values"].tolist() == [0.0, 1.0, 2.0]
        assert arrays["names"].tolist() == ["a", "b"]
    assert len(calls) == 1
    cached(content_sha256(source), "reader 2", lambda: counting(calls))
    assert len(calls) == 2
    source.write_text("22")
    cached(content_sha256(source), "reader 1", lambda: counting(calls))
    assert len(calls) == 3


def test_a_file_of_the_same_size_and_time_with_other_content_is_read_anew(source: Path) -> None:
    path = source
    path.write_text("date,x\n2020-01-01,1\n2020-01-02,2\n")
    before = path.stat()
    assert read_series(path).values[:, 0].tolist() == [1.0, 2.0]
    path.write_text("date,x\n2020-01-01,3\n2020-01-02,4\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    with noting_checksums() as checksums:
        assert read_series(path).values[:, 0].tolist() == [3.0, 4.0]
    assert checksums == {"series.csv": content_sha256(path)}


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not an archive"])
def test_a_damaged_entry_is_made_again(source: Path, tmp_path: Path, damage: bytes) -> None:
    calls: list[int] = []
    cached(content_sha256(source), "1", lambda: counting(calls))
    (entry,) = (tmp_path / "cache").rglob("*.npz")
    entry.write_bytes(damage)
    assert cached(content_sha256(source), "1", lambda: counting(calls))["values"].tolist() == [0.0, 1.0, 2.0]
    assert len(calls) == 2
    cached(content_sha256(source), "1", lambda: counting(calls))
    assert len(calls) == 2


def test_a_cache_that_cannot_be_written_costs_only_time(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    calls: list[int] = []
    assert cached(content_sha256(source), "1", lambda: counting(calls))["values"].shape == (3,)
