"""Large results on huge pages, where the system offers them.

A fresh 32 MB tensor of 4 kB pages costs 8,192 page faults, more time than the kernel that fills it. Linux
gives 2 MB pages to memory that asks for them; elsewhere nothing happens. Advice cannot change a result.
"""

import ctypes
import sys

from torch import Tensor

LARGE = 8 << 20  # bytes; smaller blocks are mostly recycled by the allocator without new faults
_PAGE = 4096
_MADV_HUGEPAGE = 14  # linux/mman.h

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
if _libc is not None:
    _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def on_huge_pages(tensor: Tensor) -> Tensor:
    """Ask for huge pages under a new tensor that is about to be filled, and return it."""
    if _libc is not None and tensor.nbytes >= LARGE:
        start = -(-tensor.data_ptr() // _PAGE) * _PAGE
        stop = (tensor.data_ptr() + tensor.nbytes) // _PAGE * _PAGE
        _libc.madvise(start, stop - start, _MADV_HUGEPAGE)  # a refusal is fine
    return tensor
