"""The references reach the likelihood they are built to maximise, and explain nothing more."""

import math

import pytest
import torch

from aaren.errors import DataError
from aaren.events.distribution import Events
from aaren.events.likelihood import log_likelihood
from aaren.events.references import EventReference, EventReferenceConfig, Exponential


def fitted(distribution: str, gaps: torch.Tensor, marks: torch.Tensor, num_marks: int) -> EventReference:
    model = EventReference(EventReferenceConfig(distribution=distribution, num_marks=num_marks))
    model.fit(gaps, marks)
    return model


@pytest.mark.parametrize("distribution", ["poisson", "renewal"])
def test_no_other_numbers_are_likelier(distribution: str, rng: torch.Generator) -> None:
    gaps = torch.rand(500, generator=rng, dtype=torch.float64) * 3.0 + 0.01
    model = fitted(distribution, gaps, torch.zeros(500, dtype=torch.int64), 1)
    outputs = gaps.new_zeros(500, 0)
    best = model.decode_gap(outputs).log_density(gaps).sum()
    for place in range(2 if distribution == "renewal" else 1):
        for factor in (0.95, 1.05):
            other = fitted(distribution, gaps, torch.zeros(500, dtype=torch.int64), 1)
            other.numbers[place] *= factor
            assert other.decode_gap(outputs).log_density(gaps).sum() < best


def test_marks_come_by_their_frequency_and_none_is_impossible() -> None:
    model = fitted("renewal", torch.ones(8) + torch.arange(8), torch.tensor([0, 0, 0, 0, 0, 1, 1, 1]), 3)
    events = Events(torch.ones(1, 2), torch.tensor([[0, 2]]))
    distribution, _ = model(events)
    torch.testing.assert_close(
        distribution.mark_probabilities[0, 0], torch.tensor([6.0, 4.0, 1.0]).double() / 11
    )
    assert math.isfinite(log_likelihood(model, events).item())


def test_the_exponential_law_agrees_with_itself(rng: torch.Generator) -> None:
    distribution = Exponential(rates=torch.tensor([0.5, 2.0], dtype=torch.float64))
    drawn = distribution.sample(50_000, generator=rng)
    torch.testing.assert_close(drawn.mean(0), distribution.mean(), rtol=0.03, atol=0)
    torch.testing.assert_close(distribution.cdf(distribution.quantile(0.3)), torch.full((2,), 0.3).double())
    torch.testing.assert_close(distribution.log_survival_clamped(1.0), distribution.log_survival(1.0))
    torch.testing.assert_close(
        distribution.log_survival_clamped(1e9), torch.full((2,), math.log(1e-5)).double()
    )
    assert distribution[0].shape == ()


def test_nothing_to_fit_is_said() -> None:
    model = EventReference(EventReferenceConfig())
    for gaps in (torch.tensor([1.0]), torch.tensor([1.0, 0.0])):
        with pytest.raises(DataError, match="fitting needs two gaps or more, all of them positive"):
            model.fit(gaps, torch.zeros(len(gaps), dtype=torch.int64))


def test_the_fingerprint_knows_what_the_numbers_mean() -> None:
    configs = [
        EventReferenceConfig(distribution="poisson"),
        EventReferenceConfig(distribution="renewal"),
        EventReferenceConfig(num_marks=3),
    ]
    models = [EventReference(config) for config in configs]
    for model in models:
        model.numbers = models[0].numbers
    assert len({model.fingerprint() for model in models}) == len(models)
