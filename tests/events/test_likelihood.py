"""The likelihood term by term, written out in plain loops, by both rules for a sequence's end."""

import pytest
import torch

from aaren.errors import ConfigError
from aaren.events import likelihood as event_likelihood
from aaren.events.distribution import Events
from aaren.events.forecaster import EventForecaster
from aaren.events.likelihood import find_targets, log_likelihood, mark_terms
from aaren.events.model import EventModel, EventModelConfig

LENGTHS = (6, 2, 9)


@pytest.fixture
def model() -> EventModel:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = EventModelConfig(num_marks=4, width=16, ff_width=16, time_decay="learned")
        return EventModel(config).double().eval()


@pytest.fixture
def events(rng: torch.Generator) -> Events:
    shape = (len(LENGTHS), max(LENGTHS))
    return Events(
        torch.rand(shape, generator=rng, dtype=torch.float64), torch.randint(4, shape, generator=rng)
    )


@pytest.fixture
def mask() -> torch.Tensor:
    return torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS).unsqueeze(1)


def by_hand(model: EventForecaster, events: Events, final: torch.Tensor | None, censoring: str) -> float:
    total = 0.0
    for row, length in enumerate(LENGTHS):
        state = model.init_state(1)
        for place in range(length):
            event = Events(events.gaps[row, place : place + 1], events.marks[row, place : place + 1])
            if place:
                law = model.next_event(state)
                if censoring == "protocol" and place == length - 1:
                    total += law.gap.log_survival_clamped(event.gaps).item()
                else:
                    total += law.log_density(event.gaps).item()
                total += law.mark_probabilities[0, event.marks].log().item()
            _, state = model.step(event, state)
        if final is not None:
            total += model.next_event(state).gap.log_survival(final[row : row + 1]).item()
    return total


@pytest.mark.parametrize("censoring", ["protocol", "none"])
def test_terms_are_those_of_the_protocol(
    model: EventModel, events: Events, mask: torch.Tensor, censoring: str
) -> None:
    found = log_likelihood(model, events, mask=mask, censoring=censoring)
    assert found.dtype == torch.float64
    assert found.item() == pytest.approx(by_hand(model, events, None, censoring), rel=1e-9)


def test_a_known_end_adds_the_quiet_time_to_the_clean_rule_only(
    model: EventModel, events: Events, mask: torch.Tensor
) -> None:
    final = torch.tensor([0.5, 2.0, 0.1], dtype=torch.float64)
    clean = log_likelihood(model, events, mask=mask, final_gaps=final, censoring="none")
    assert clean.item() == pytest.approx(by_hand(model, events, final, "none"), rel=1e-9)
    protocol = log_likelihood(model, events, mask=mask, final_gaps=final, censoring="protocol")
    assert protocol.item() == pytest.approx(by_hand(model, events, None, "protocol"), rel=1e-9)


def test_a_sequence_of_one_event_has_no_term(model: EventModel) -> None:
    one = Events(torch.rand(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.int64))
    for censoring in ("none", "protocol"):
        assert log_likelihood(model, one, censoring=censoring).item() == 0.0


def test_padding_changes_no_gradient(model: EventModel, events: Events, mask: torch.Tensor) -> None:
    events.gaps[~mask] = torch.nan
    parameters = list(model.parameters())
    together = torch.autograd.grad(log_likelihood(model, events, mask=mask), parameters)
    apart = [torch.zeros_like(p) for p in parameters]
    for row, length in enumerate(LENGTHS):
        alone = Events(events.gaps[row : row + 1, :length], events.marks[row : row + 1, :length])
        for sum_of, part in zip(
            apart, torch.autograd.grad(log_likelihood(model, alone), parameters), strict=True
        ):
            sum_of += part
    torch.testing.assert_close(together, tuple(apart))


def test_many_kinds_are_computed_in_pieces_with_the_same_gradient(
    model: EventModel, events: Events, mask: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = torch.autograd.grad(log_likelihood(model, events, mask=mask), model.mark_head.weight)
    targets = find_targets(model, events, mask=mask)
    with torch.no_grad():
        at_once = mark_terms(model, targets.known, targets.marks)
    monkeypatch.setattr(event_likelihood, "MOST_LOGITS", 10)
    pieces = torch.autograd.grad(log_likelihood(model, events, mask=mask), model.mark_head.weight)
    torch.testing.assert_close(pieces, whole)
    with torch.no_grad():
        torch.testing.assert_close(mark_terms(model, targets.known, targets.marks), at_once)


def test_terms_of_the_one_kind_stand_where_the_model_does() -> None:
    with torch.device("meta"):
        unmarked = EventModel(EventModelConfig(width=16, ff_width=16))
        known, marks = torch.zeros(5, 16), torch.zeros(5, dtype=torch.int64)
    terms = mark_terms(unmarked, known, marks)
    assert (terms.shape, terms.dtype, terms.device.type) == ((5,), torch.float64, "meta")


def test_an_unknown_rule_is_named(model: EventModel, events: Events) -> None:
    with pytest.raises(ConfigError, match="unknown censoring 'last'; Known: none, protocol"):
        log_likelihood(model, events, censoring="last")
