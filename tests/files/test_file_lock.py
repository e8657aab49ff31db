from pathlib import Path

from aaren.files.lock import try_lock, unlock


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("a+b") as first, path.open("a+b") as second:
        assert try_lock(first.fileno())
        assert not try_lock(second.fileno())
        unlock(first.fileno())
        assert try_lock(second.fileno())


def test_shared_holders_keep_a_lone_one_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("a+b") as first, path.open("a+b") as second, path.open("a+b") as alone:
        assert try_lock(first.fileno(), is_shared=True)
        assert try_lock(second.fileno(), is_shared=True)
        assert not try_lock(alone.fileno())


def test_a_closed_file_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("a+b") as first:
        assert try_lock(first.fileno())
    with path.open("a+b") as second:
        assert try_lock(second.fileno())
