"""Dropout in one pass over memory: whether an item is kept is a hash of its place and of two keys.

The backward pass hashes again instead of reading a mask, and neither depends on how the work is divided among
threads. The hash is three rounds of 32-bit multiplications and shifts with a key mixed in before the first
and the second, which becomes SIMD code.

Importing this file imports Numba; `machine_code` does it when nothing compiled is on disk.
"""

from collections.abc import Callable

import numpy as np
from numba import njit, types, uint32
from numpy.typing import NDArray

from aaren.ops.cpu.shares import array_at, read_cuts, read_fields, take_share


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
        items, threshold, first_key, second_key, source_at, target_at, scale_at = read_fields(at, 7)
        source, target = array_at(source_at, items, number), array_at(target_at, items, number)
        scale = array_at(scale_at, 1, number)[0]
        cuts = read_cuts(at)
        share = take_share(at)
        while share < len(cuts) - 1:
            drop_items(
                cuts[share], cuts[share + 1], source, target,
                uint32(threshold), scale, uint32(first_key), uint32(second_key),
            )  # fmt: skip
            share = take_share(at)

    return run
