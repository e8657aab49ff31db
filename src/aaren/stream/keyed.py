"""What a push of a pool takes: keys, and one of everything for each; checked, and put into turns."""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from reprlib import repr as short
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from aaren.errors import DataError
from aaren.stream.session import read_numbers

Items: TypeAlias = Sequence[Any] | NDArray[np.generic] | Tensor


def turns(of_key: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Divide items into turns, in each of which a key has one: its first, its second, ...

    Keys are put in an order in which those with more items come first, so that a turn has an item of each of
    the first keys.

    Returns:
        The keys in their order; the items by turns; how many each turn has.

    >>> turns(np.array([0, 1, 2, 1, 2, 1]))
    (array([1, 2, 0]), array([1, 2, 0, 3, 4, 5]), [3, 2, 1])
    """
    counts = np.bincount(of_key)
    keys = np.argsort(-counts, kind="stable")
    rank = np.empty_like(keys)
    rank[keys] = np.arange(len(keys))
    by_key = np.argsort(of_key, kind="stable")
    turn = np.empty_like(of_key)
    turn[by_key] = np.arange(len(of_key)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = np.lexsort((rank[of_key], turn))
    return keys, order, np.bincount(turn).tolist()


def pick(values: Items, chosen: NDArray[np.int64]) -> Any:
    """Return those of these places."""
    if isinstance(values, Tensor | np.ndarray):
        return values[chosen]
    return [values[index] for index in chosen.tolist()]


def slice_from(value: Items, first: int) -> Any:
    """Return those from a place on; lists of numbers as an array, which is faster to pick from."""
    if isinstance(value, list | tuple) and value and not isinstance(value[0], Tensor):
        with contextlib.suppress(ValueError, TypeError, OverflowError):  # the session will say what is wrong
            array = np.asarray(value)
            if array.dtype.kind in "iufb":
                value = array if array.dtype == np.bool_ else array.astype(np.float64, copy=False)
    return value[first:]


def read_keys(values: Iterable[str]) -> list[str]:
    """Return keys that are text which can be stored."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise DataError(f"keys are several, one per item, in a list; got {short(values)}.")
    keys = list(values)
    for key in keys:
        value: object = key
        if not isinstance(value, str):
            raise DataError(f"a key is text; got {short(value)}. Convert it: str(...).")
    if not is_text("".join(keys)):
        wrong = next(key for key in keys if not is_text(key))
        raise DataError(
            f"the key {short(wrong)} cannot be stored: it holds half of a character (a surrogate)."
        )
    return keys


def is_text(key: str) -> bool:
    """Tell whether a key can be written as UTF-8."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_one_per_key(name: str, values: Items, count: int) -> None:
    """Raise unless there is one value for each key."""
    if isinstance(values, Mapping | str | bytes) or not hasattr(values, "__getitem__"):
        raise DataError(f"{name} must be {count}, one per key, in a list or array; got {short(values)}.")
    try:
        size = len(values)
    except TypeError as error:
        raise DataError(f"{name} must be {count}, one per key; got {short(values)}.") from error
    if size != count:
        raise DataError(f"{name} must be {count}, one per key; got {size}.")
    if isinstance(values, Tensor):
        read_numbers(name, values)


def read_whole(value: object) -> int | None:
    """Return a whole number from -1 on that the file can hold; None: it is something else."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        return None
    return int(value) if -1 <= int(value) < 2**63 else None


def read_offset(offset: object) -> int:
    """Return the number of an item of the input."""
    number = read_whole(offset)
    if number is None or number < 0:
        raise DataError(f"offset must be the number of an item of the input, from 0; got {short(offset)}.")
    return number


def read_time(value: object, name: str = "at") -> float:
    """Return a time, as a finite number."""
    try:
        time = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # whatever it is
    except (TypeError, ValueError, OverflowError):
        time = math.nan
    if not math.isfinite(time):
        raise DataError(f"{name} must be a time, as a number; got {short(value)}.")
    return time
