"""Walk over a set in batches, in an order that depends on a seed and on the number of the epoch alone.

Nothing is remembered between epochs, so a run that was stopped in epoch 7 sees the same epoch 7 when it goes
on. Knows nothing of what a batch is: `take` makes one from the numbers of its items.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from aaren.errors import ConfigError

B = TypeVar("B", covariant=True)


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
