"""Run a compiled function on several threads at once, each taking pieces of the work until none are left.

On Linux the threads are torch's: they spin for a while after every operation, and threads of our own would
share a core with them, at almost twice the time. In a forked child, where OpenMP's threads are gone without
its knowing, and where torch has another OpenMP, the threads are our own.
"""

import ctypes
import os
import sys
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from aaren.ops.cpu.library import Kernel

Field: TypeAlias = int | Tensor | None  # a number, or a contiguous tensor, or none, whose address is meant

_is_forked = False
_has_used_openmp = False
_executors: dict[int, ThreadPoolExecutor] = {}


def run(function: Kernel, fields: Sequence[Field], *, num_pieces: int, num_threads: int) -> None:
    """Call a kernel with a job: the fields of its C structure, behind those of `work`, all of eight bytes.

    It runs on at most so many threads, this one included, which take pieces of its work.
    """
    numbers = [
        field if isinstance(field, int) else 0 if field is None else field.data_ptr() for field in fields
    ]
    job = array("q", [0, num_pieces, *numbers])
    address = job.buffer_info()[0]
    num_threads = min(num_threads, num_pieces)
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


def _run_on_own_threads(function: Kernel, address: int, num_threads: int) -> None:
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
def _openmp() -> Callable[[Kernel, int, int, int], None] | None:
    """Return what starts a parallel region in the OpenMP that torch has loaded, if available."""
    if sys.platform != "linux":
        return None
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    for path in sorted(path for path in loaded if "libgomp" in Path(path).name and "torch" in path):
        start = getattr(ctypes.CDLL(path), "GOMP_parallel", None)  # the library in use: its path is the same
        if start is not None:
            start.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            start.restype = None
            found: Callable[[Kernel, int, int, int], None] = start
            return found
    return None


def _enter_child() -> None:
    """Work without the parent's threads, for which OpenMP would wait without end, in torch's operations too.

    So if it was used from here, torch gets one thread, as in the workers of its DataLoader.
    """
    global _is_forked
    _is_forked = True
    _executors.clear()
    if _has_used_openmp:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_enter_child)
