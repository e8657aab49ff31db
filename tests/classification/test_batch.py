import pytest
import torch

from aaren.classification.data import LabelledBatch
from aaren.errors import ShapeError


def test_a_batch_checks_itself() -> None:
    with pytest.raises(ShapeError, match=r"mask must be \(2, 3\)"):
        LabelledBatch(values=torch.zeros(2, 3, 1), mask=torch.ones(2, 4).bool(), labels=torch.zeros(2))
    with pytest.raises(ShapeError, match="mask must be bool"):
        LabelledBatch(values=torch.zeros(2, 3, 1), mask=torch.ones(2, 3), labels=torch.zeros(2))
