import math

import pytest
import torch

from aaren.engine.metrics import Mean


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
