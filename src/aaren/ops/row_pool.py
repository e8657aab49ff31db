"""A small thread pool that runs a GIL-free kernel over slices of rows.

Ours and not Numba's `parallel=True`, whose `workqueue` layer aborts on concurrent calls and whose `omp` layer
kills a forked child. Calls from several Python threads share the workers; a forked child builds its own.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

_executors: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=_executors.clear)  # a child inherits the object but not its threads


def run(kernel: Callable[..., None], cuts: list[int], *arguments: object) -> None:
    """Call kernel(first_row, stop_row, *arguments) between neighbouring cuts, the last one in this thread."""
    slices = list(pairwise(cuts))
    if len(slices) == 1:
        kernel(*slices[0], *arguments)
        return
    pool = _executor(len(slices) - 1)
    futures = [pool.submit(kernel, *piece, *arguments) for piece in slices[:-1]]
    kernel(*slices[-1], *arguments)
    for future in futures:
        future.result()


def _executor(num_workers: int) -> ThreadPoolExecutor:
    pool = _executors.get(num_workers)
    if pool is None:
        pool = _executors.setdefault(num_workers, ThreadPoolExecutor(num_workers, thread_name_prefix="aaren"))
    return pool
