"""A small thread pool that runs a GIL-free kernel over slices of rows.

Ours and not Numba's `parallel=True`, whose `workqueue` layer aborts on concurrent calls and whose `omp` layer
kills a forked child. Calls from several Python threads share the workers; a forked child builds its own.

Slices are handed out one by one to whoever is free: PyTorch's own threads spin for a millisecond or more
after every operation, so a worker may find its core half taken; the calling thread then does more.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

_executors: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=_executors.clear)  # a child inherits the object but not its threads


def run(kernel: Callable[..., None], cuts: list[int], *arguments: object, num_threads: int) -> None:
    """Call kernel(first_row, stop_row, *arguments) between neighbouring cuts, in this thread and others."""
    slices = pairwise(cuts)
    num_helpers = min(num_threads, len(cuts) - 1) - 1
    if num_helpers < 1:
        _work(kernel, slices, arguments)
        return
    pool = _executor(num_helpers)
    futures = [pool.submit(_work, kernel, slices, arguments) for _ in range(num_helpers)]
    _work(kernel, slices, arguments)
    for future in futures:
        if not future.cancel():  # a helper that never got a core has nothing left to do
            future.result()


def _work(
    kernel: Callable[..., None], slices: Iterator[tuple[int, int]], arguments: tuple[object, ...]
) -> None:
    for first, stop in slices:  # the iterator is shared; the GIL hands out each slice once
        kernel(first, stop, *arguments)


def _executor(num_workers: int) -> ThreadPoolExecutor:
    pool = _executors.get(num_workers)
    if pool is None:
        pool = _executors.setdefault(num_workers, ThreadPoolExecutor(num_workers, thread_name_prefix="aaren"))
    return pool
