import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from aaren.errors import StateError, UnwritableError
from aaren.files.atomic import write_text
from aaren.files.lock import InUseError, locked, locked_file


def test_a_held_folder_names_its_holder(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "run"),
        pytest.raises(InUseError, match=rf"run is in use by process {os.getpid()}\. Wait for it") as caught,
        locked(tmp_path / "run"),
    ):
        pass
    assert caught.value.holder == str(os.getpid())
    with locked(tmp_path / "run"):
        pass


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with locked(tmp_path):
            time.sleep(60)
    while not (tmp_path / ".lock").exists() or not (tmp_path / ".lock").read_text():
        time.sleep(0.01)
    with pytest.raises(StateError, match=f"in use by process {child}"), locked(tmp_path):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("name", ["file", "file/folder", "zero\0byte", "x" * 5000])
def test_a_place_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    for hold in (locked, locked_file):
        with pytest.raises(UnwritableError, match="cannot write to"), hold(tmp_path / name / "more"):
            pass


def add_one(path: Path) -> None:
    for _ in range(20):
        with locked_file(path):
            number = int(path.read_text())
            time.sleep(0.001)
            write_text(path, str(number + 1))


def test_processes_wait_for_a_file(tmp_path: Path) -> None:
    path = tmp_path / "count.txt"
    path.write_text("0")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=add_one, args=(path,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert path.read_text() == "40"


def test_waiting_has_an_end_and_names_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with (
        locked_file(path),
        pytest.raises(InUseError, match=f"in use by process {os.getpid()} after 0 s"),
        locked_file(path, wait_seconds=0.1),
    ):
        pass
