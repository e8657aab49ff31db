import os
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import DataError
from aaren.files import folders
from aaren.files.archive import content_sha256, noting_checksums
from aaren.files.folders import Arrays, cached
from aaren.forecasting.data import read_series


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("AAREN_DATA", raising=False)
    return tmp_path


def put(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_users_cache_is_always_the_last_root(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folders.roots() == (home / "cache" / "aaren" / "data",)
    monkeypatch.setenv("AAREN_DATA", os.pathsep.join(["/a", "/b"]))
    assert folders.roots() == (Path("/a"), Path("/b"), home / "cache" / "aaren" / "data")


def test_roots_are_searched_in_order_and_plain_before_compressed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AAREN_DATA", os.pathsep.join([str(home / "a"), str(home / "b")]))
    assert folders.find("events", "sin.npz") is None
    last = put(home / "cache" / "aaren" / "data" / "events" / "sin.npz")
    assert folders.find("events", "sin.npz") == last
    xz = put(home / "b" / "events" / "sin.npz.xz")
    assert folders.find("events", "sin.npz") == xz
    gz = put(home / "b" / "events" / "sin.npz.gz")
    assert folders.find("events", "sin.npz") == gz
    plain = put(home / "b" / "events" / "sin.npz")
    assert folders.find("events", "sin.npz") == plain
    first = put(home / "a" / "events" / "sin.npz.gz")
    assert folders.find("events", "sin.npz") == first


def test_a_closed_folder_is_never_written_to_even_by_root(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = home / "mirror"
    closed.mkdir()
    closed.chmod(0o555)
    monkeypatch.setenv("AAREN_DATA", os.pathsep.join([str(closed), str(home / "mine")]))
    assert folders.place("rl", "x.npz") == home / "mine" / "rl" / "x.npz"
    assert (home / "mine" / "rl").is_dir()
    closed.chmod(0o755)


def test_without_a_writable_root_the_error_says_what_to_set(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = home / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    monkeypatch.setenv("AAREN_DATA", str(closed))
    monkeypatch.setenv("XDG_CACHE_HOME", str(closed))
    with pytest.raises(DataError):
        folders.place("rl", "x.npz")
    closed.chmod(0o755)


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
