"""The joint law of gap and mark."""

import pytest
import torch

from aaren.errors import DataError
from aaren.models.event_distribution import NextEvent
from aaren.models.event_lognormal import LogNormalMixture
from aaren.models.event_references import Exponential


@pytest.fixture
def law(rng: torch.Generator) -> NextEvent:
    return NextEvent(
        gap=LogNormalMixture.from_numbers(torch.randn(3, 2, 24, generator=rng)),
        mark_logits=torch.randn(3, 2, 4, generator=rng),
    )


def test_density_is_gap_times_mark(law: NextEvent) -> None:
    marks = torch.tensor([[0, 1], [2, 3], [3, 3]])
    expected = law.density(0.5) * law.mark_probabilities.gather(-1, marks.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(law.density(0.5, marks), expected, rtol=1e-6, atol=0)
    assert law.mark_probabilities.sum(-1).allclose(torch.ones(3, 2).double())


def test_the_mass_of_all_marks_is_the_density_of_the_gap(law: NextEvent) -> None:
    total = sum(law.density(1.5, torch.full((3, 2), mark)) for mark in range(4))
    torch.testing.assert_close(total, law.density(1.5), rtol=1e-6, atol=0)


def test_samples_follow_both_laws(law: NextEvent, rng: torch.Generator) -> None:
    drawn = law.sample(20_000, generator=rng)
    assert drawn.gaps.shape == drawn.marks.shape == (20_000, 3, 2)
    share = (drawn.gaps <= law.median()).double().mean(0)
    torch.testing.assert_close(share, torch.full((3, 2), 0.5).double(), atol=0.015, rtol=0)
    for mark in range(4):
        found = (drawn.marks == mark).double().mean(0)
        torch.testing.assert_close(found, law.mark_probabilities[..., mark], atol=0.015, rtol=0)


def test_one_law_alone_can_be_sampled(law: NextEvent, rng: torch.Generator) -> None:
    one = law[0][1]
    assert one.shape == ()
    assert one.sample(7, generator=rng).marks.shape == (7,)
    unmarked = NextEvent(gap=one.gap)
    assert unmarked.sample(7, generator=rng).marks.eq(0).all()
    assert unmarked.mark_probabilities.tolist() == [1.0]
    assert unmarked.log_mark(torch.zeros(3, dtype=torch.int64)).eq(0).all()


@pytest.mark.parametrize("name", ["mixture", "exponential"])
def test_the_one_kind_stands_where_its_law_does(name: str) -> None:
    numbers = torch.zeros(3, 24, dtype=torch.float64, device="meta")
    gap = LogNormalMixture.from_numbers(numbers) if name == "mixture" else Exponential(rates=numbers[:, 0])
    found = NextEvent(gap=gap).mark_probabilities
    assert (found.shape, found.dtype, found.device.type) == ((3, 1), torch.float64, "meta")


def test_quantiles_and_survival_agree(law: NextEvent) -> None:
    torch.testing.assert_close(law.survival(law.quantile(0.8)), torch.full((3, 2), 0.2).double())
    for level in (0.0, 1.0, -0.5):
        with pytest.raises(DataError, match="a quantile's probability lies between 0 and 1"):
            law.quantile(level)
