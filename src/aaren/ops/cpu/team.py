"""Run a compiled function on several threads at once, each taking shares of the work until none are left.

On Linux the threads are those that torch itself computes with. They spin for a while after every operation
of torch, so threads of our own would share a core with them: with those, the scan took almost twice as long.
In a forked child, where OpenMP's threads are gone without its knowing, and where torch has another OpenMP,
the threads are our own. Numba's `parallel=True` is no choice: its `workqueue` layer aborts on concurrent
calls, its `omp` layer kills a forked child.

Knows nothing of what is computed; `shares` is the compiled side of it.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

Function: TypeAlias = Callable[[int], None]  # takes the address of a job, releases the GIL
Field: TypeAlias = int | Tensor  # a number, or a contiguous tensor whose address is meant

PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_is_forked = False
_has_used_openmp = False
_executors: dict[int, ThreadPoolExecutor] = {}


def run(function: Function, cuts: Sequence[int], fields: Sequence[Field], *, num_threads: int) -> None:
    """Call a function, compiled as `shares` describes, with a job on as many threads as are worth it.

    Args:
        function: A C function of the job's address; it takes shares until none are left.
        cuts: Where shares begin and end; neighbours are one share.
        fields: What else the function reads from the job.
        num_threads: At most so many, this one included.
    """
    ends = np.array(cuts, np.int64)
    numbers = [field.data_ptr() if isinstance(field, Tensor) else field for field in fields]
    job = np.array([0, len(cuts) - 1, ends.ctypes.data, *numbers], np.int64)
    address = job.ctypes.data
    num_threads = min(num_threads, len(cuts) - 1)
    if num_threads < 2:
        function(address)
        return
    fork_and_join = None if _is_forked else _openmp()
    if fork_and_join is None:
        _run_on_own_threads(function, address, num_threads)
    else:
        global _has_used_openmp
        _has_used_openmp = True
        fork_and_join(function, address, num_threads, 0)


def _run_on_own_threads(function: Function, address: int, num_threads: int) -> None:
    pool = _executors.get(num_threads)
    if pool is None:
        new = ThreadPoolExecutor(num_threads - 1, thread_name_prefix="aaren")
        pool = _executors.setdefault(num_threads, new)
    futures = [pool.submit(function, address) for _ in range(num_threads - 1)]
    function(address)
    for future in futures:
        if not future.cancel():  # a thread that never got a core has nothing left to do
            future.result()


@cache
def _openmp() -> Callable[[Function, int, int, int], None] | None:
    """Return what starts a parallel region in the OpenMP that torch has loaded, if it can be had."""
    if sys.platform != "linux":
        return None
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    for path in sorted(path for path in loaded if "libgomp" in Path(path).name and "torch" in path):
        start = getattr(ctypes.CDLL(path), "GOMP_parallel", None)  # the library in use: its path is the same
        if start is not None:
            start.argtypes, start.restype = [PROTOTYPE, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
            found: Callable[[Function, int, int, int], None] = start
            return found
    return None


def _enter_child() -> None:
    """Live without the parent's threads.

    In a child, OpenMP waits for ever for threads that only the parent had, in torch's operations too; so if
    it was used from here, torch gets one thread there, as in the workers of its DataLoader.
    """
    global _is_forked
    _is_forked = True
    _executors.clear()
    if _has_used_openmp:
        torch.set_num_threads(1)


os.register_at_fork(after_in_child=_enter_child)
