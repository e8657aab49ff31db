"""Memory for large results: on huge pages where the system offers them, and used again when it is free.

A fresh 32 MB tensor of 4 kB pages costs 8,192 page faults, more time than the kernel that fills it, and the C
library gives such blocks back to the system when they are freed. Keeping a few is two to four times as fast.
"""

import mmap
import os
import threading
import weakref

import torch
from torch import Tensor

from aaren.ops.state import PLAIN

LARGE = 8 << 20  # bytes; smaller blocks are mostly recycled by the C library without new faults
HUGE_PAGE = 2 << 20
# Bytes to hold while no tensor uses them: an eighth of a small machine's memory; Windows does not tell it.
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2 << 30
KEPT_AT_MOST = min(512 << 20, MEMORY // 8)

_kept: list[mmap.mmap] = []  # free blocks, oldest first
_lock = threading.RLock()  # reentrant: a finalizer may run at any moment, also while this thread holds it


def uninitialised(like: Tensor) -> Tensor:
    """Return a contiguous tensor to be filled; its content is arbitrary."""
    is_ours = type(like) in PLAIN and like.is_cpu and like.nbytes >= LARGE
    if not is_ours or torch.are_deterministic_algorithms_enabled():  # which also fills what is empty
        return torch.empty_like(like, memory_format=torch.contiguous_format)
    block = _take(-(-like.nbytes // HUGE_PAGE) * HUGE_PAGE)  # Linux puts whole ones where such a page begins
    view = memoryview(block)
    # The tensor's storage holds `view`, and nothing else does: when one dies, so does the other.
    weakref.finalize(view, _give_back, block).atexit = False
    return torch.frombuffer(view, dtype=like.dtype, count=like.numel()).view(like.shape)


def _take(num_bytes: int) -> mmap.mmap:
    with _lock:
        for block in tuple(_kept):
            if len(block) == num_bytes and block in _kept:  # a finalizer may just have dropped it
                _kept.remove(block)
                return block
    if not hasattr(mmap, "MAP_PRIVATE"):  # on Windows
        return mmap.mmap(-1, num_bytes)
    fresh = mmap.mmap(-1, num_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # a forked child has its own
    if hasattr(mmap, "MADV_HUGEPAGE"):
        fresh.madvise(mmap.MADV_HUGEPAGE)
    return fresh


def _give_back(block: mmap.mmap) -> None:
    with _lock:
        _kept.append(block)
        while sum(map(len, _kept)) > KEPT_AT_MOST:
            _kept.pop(0)
