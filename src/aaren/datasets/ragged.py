"""Sequences of different lengths in one array: sequence i is `values[offsets[i] : offsets[i + 1]]`."""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Integers: TypeAlias = NDArray[np.int64]


def offsets_from_lengths(lengths: ArrayLike) -> Integers:
    """Say where each sequence begins in the flat array; the last entry is the number of events."""
    counted = np.asarray(lengths, dtype=np.int64)
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counted, dtype=np.int64)])
