import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from aaren.engine.batches import Mean, move
from aaren.errors import ShapeError


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    values: Tensor
    ends: Tensor | None
    unit: str = "hours"

    def __len__(self) -> int:
        return len(self.values)


def test_what_is_there_already_is_not_copied() -> None:
    batch = Pair(values=torch.zeros(2, 1), ends=None)
    assert move(batch, torch.device("cpu")) is batch


def test_all_tensors_are_moved() -> None:
    moved = move(Pair(values=torch.zeros(2, 1), ends=None), torch.device("meta"))
    assert (moved.values.device.type, moved.ends, moved.unit) == ("meta", None, "hours")


def test_a_batch_of_something_else() -> None:
    with pytest.raises(ShapeError, match="a batch must be a dataclass of tensors, to be moved; got list"):
        move([1, 2, 3], torch.device("meta"))


def test_mean_does_not_depend_on_the_cut(rng: torch.Generator) -> None:
    values = torch.rand(100, 3, generator=rng)
    whole, parts = Mean(), Mean()
    whole.add(values)
    for part in values.split(7):
        parts.add(part)
    assert parts.value == pytest.approx(whole.value, rel=1e-14)


def test_mean_counts_real_numbers_only() -> None:
    mean = Mean()
    mean.add(torch.tensor([1.0, 100.0]), torch.tensor([True, False]))
    assert mean.value == 1.0
    assert math.isnan(Mean().value)
