"""What every reader asks of numbers: real ones, whole ones, and none that a float32 cannot hold.

Models compute in float32: a number beyond it would become infinite, and everything near it NaN. Sequences of
different lengths are held in one array: sequence i is `values[offsets[i] : offsets[i + 1]]`.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aaren.errors import DataError

Integers: TypeAlias = NDArray[np.int64]
LARGEST = float(np.finfo(np.float32).max)
SMALLEST = float(np.finfo(np.float32).tiny)  # above 0
LARGEST_WHOLE = 2**53  # up to here every whole number is also a float64


def offsets_from_lengths(lengths: ArrayLike) -> Integers:
    """Say where each sequence begins in the flat array; the last entry is the number of events."""
    counted = np.asarray(lengths, dtype=np.int64)
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counted, dtype=np.int64)])


def numeric(values: ArrayLike, *, name: str) -> NDArray[np.generic]:
    """Return an array of real numbers, of whatever type; complex ones, text, flags and objects raise."""
    array = _array(values, name)
    if array.dtype.kind not in "iuf":
        raise DataError(f"{name}: expected real numbers; got {array.dtype}.")
    return array


def reals(values: ArrayLike, *, name: str) -> NDArray[np.float64]:
    """Return real numbers as float64."""
    with np.errstate(over="ignore"):
        return numeric(values, name=name).astype(np.float64)


def wholes(values: ArrayLike, *, name: str, least: int = 0, most: int = LARGEST_WHOLE) -> NDArray[np.int64]:
    """Return whole numbers from `least` to `most` as int64; nothing is rounded or cut.

    >>> wholes([0, 2.0], name="marks").tolist()
    [0, 2]
    >>> wholes([0, 1.7], name="marks")
    Traceback (most recent call last):
    aaren.errors.DataError: marks: expected whole numbers from 0; got 1.7 at 1.
    """
    array = _array(values, name)
    wanted = "whole numbers" + (f" from {least}" if least > -LARGEST_WHOLE else "")
    wanted += f" to {most}" if most < LARGEST_WHOLE else ""
    if array.dtype.kind not in "iuf":
        raise DataError(f"{name}: expected {wanted}; got {array.dtype}.")
    with np.errstate(invalid="ignore", over="ignore"):
        array = array if array.dtype.kind in "iu" else array.astype(np.float64)
        is_good = np.greater_equal(array, least) & np.less_equal(array, most)
        if array.dtype.kind == "f":
            is_good &= array == np.floor(array)
    if not is_good.all():
        value, place = _first(array, ~is_good)
        raise DataError(f"{name}: expected {wanted}; got {value}{place}.")
    return array.astype(np.int64)


def flags(values: ArrayLike, *, name: str) -> NDArray[np.bool_]:
    """Return flags; numbers must be 0 or 1."""
    array = _array(values, name)
    return np.asarray(array if array.dtype.kind == "b" else wholes(array, name=name, most=1), dtype=np.bool_)


def narrow(values: NDArray[np.generic], *, name: str, cure: str = "") -> NDArray[np.float32]:
    """Return float32; what is not finite, or not any more, raises."""
    with np.errstate(over="ignore"):
        array = numeric(values, name=name).astype(np.float32, copy=False)
    is_good = np.isfinite(array)
    if not is_good.all():
        value, place = _first(values, ~is_good)
        fault = "too large for float32" if np.isfinite(value) else "not finite"
        raise DataError(
            f"{name}: {value}{place} is {fault}, and nothing can be computed with it. {cure}".strip()
        )
    return array


def refuse_masked(values: object, *, name: str) -> None:
    """Raise for masked values, which numpy would read as what lies behind the mask."""
    parts = values if isinstance(values, list | tuple) else [values]
    if any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts):
        raise DataError(f"{name}: some values are masked. Leave them out, or fill them: array.filled(...).")


def _array(values: ArrayLike, name: str) -> NDArray[np.generic]:
    refuse_masked(values, name=name)
    try:
        return np.asarray(values)
    except (ValueError, OverflowError) as error:  # lists of different lengths
        raise DataError(f"{name}: expected numbers; {error}.") from error


def _first(array: NDArray[np.generic], chosen: NDArray[np.bool_]) -> tuple[np.generic, str]:
    place = tuple(int(number) for number in np.argwhere(chosen)[0])
    where = "" if not place else f" at {place[0] if len(place) == 1 else place}"
    return array[place], where
