"""The mixture against scipy-free definitions: numerical integrals, direct formulas, and extreme gaps."""

import math

import pytest
import torch
from torch import Tensor

from aaren.events.distribution import LogNormalMixture

GAPS = [1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9]


@pytest.fixture
def law(rng: torch.Generator) -> LogNormalMixture:
    return LogNormalMixture.from_numbers(torch.randn(5, 24, generator=rng))


def test_the_density_is_the_sum_of_its_parts(law: LogNormalMixture) -> None:
    gaps = torch.tensor([0.1, 0.5, 1.0, 2.0, 7.0], dtype=torch.float64)
    parts = torch.distributions.LogNormal(law.locations, law.scales)
    expected = (law.log_weights.exp() * parts.log_prob(gaps.unsqueeze(-1) + 1e-12).exp()).sum(-1)
    torch.testing.assert_close(law.log_density(gaps).exp(), expected)


def test_the_density_integrates_to_what_does_not_survive(law: LogNormalMixture) -> None:
    grid = torch.linspace(-40.0, 40.0, 200_001, dtype=torch.float64)
    one = law[0]
    for end in (-2.0, 0.0, 3.0):
        below = grid[grid <= end]
        mass = torch.trapezoid(one.log_density(below.exp()[:, None]).squeeze(-1).exp() * below.exp(), below)
        torch.testing.assert_close(mass, 1.0 - one.survival(math.exp(float(below[-1]))), atol=1e-6, rtol=0)
        torch.testing.assert_close(mass, one.cdf(math.exp(float(below[-1]))), atol=1e-6, rtol=0)


def test_quantiles_invert_the_distribution(law: LogNormalMixture) -> None:
    for level in (1e-6, 0.05, 0.5, 0.95, 1 - 1e-6):
        torch.testing.assert_close(law.cdf(law.quantile(level)), torch.full((5,), level).double())
    levels = torch.tensor([[0.1], [0.9]], dtype=torch.float64)
    assert law.quantile(levels).shape == (2, 5)
    torch.testing.assert_close(law.median(), law.quantile(0.5))


def test_samples_have_the_mean_and_the_quantiles(rng: torch.Generator) -> None:
    numbers = torch.tensor([0.0, 1.0, -1.0, 1.0, 0.1, -0.2])
    law = LogNormalMixture.from_numbers(numbers)
    drawn = law.sample(200_000, generator=rng)
    assert drawn.shape == (200_000,)
    torch.testing.assert_close(drawn.mean(), law.mean(), rtol=0.02, atol=0)
    torch.testing.assert_close(
        (drawn <= law.quantile(0.3)).double().mean(), torch.tensor(0.3).double(), atol=5e-3, rtol=0
    )


def test_samples_keep_the_shape(rng: torch.Generator) -> None:
    grid = LogNormalMixture.from_numbers(torch.randn(2, 3, 24, generator=rng))
    assert grid.sample(4, generator=rng).shape == (4, 2, 3)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("center", [-20.0, 0.0, 20.0])
def test_extreme_gaps_are_finite_in_float32_with_gradients(gap: float, center: float) -> None:
    numbers = torch.zeros(24)
    numbers[8:16] += center
    numbers[16:] -= torch.linspace(0.0, 12.0, 8)  # scales down to 6e-6
    numbers.requires_grad_()
    law = LogNormalMixture.from_numbers(numbers)
    terms = [law.log_density(gap), law.log_survival(gap), law.log_survival_clamped(gap)]
    assert all(bool(term.isfinite()) for term in terms)
    for term in terms:
        (gradient,) = torch.autograd.grad(term, numbers, retain_graph=True)
        assert gradient.dtype == torch.float32
        assert gradient.isfinite().all()


def test_both_tails_of_the_survival_are_exact() -> None:
    law = LogNormalMixture.from_numbers(torch.tensor([0.0, 0.0, math.log(math.e - 1.0)]))  # scale 1
    far = float(law.log_survival(1e9))
    standard = math.log(1e9)
    expected = -0.5 * standard**2 - math.log(standard * math.sqrt(2.0 * math.pi)) - 1.0 / standard**2
    assert far == pytest.approx(expected, abs=1e-3)
    assert float(law.log_survival(1e-9)) == pytest.approx(0.0, abs=1e-12)


def test_the_published_clamp_passes_the_gradient() -> None:
    numbers = torch.tensor([0.0, 0.0, 0.0], requires_grad=True)
    law = LogNormalMixture.from_numbers(numbers)
    clamped = law.log_survival_clamped(math.exp(4.5))  # 6.5 deviations out
    assert clamped.item() == pytest.approx(math.log(1e-5))
    (gradient,) = torch.autograd.grad(clamped, numbers)
    assert gradient[1] > 0.0  # a plain clamp would give 0
    inside = law.log_survival_clamped(1.0)
    torch.testing.assert_close(inside, law.log_survival(1.0))


def test_a_time_scale_changes_the_unit_only(rng: torch.Generator) -> None:
    numbers = torch.randn(24, generator=rng)
    seconds, minutes = (LogNormalMixture.from_numbers(numbers, time_scale=scale) for scale in (60.0, 1.0))
    torch.testing.assert_close(seconds.mean(), 60.0 * minutes.mean())
    torch.testing.assert_close(seconds.survival(120.0), minutes.survival(2.0))
    torch.testing.assert_close(
        seconds.log_density(120.0), minutes.log_density(2.0) - torch.tensor(60.0).double().log()
    )


def test_a_gap_of_zero_has_the_density_of_the_offset(law: LogNormalMixture) -> None:
    zero: Tensor = law.log_density(torch.zeros(5))
    assert zero.isfinite().all()
    torch.testing.assert_close(zero, law.log_density(torch.full((5,), 1e-30, dtype=torch.float64)))


def test_a_wild_scale_gives_an_infinite_mean_and_no_fault() -> None:
    law = LogNormalMixture.from_numbers(torch.tensor([0.0, 0.0, 50.0]))
    assert float(law.mean()) == math.inf
    assert bool(law.median().isfinite())
