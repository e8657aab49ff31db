"""What models that go along streams accept: how many streams a state is of, and which of them take part.

Beside `aaren.nn.inputs`, for whole models. Knows no model.
"""

import torch
from torch import Tensor

from aaren.errors import ShapeError, StateError


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
