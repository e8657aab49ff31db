import os
from pathlib import Path

import pytest

from aaren.files.atomic import remove_leftovers, replacing, write_bytes, write_text


def test_a_failure_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text(f"new {1 / int('0')}")
    assert [item.read_text() for item in tmp_path.iterdir()] == ["old"]


def test_a_failure_leaves_the_old_folder_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    write_text(path / "a.txt", "old")
    with pytest.raises(FileExistsError), replacing(path) as temporary:  # noqa: PT012  # a folder, half full
        write_text(temporary / "a.txt", "new")
        temporary.mkdir()
    assert [item.name for item in tmp_path.iterdir()] == ["folder"]
    assert (path / "a.txt").read_text() == "old"
    with replacing(path) as temporary:
        temporary.mkdir()
        (temporary / "b.txt").write_text("new")
    assert [item.name for item in path.iterdir()] == ["b.txt"]


def test_a_file_never_takes_the_place_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "a.txt").write_text("old")
    with pytest.raises(IsADirectoryError):
        write_text(folder, "new")
    assert [item.name for item in tmp_path.iterdir()] == ["results"]
    assert (folder / "a.txt").read_text() == "old"


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_bytes(link, b"new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    write_text(tmp_path / "update-1", "kept")
    child = os.fork()
    if child == 0:
        with replacing(tmp_path / "update-2") as temporary:
            temporary.mkdir()
            os._exit(0)
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 2
    remove_leftovers(tmp_path, "update-*")
    assert [item.name for item in tmp_path.iterdir()] == ["update-1"]


def test_a_name_with_a_zero_byte_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="zero byte"):
        write_text(tmp_path / "a\0b", "text")
