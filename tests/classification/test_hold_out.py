import pytest
import torch

from aaren.classification.data import hold_out
from aaren.errors import DataError


def test_holding_out_keeps_every_class() -> None:
    labels = torch.tensor([0] * 10 + [1] * 2 + [2])
    kept, held = hold_out(labels, 0.2, seed=5)
    assert torch.bincount(labels[kept]).tolist() == [8, 1, 1]
    assert torch.bincount(labels[held]).tolist() == [2, 1]
    with pytest.raises(DataError, match="none of 2 cases can be held out: every class has a single one"):
        hold_out(torch.tensor([0, 1]), 0.5, seed=0)
