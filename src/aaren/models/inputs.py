"""What models that go along streams accept: numbers that can be held, as many streams as a state is of.

Beside `aaren.nn.inputs`, for whole models. Knows no model.
"""

import math
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from aaren.errors import ConfigError, DataError, ShapeError, StateError

ROOM = 0.45  # power of a dtype's largest number up to which squares, as in a norm, can be held as well


def largest(dtype: torch.dtype) -> float:
    """Return the largest number that a model of this dtype takes in: one that it can still compute with.

    >>> f"{largest(torch.float32):.0e}, {largest(torch.float64):.0e}"
    '2e+17, 5e+138'
    """
    top = float(torch.finfo(dtype).max)
    return top if dtype == torch.float16 else top**ROOM  # norms of float16 are computed in float32


def largest_of(values: Tensor) -> float:
    """Return the largest absolute value, NaN if there is one, 0 of nothing."""
    return float(torch.linalg.vector_norm(values, math.inf)) if values.numel() else 0.0


def read_numbers(name: str, given: object) -> Tensor:
    """Turn what people have, lists, arrays or tensors of real numbers, into a tensor without a graph.

    >>> read_numbers("time", [1, 2.5])
    tensor([1.0000, 2.5000], dtype=torch.float64)
    """
    if isinstance(given, Tensor):
        if given.is_complex():
            raise DataError(f"{name} must be real numbers; got {given.dtype}.")
        return given.detach()
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:  # lists of several lengths
        raise DataError(f"{name} must be real numbers, in lists of one length; {error}") from error
    if array.dtype.kind not in "biuf":
        hint = "Convert them first: float(...)."
        if array.dtype.kind in "mMO":
            hint = "Of dates give numbers in the unit of training: (date - first) / np.timedelta64(1, 'h')."
        raise DataError(f"{name} must be real numbers; got {array.dtype}. {hint}")
    # In float64, which keeps all digits of a list of floats; torch would round them to float32.
    return torch.from_numpy(np.array(array, dtype=np.float64, order="C"))


def read_batch_size(batch_size: object) -> int | None:
    """Return how many streams go side by side, or say that there can be no such number."""
    if batch_size is None:
        return None
    if isinstance(batch_size, bool) or not isinstance(batch_size, Integral) or batch_size < 0:
        raise ConfigError(
            f"batch_size must be None, for one stream without an axis of its own, or a whole number of "
            f"streams; got {batch_size!r}."
        )
    return int(batch_size)


def check_streams(held: int, came: int) -> None:
    """Raise unless a state is of as many streams as there are items: one item would be broadcast to all."""
    if held != came:
        raise StateError(
            f"this state is of {held} streams; items for {came} came. Give every stream an item, with "
            f"mask=False where there is none; start anew with init_state({came}), or pick streams with "
            f"state.select."
        )


def check_mask(mask: Tensor | None, shape: torch.Size) -> None:
    """Raise unless the mask, if any, is bool and of this shape."""
    if mask is not None and (mask.shape != shape or mask.dtype != torch.bool):
        raise ShapeError(
            f"mask must be bool {tuple(shape)}, True = real; got {mask.dtype} {tuple(mask.shape)}."
        )


def count_streams(state: object) -> int | None:
    """Return the first axis of a state's first tensor, the stream; None: it has no tensor.

    >>> count_streams(((), 7, torch.zeros(3, 2)))
    3
    """
    if isinstance(state, Tensor):
        return state.shape[0]
    counts = (count_streams(part) for part in state) if isinstance(state, tuple) else ()
    return next((count for count in counts if count is not None), None)
