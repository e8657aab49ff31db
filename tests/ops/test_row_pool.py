import threading

import pytest

from aaren.ops import row_pool


def test_every_slice_is_run_once_and_the_last_one_here():
    seen, threads = [], {}

    def kernel(first: int, stop: int, label: str) -> None:
        seen.append((first, stop, label))
        threads[first] = threading.current_thread()

    row_pool.run(kernel, [0, 3, 5, 9], "x")
    assert sorted(seen) == [(0, 3, "x"), (3, 5, "x"), (5, 9, "x")]
    assert threads[5] is threading.current_thread()
    assert threads[0] is not threading.current_thread()


def test_an_error_in_a_worker_reaches_the_caller():
    def kernel(first: int, stop: int) -> None:
        if first == 0:
            raise ValueError(f"broken rows {first}:{stop}")

    with pytest.raises(ValueError, match="broken rows 0:1"):
        row_pool.run(kernel, [0, 1, 2])
