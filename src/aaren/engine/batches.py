"""Batches: in an order that depends on seed and epoch alone, moved to a device.

Epochs are independent of each other, so a run that was stopped in epoch 7 sees the same epoch 7 when it
resumes. A batch is any dataclass of tensors whose first axis is the case.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import torch
from torch import Tensor

from aaren.engine.experiment import Batch
from aaren.errors import ConfigError, ShapeError

B = TypeVar("B", covariant=True)
SplitT = TypeVar("SplitT", bound=Batch)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class BatchLoader(Generic[B]):
    """Batches of a set of `size` items."""

    size: int
    take: Callable[[Tensor], B]  # item numbers (b,) int64 -> batch
    batch_size: int
    is_shuffled: bool = False
    drops_last: bool = False  # leave out a last batch that is not full
    seed: int = 0

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1; got {self.batch_size}.")
        if not len(self):
            raise ConfigError(
                f"{self.size} item(s) make no full batch of {self.batch_size}: choose a smaller batch_size."
            )

    def __len__(self) -> int:
        return self.size // self.batch_size if self.drops_last else -(-self.size // self.batch_size)

    def __iter__(self) -> Iterator[B]:
        return self.epoch(0)

    def epoch(self, number: int) -> Iterator[B]:
        """Give the batches of one epoch; the same number gives the same batches."""
        order = self.order(number)
        for place in range(len(self)):
            yield self.take(order[place * self.batch_size : (place + 1) * self.batch_size])

    def order(self, number: int) -> Tensor:
        """Give the item numbers of one epoch in their order."""
        if not self.is_shuffled:
            return torch.arange(self.size)
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + number) % 2**63)
        return torch.randperm(self.size, generator=generator)


def move(batch: SplitT, device: torch.device) -> SplitT:
    """Return the batch on a device; on the CPU, where it was made, it is the batch itself."""
    return (
        batch
        if device.type == "cpu"
        else map_batch(batch, lambda tensor: tensor.to(device, non_blocking=True))
    )


def require_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse a tensor that does not fit the rest of its batch."""
    if tensor.shape != shape:
        raise ShapeError(f"{name} must be {shape} to fit the rest of the batch; got {tuple(tensor.shape)}.")


def map_batch(batch: SplitT, function: Callable[[Tensor], Tensor]) -> SplitT:
    """Apply a function to every tensor of a batch."""
    whole: object = batch
    if isinstance(whole, Tensor):
        return cast("SplitT", function(whole))
    if not dataclasses.is_dataclass(whole) or isinstance(whole, type):
        raise ShapeError(f"a batch must be a dataclass of tensors, to be moved; got {type(whole).__name__}.")
    values = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)}
    changed = {name: function(value) for name, value in values.items() if isinstance(value, Tensor)}
    return cast("SplitT", dataclasses.replace(whole, **changed))


@dataclass(slots=True)
class Mean:
    """A mean over batches of unequal size, summed in float64: every number counts once.

    >>> squares = Mean()
    >>> squares.add(torch.tensor([1.0, 4.0])); squares.add(torch.tensor([9.0]))
    >>> round(squares.value, 4)
    4.6667
    """

    total: float = 0.0
    count: int = 0

    def add(self, values: Tensor, mask: Tensor | None = None) -> None:
        """Take in a batch of numbers, those where the mask is True."""
        counted = values if mask is None else values[mask]
        self.total += float(counted.sum(dtype=torch.float64))
        self.count += counted.numel()

    @property
    def value(self) -> float:
        """Return the mean; NaN of nothing."""
        return self.total / self.count if self.count else float("nan")
