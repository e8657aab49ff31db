"""The numbers that models are judged by, as plain floats, summed in float64. Knows nothing of settings.

Data that does not fit in memory at once goes through `Mean`, which is exact however it is cut into batches.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aaren.errors import ShapeError


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


def mean_squared_error(found: Tensor, truth: Tensor) -> float:
    """Average the squared difference over all numbers.

    >>> mean_squared_error(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    2.0
    """
    _require_equal_shapes(found, truth)
    return float((found.double() - truth.double()).square().mean())


def mean_absolute_error(found: Tensor, truth: Tensor) -> float:
    """Average the absolute difference over all numbers.

    >>> mean_absolute_error(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    1.0
    """
    _require_equal_shapes(found, truth)
    return float((found.double() - truth.double()).abs().mean())


def root_mean_squared_error(found: Tensor, truth: Tensor) -> float:
    """Take the root of the mean squared error.

    >>> root_mean_squared_error(torch.tensor([0.0, 5.0]), torch.tensor([0.0, 5.0]))
    0.0
    """
    return float(mean_squared_error(found, truth) ** 0.5)


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """Count how often the highest of the scores (..., classes) is at the label (...).

    >>> accuracy(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1]))
    0.5
    """
    _require_equal_shapes(scores[..., 0], labels)
    return float((scores.argmax(dim=-1) == labels).double().mean())


def normalised_score(episode_return: float, *, random: float, expert: float) -> float:
    """Place a return between a random policy (0) and an expert (100), as D4RL does.

    >>> normalised_score(1607.0, random=-20.0, expert=3234.0)
    50.0
    """
    return 100.0 * (episode_return - random) / (expert - random)


def _require_equal_shapes(found: Tensor, truth: Tensor) -> None:
    if found.shape != truth.shape:
        # Broadcasting would give a number all the same, and a wrong one.
        raise ShapeError(
            f"prediction and truth must have one shape; got {tuple(found.shape)} and {tuple(truth.shape)}."
        )
