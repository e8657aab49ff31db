import pytest
import torch

from aaren.errors import ShapeError
from aaren.forecasting.data import ForecastBatch


def test_a_batch_checks_itself() -> None:
    with pytest.raises(ShapeError, match=r"future_marks must be \(2, 5, 4\)"):
        ForecastBatch(
            past=torch.zeros(2, 3, 1),
            past_marks=torch.zeros(2, 3, 4),
            future=torch.zeros(2, 5, 1),
            future_marks=torch.zeros(2, 6, 4),
        )
