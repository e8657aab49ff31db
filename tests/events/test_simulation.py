"""Futures drawn from a state, and what they must agree with."""

import pytest
import torch

from aaren.errors import ConfigError
from aaren.events.distribution import Events
from aaren.events.model import EventModel, EventModelConfig
from aaren.events.references import EventReference, EventReferenceConfig
from aaren.nn.blocks import state_to_bytes


@pytest.fixture
def poisson() -> EventReference:
    model = EventReference(EventReferenceConfig(distribution="poisson", num_marks=2))
    model.fit(torch.full((80,), 0.5), torch.arange(80) % 4 // 3)
    return model


def test_a_poisson_process_has_its_counts_times_and_marks(
    poisson: EventReference, rng: torch.Generator
) -> None:
    futures = poisson.simulate(poisson.init_state(2), num_branches=2_000, horizon=5.0, generator=rng)
    counts = futures.counts.double()
    assert futures.times.shape[:2] == (2, 2_000)
    assert counts.mean().item() == pytest.approx(10.0, abs=0.2)  # rate 2 over 5
    assert counts.var().item() == pytest.approx(10.0, abs=0.8)
    assert futures.times[futures.mask].mean().item() == pytest.approx(2.5, abs=0.05)  # uniform over time
    assert futures.times.max() <= 5.0
    share = (futures.marks[futures.mask] == 1).double().mean().item()
    assert share == pytest.approx(21 / 82, abs=0.02)
    assert not futures.is_cut.any()


def test_the_first_event_follows_the_law_of_the_state(rng: torch.Generator) -> None:
    model = EventModel(EventModelConfig(num_marks=3, width=16, ff_width=16)).eval()
    with torch.no_grad():
        _, state = model(Events(torch.rand(1, 5), torch.randint(3, (1, 5))))
    futures = model.simulate(state, num_branches=4_000, max_events=1, generator=rng)
    first = futures.times[0, :, 0]
    for level in (0.1, 0.5, 0.9):
        gap = model.next_event(state).quantile(level)
        assert (first <= gap).double().mean().item() == pytest.approx(level, abs=0.03)
    found = torch.bincount(futures.marks[0, :, 0], minlength=3).double() / 4_000
    torch.testing.assert_close(
        found, model.next_event(state).mark_probabilities[0].detach(), atol=0.03, rtol=0
    )


def test_no_stream_has_no_future(poisson: EventReference) -> None:
    futures = poisson.simulate(poisson.init_state(0), num_branches=3, horizon=5.0)
    assert futures.times.shape == futures.marks.shape == futures.mask.shape == (0, 3, 0)
    assert futures.is_cut.shape == (0, 3)


@pytest.mark.parametrize("mixer", ["aaren", "softmax", "gru"])
def test_branching_leaves_the_state_alone_and_repeats(mixer: str) -> None:
    model = EventModel(EventModelConfig(width=16, ff_width=16, mixer=mixer)).eval()
    with torch.no_grad():
        _, state = model(Events(torch.rand(2, 5), torch.zeros(2, 5, dtype=torch.int64)))
    before = state_to_bytes(state)
    first, again = (
        model.simulate(state, num_branches=3, horizon=4.0, generator=torch.Generator().manual_seed(1))
        for _ in range(2)
    )
    assert state_to_bytes(state) == before
    assert torch.equal(first.times, again.times)
    assert (first.times.diff(dim=-1)[first.mask[..., 1:]] >= 0.0).all()


def test_a_limit_on_events_is_told(poisson: EventReference, rng: torch.Generator) -> None:
    futures = poisson.simulate(
        poisson.init_state(1), num_branches=4, horizon=1e9, max_events=3, generator=rng
    )
    assert futures.is_cut.all()
    assert (futures.counts == 3).all()
    endless = poisson.simulate(poisson.init_state(1), num_branches=2, max_events=3, generator=rng)
    assert endless.mask.all()
    assert not endless.is_cut.any()


def test_a_horizon_before_every_event_gives_empty_futures(
    poisson: EventReference, rng: torch.Generator
) -> None:
    futures = poisson.simulate(poisson.init_state(1), num_branches=2, horizon=1e-12, generator=rng)
    assert futures.times.shape == (1, 2, 0)
    assert (futures.counts == 0).all()


def test_numbers_that_cannot_be_are_refused(poisson: EventReference) -> None:
    with pytest.raises(
        ConfigError, match="num_branches and max_events must be at least 1 and horizon positive"
    ):
        poisson.simulate(poisson.init_state(1), num_branches=0)
    with pytest.raises(ConfigError, match="got 1, 1000 and -1"):
        poisson.simulate(poisson.init_state(1), horizon=-1.0)
