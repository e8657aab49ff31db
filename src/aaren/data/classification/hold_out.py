"""Hold out some cases, class by class: to choose an epoch, or to test where there is no TEST."""

import torch
from torch import Tensor

from aaren.errors import DataError


def hold_out(labels: Tensor, fraction: float, *, seed: int) -> tuple[Tensor, Tensor]:
    """Part case numbers into kept and held out, class by class, so that both know as many classes as can be.

    Of a class with two or more cases at least one goes to each side; a single case is kept.

    >>> kept, held = hold_out(torch.tensor([0] * 8 + [1] * 4 + [2]), 0.25, seed=0)
    >>> len(kept), len(held)
    (10, 3)
    """
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(int(labels.max()) + 1):
        numbers = (labels == label).nonzero().squeeze(1)
        if not len(numbers):
            continue
        count = min(len(numbers) - 1, max(1, round(fraction * len(numbers))))
        held[numbers[torch.randperm(len(numbers), generator=generator)[:count]]] = True
    if not held.any():
        raise DataError(
            f"none of {len(labels)} cases can be held out: every class has a single one. Bring more cases, "
            f"or a TEST part of its own."
        )
    return (~held).nonzero().squeeze(1), held.nonzero().squeeze(1)
