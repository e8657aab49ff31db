import threading
import time

import pytest

from aaren.ops import row_pool


def test_every_slice_is_run_once():
    seen = []
    row_pool.run(lambda *piece: seen.append(piece), [0, 3, 5, 9], "x", num_threads=2)
    assert sorted(seen) == [(0, 3, "x"), (3, 5, "x"), (5, 9, "x")]


def test_one_thread_is_the_calling_one():
    threads = set()
    row_pool.run(lambda *_: threads.add(threading.current_thread()), [0, 1, 2, 3], num_threads=1)
    assert threads == {threading.current_thread()}


def test_a_free_thread_takes_over_from_a_busy_one():
    workers = {}

    def kernel(first: int, _stop: int) -> None:
        workers[first] = threading.current_thread()
        if first == 0:
            time.sleep(0.3)

    row_pool.run(kernel, [0, 1, 2, 3, 4], num_threads=2)
    assert all(workers[first] is not workers[0] for first in (1, 2, 3))


def test_an_error_in_any_thread_reaches_the_caller():
    def kernel(first: int, stop: int) -> None:
        time.sleep(0.01)
        raise ValueError(f"broken rows {first}:{stop}")

    with pytest.raises(ValueError, match="broken rows"):
        row_pool.run(kernel, [0, 1, 2], num_threads=2)
