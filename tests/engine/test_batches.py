from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from aaren.engine.batches import cut, move
from aaren.errors import ShapeError


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    values: Tensor
    ends: Tensor | None
    unit: str = "hours"

    def __len__(self) -> int:
        return len(self.values)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_make_the_whole(count: int) -> None:
    batch = Pair(values=torch.arange(14).reshape(7, 2), ends=torch.arange(7))
    parts = [cut(batch, index, count) for index in range(count)]
    assert torch.equal(torch.cat([part.values for part in parts]), batch.values)
    assert torch.equal(torch.cat([part.ends for part in parts]), batch.ends)
    assert {part.unit for part in parts} == {"hours"}


def test_more_parts_than_cases_leave_some_empty() -> None:
    batch = Pair(values=torch.zeros(2, 1), ends=None)
    parts = [cut(batch, index, 3) for index in range(3)]
    assert sum(len(part) for part in parts if part is not None) == 2
    assert parts.count(None) == 1


def test_the_whole_is_not_copied() -> None:
    batch = Pair(values=torch.zeros(2, 1), ends=None)
    assert cut(batch, 0, 1) is batch
    assert move(batch, torch.device("cpu")) is batch


def test_a_batch_of_something_else() -> None:
    with pytest.raises(
        ShapeError, match="a batch must be a dataclass of tensors, to be cut or moved; got list"
    ):
        cut([1, 2, 3], 0, 2)
