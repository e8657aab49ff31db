"""Dropout in one pass over memory: whether an item is kept is a hash of its place and of two keys.

The backward pass hashes again instead of reading a mask, and neither depends on how the work is divided among
threads. The hash is three rounds of 32-bit multiplications and shifts with a key mixed in before the first
and the second, which becomes SIMD code.

Importing this file imports Numba; only `dropout` does it, at the first call.
"""

import numpy as np
from numba import njit, uint32
from numpy.typing import NDArray


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]  # numba ships no types
def drop_items(
    first: int,
    stop: int,
    source: NDArray[np.floating],  # (n,)
    target: NDArray[np.floating],  # (n,)
    threshold: np.uint32,  # items whose hash is below it are dropped
    scale: np.floating,
    first_key: np.uint32,
    second_key: np.uint32,
) -> None:
    """Set target[i] to source[i] * scale, or to 0, for i in first : stop."""
    for place in range(first, stop):
        mixed = uint32(uint32(place) ^ first_key)
        mixed = uint32(mixed * uint32(0x7FEB352D))
        mixed = uint32(mixed ^ (mixed >> uint32(15)))
        mixed = uint32(uint32(mixed ^ second_key) * uint32(0x846CA68B))
        mixed = uint32(mixed ^ (mixed >> uint32(16)))
        mixed = uint32(mixed * uint32(0x9E3779B1))
        mixed = uint32(mixed ^ (mixed >> uint32(15)))
        target[place] = source[place] * scale if mixed >= threshold else 0.0 * scale
