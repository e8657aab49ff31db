"""Memory for large results: on huge pages where the system offers them, and used again when it is free.

A fresh 32 MB tensor of 4 kB pages costs 8,192 page faults, more time than the kernel that fills it, and the C
library gives blocks of that size back to the system as soon as they are freed. So a few blocks are kept here
when the tensors on them die, and Linux is asked for 2 MB pages under new ones. Neither can change a result.
"""

import ctypes
import os
import sys
import threading
import weakref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LINE_BYTES = 64  # of a cache
LARGE = 8 << 20  # bytes; smaller blocks are mostly recycled by the C library without new faults
_HUGE_PAGE = 2 << 20
_PAGE = 4096
_MADV_HUGEPAGE = 14  # linux/mman.h


def _kept_at_most() -> int:
    """Return how many bytes to hold while no tensor uses them: an eighth of a small machine's memory."""
    if not hasattr(os, "sysconf"):  # not on Windows
        return 256 << 20
    return min(512 << 20, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8)


KEPT_AT_MOST = _kept_at_most()

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
if _libc is not None:
    _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

Block = NDArray[np.uint8]
_kept: list[Block] = []  # free blocks, oldest first
_lock = threading.RLock()  # reentrant: a finalizer may run at any moment, also while this thread holds it


def room(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return a CPU tensor to be filled, contiguous; what stands in it is left over from anything."""
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    if num_bytes < LARGE or torch.are_deterministic_algorithms_enabled():  # which also fills what is empty
        return torch.empty(shape, dtype=dtype)
    block = _take(num_bytes)
    array = np.ndarray(shape, dtype=np.float32 if dtype == torch.float32 else np.float64, buffer=block)
    # The tensor's storage holds `array`, and nothing else does: when one dies, so does the other.
    weakref.finalize(array, _give_back, block).atexit = False
    return torch.from_numpy(array)


def _take(num_bytes: int) -> Block:
    with _lock:
        for index, block in enumerate(_kept):
            if block.nbytes == num_bytes:
                return _kept.pop(index)
    wide: Block = np.empty(num_bytes + _HUGE_PAGE, np.uint8)  # what is never written takes no memory
    start = (
        -wide.ctypes.data % _HUGE_PAGE
    )  # else its ends lie on small pages, and cache lines across its rows
    fresh = wide[start : start + num_bytes]
    _advise_huge_pages(fresh)
    return fresh


def _give_back(block: Block) -> None:
    with _lock:
        _kept.append(block)
        while sum(kept.nbytes for kept in _kept) > KEPT_AT_MOST:
            _kept.pop(0)


def _advise_huge_pages(block: Block) -> None:
    if _libc is not None:
        start = -(-block.ctypes.data // _PAGE) * _PAGE
        stop = (block.ctypes.data + block.nbytes) // _PAGE * _PAGE
        _libc.madvise(start, stop - start, _MADV_HUGEPAGE)  # a refusal is fine
