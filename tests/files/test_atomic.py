import multiprocessing
import time
from pathlib import Path

import pytest

from aaren.errors import DataError
from aaren.files.atomic import locked, replacing


def add_one(path: Path) -> None:
    for _ in range(20):
        with locked(path):
            number = int(path.read_text())
            time.sleep(0.001)
            with replacing(path) as temporary:
                temporary.write_text(str(number + 1))


def test_a_failure_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text(f"new {1 / int('0')}")
    assert [item.read_text() for item in tmp_path.iterdir()] == ["old"]


def test_processes_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "count.txt"
    path.write_text("0")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=add_one, args=(path,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert path.read_text() == "40"


def test_waiting_has_an_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with (
        locked(path),
        pytest.raises(DataError, match="another process has been at"),
        locked(path, wait_seconds=0.1),
    ):
        pass
