import os
import signal
import time
from pathlib import Path

import pytest

from aaren.errors import StateError
from aaren.files.lock import locked


def test_a_held_folder_names_its_holder(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "run"),
        pytest.raises(StateError, match=rf"run is in use by process {os.getpid()}\. Wait for it"),
        locked(tmp_path / "run"),
    ):
        pass
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


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StateError, match=r"cannot write to .*Choose another folder"),
        locked(tmp_path / "file"),
    ):
        pass
