"""Dropout in one pass over memory: whether an item is kept is a hash of its place and of two keys.

The backward pass hashes again instead of reading a mask, and neither depends on how the work is divided among
threads. The hash is three rounds of 32-bit multiplications and shifts with a key mixed in before the first
and the second, which becomes SIMD code.

Importing this file imports Numba; `machine_code` does it when nothing compiled is on disk.
"""

from collections.abc import Callable

import numpy as np
from numba import carray, njit, types, uint32
from numpy.typing import NDArray

from aaren.ops.shares import FIRST_FIELD, pointer, take_share

_F = FIRST_FIELD


@njit  # type: ignore[untyped-decorator]  # numba ships no types
def hash_place(place: int, first_key: np.uint32, second_key: np.uint32) -> np.uint32:
    """Return a number from 0 to 2^32 - 1 that looks drawn at random."""
    mixed = uint32(uint32(place) ^ first_key)
    mixed = uint32(mixed * uint32(0x7FEB352D))
    mixed = uint32(mixed ^ (mixed >> uint32(15)))
    mixed = uint32(uint32(mixed ^ second_key) * uint32(0x846CA68B))
    mixed = uint32(mixed ^ (mixed >> uint32(16)))
    mixed = uint32(mixed * uint32(0x9E3779B1))
    hashed: np.uint32 = uint32(mixed ^ (mixed >> uint32(15)))
    return hashed


@njit  # type: ignore[untyped-decorator]  # numba ships no types
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
    source, target = source[first:stop], target[first:stop]  # counted from 0: no negative index to look for
    for place in range(stop - first):
        is_kept = hash_place(first + place, first_key, second_key) >= threshold
        target[place] = source[place] * scale if is_kept else 0.0 * scale


def drop_job(number: types.Float) -> Callable[..., None]:
    """Return `drop_items` for `team`; fields: items, threshold, two keys; source, target and scale."""

    def run(at):  # type: ignore[no-untyped-def]  # numba infers
        job = carray(at, _F + 7)
        cuts = carray(pointer(job[2]), job[1] + 1, types.int64)
        threshold, first_key, second_key = uint32(job[_F + 1]), uint32(job[_F + 2]), uint32(job[_F + 3])
        source = carray(pointer(job[_F + 4]), job[_F], number)
        target = carray(pointer(job[_F + 5]), job[_F], number)
        scale = carray(pointer(job[_F + 6]), 1, number)[0]
        share = take_share(at)
        while share < job[1]:
            drop_items(cuts[share], cuts[share + 1], source, target, threshold, scale, first_key, second_key)
            share = take_share(at)

    return run
