"""The joint law of gap and mark."""

import pytest
import torch

from aaren.errors import DataError, ShapeError
from aaren.events.distribution import LogNormalMixture, NextEvent
from aaren.events.references import Exponential


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


@pytest.mark.parametrize("name", ["mixture", "exponential"])
def test_nothing_comes_before_now(name: str, law: NextEvent) -> None:
    gap = law.gap if name == "mixture" else Exponential(rates=torch.rand(3, 2, dtype=torch.float64) + 0.1)
    one = NextEvent(gap=gap)
    for gaps in (-1.0, -1e-9, torch.full((3, 2), -5.0), float("-inf")):
        assert one.survival(gaps).eq(1.0).all()
        assert one.gap.cdf(gaps).eq(0.0).all()
        assert one.density(gaps).eq(0.0).all()
        assert one.gap.log_survival_clamped(gaps).isfinite().all()
    assert one.survival(torch.tensor(float("nan"))).isnan().all()


def test_one_law_tells_of_one_mark(law: NextEvent) -> None:
    one = law[0][1]
    for mark in (torch.tensor(1), 1, torch.tensor(1.0)):
        torch.testing.assert_close(
            one.log_density(0.5, mark),
            one.gap.log_density(0.5) + one.mark_probabilities[1].log(),
            rtol=1e-6,
            atol=0,
        )
    torch.testing.assert_close(law.log_mark(2).exp(), law.mark_probabilities[..., 2], check_dtype=False)
    drawn = law.sample(5)
    assert law.log_density(drawn.gaps, drawn.marks).shape == (5, 3, 2)
    for wrong in (4, -1, -100, torch.tensor(0.5), torch.full((3, 2), 7)):
        with pytest.raises(DataError, match="a mark is a kind of event, a whole number from 0 to 3; got"):
            law.log_mark(wrong)
    with pytest.raises(DataError, match="from 0 to 0; got 1"):
        NextEvent(gap=law.gap).log_density(0.5, 1)
    with pytest.raises(ShapeError, match=r"marks must be \(3, 2\) like the distributions.*got \(4,\)"):
        law.log_mark(torch.zeros(4, dtype=torch.int64))
