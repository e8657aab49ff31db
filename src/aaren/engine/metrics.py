"""Means over many batches, summed in float64, and how a curve is kept among the metrics of a record."""

from collections.abc import Mapping
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


CURVE_PREFIX = "accuracy_at_"  # and a fraction: the accuracy after that much of each series


def curve_of(metrics: Mapping[str, float]) -> list[tuple[float, float]]:
    """Read the curve back from a record's test metrics: pairs of fraction seen and accuracy, in order.

    >>> curve_of({"accuracy": 0.75, "accuracy_at_1.00": 0.75, "accuracy_at_0.05": 0.5})
    [(0.05, 0.5), (1.0, 0.75)]
    """
    return sorted(
        (float(name.removeprefix(CURVE_PREFIX)), value)
        for name, value in metrics.items()
        if name.startswith(CURVE_PREFIX) and name.removeprefix(CURVE_PREFIX).replace(".", "", 1).isdecimal()
    )
