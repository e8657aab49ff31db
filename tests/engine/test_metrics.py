import math

import pytest
import torch

from aaren.engine.metrics import (
    Mean,
    accuracy,
    mean_absolute_error,
    mean_squared_error,
    normalised_score,
    root_mean_squared_error,
)
from aaren.errors import ShapeError


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


def test_errors() -> None:
    found, truth = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    assert mean_squared_error(found, truth) == 4.0
    assert root_mean_squared_error(found, truth) == 2.0
    assert mean_absolute_error(found, truth) == 1.0


def test_broadcasting_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"one shape; got \(3, 1\) and \(3,\)"):
        mean_squared_error(torch.zeros(3, 1), torch.zeros(3))


def test_accuracy() -> None:
    assert accuracy(torch.eye(3), torch.tensor([0, 1, 0])) == pytest.approx(2 / 3)


def test_normalised_score_of_the_expert_is_100() -> None:
    assert normalised_score(3234.3, random=-20.272305, expert=3234.3) == 100.0
