import os
from pathlib import Path

import pytest

from aaren.errors import DataError
from aaren.files import folders


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
    assert folders.writable_root() == home / "mine"
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
    with pytest.raises(DataError, match=r"none of these folders can be written to: .*Set \$AAREN_DATA"):
        folders.writable_root()
    closed.chmod(0o755)


def test_a_missing_file_says_where_it_was_looked_for(home: Path) -> None:
    with pytest.raises(
        DataError, match=r"no file events/sin.npz \(plain, .gz or .xz\) in: .*cache/aaren/data"
    ):
        folders.require("events", "sin.npz")
    with pytest.raises(DataError, match="Run aaren data fetch sin"):
        folders.require("events", "sin.npz", cure="Run aaren data fetch sin.")
    assert home.exists()
