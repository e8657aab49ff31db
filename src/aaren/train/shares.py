"""Cut a batch into parts and move it: any dataclass of tensors whose first axis is the case.

Parts serve gradient accumulation and many processes alike. Knows nothing of what the tensors mean.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeVar, cast

import torch
from torch import Tensor

from aaren.errors import ShapeError
from aaren.tasks.base import Batch

B = TypeVar("B", bound=Batch)


def share(batch: B, index: int, count: int) -> B | None:
    """Return part number `index` of `count` nearly equal parts; None if there are fewer cases than parts.

    >>> [share(torch.arange(5), index, 2).tolist() for index in range(2)]
    [[0, 1], [2, 3, 4]]
    """
    cases = len(batch)
    begin, end = cases * index // count, cases * (index + 1) // count
    if (begin, end) == (0, cases):
        return batch
    return _map(batch, lambda tensor: tensor[begin:end]) if end > begin else None


def move(batch: B, device: torch.device) -> B:
    """Return the batch on a device; on the CPU, where it was made, it is the batch itself."""
    return batch if device.type == "cpu" else _map(batch, lambda tensor: tensor.to(device, non_blocking=True))


def _map(batch: B, function: Callable[[Tensor], Tensor]) -> B:
    whole: object = batch
    if isinstance(whole, Tensor):
        return cast("B", function(whole))
    if not dataclasses.is_dataclass(whole) or isinstance(whole, type):
        raise ShapeError(
            f"a batch must be a dataclass of tensors, to be cut or moved; got {type(whole).__name__}."
        )
    values = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)}
    changed = {name: function(value) for name, value in values.items() if isinstance(value, Tensor)}
    return cast("B", dataclasses.replace(whole, **changed))
