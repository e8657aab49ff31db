"""Mean: what metrics over many batches are summed with, in float64."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True)
class Mean:
    """A mean over batches of unequal size: every number counts once.

    >>> squares = Mean()
    >>> squares.add(torch.tensor([1.0, 4.0])); squares.add(torch.tensor([9.0]))
    >>> round(squares.value, 4)
    4.6667
    """

    total: float = 0.0
    count: int = 0

    def add(self, values: Tensor, mask: Tensor | None = None) -> None:
        """Take in a batch of numbers, those where the mask is True."""
        chosen = values if mask is None else values[mask]
        self.total += float(chosen.sum(dtype=torch.float64))
        self.count += chosen.numel()

    @property
    def value(self) -> float:
        """Return the mean; NaN of nothing."""
        return self.total / self.count if self.count else float("nan")
