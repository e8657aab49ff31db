"""EventModel: parameter totals, step and forward, masks, time, decay, states; references alike."""

from typing import Any

import pytest
import torch
from torch import Tensor

from aaren.errors import ConfigError, DataError, ShapeError, StateError
from aaren.events.distribution import Events, NextEvent
from aaren.events.forecaster import EventForecaster, EventState
from aaren.events.model import EventModel, EventModelConfig
from aaren.events.references import EventReference, EventReferenceConfig
from aaren.nn.blocks import state_from_bytes, state_to_bytes
from aaren.stream.saved import load_model, save_model

EXACT = {"rtol": 0.0, "atol": 1e-9}
LENGTH, MARKS = 13, 5
VARIANTS: dict[str, dict[str, Any]] = {
    "aaren": {},
    "aaren decay": {"time_decay": "learned", "num_heads": 2},
    "aaren times": {"encoding": "times", "time_scale": 3.0},
    "softmax": {"mixer": "softmax"},
    "gru": {"mixer": "gru"},
    "unmarked": {"num_marks": 1},
}


def build(**options: Any) -> EventModel:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        config = {"num_marks": MARKS, "width": 16, "ff_width": 16, **options}
        return EventModel(EventModelConfig(**config)).double().eval()


def build_reference(law: str) -> EventReference:
    model = EventReference(EventReferenceConfig(distribution=law, num_marks=MARKS))
    model.fit(torch.tensor([0.5, 1.0, 3.0]), torch.tensor([0, 1, 1]))
    return model


@pytest.fixture(params=[*VARIANTS, "folded", "poisson", "renewal"])
def model(request: pytest.FixtureRequest) -> EventForecaster:
    if request.param in ("poisson", "renewal"):
        return build_reference(request.param)
    return (
        build(time_decay="learned").fold() if request.param == "folded" else build(**VARIANTS[request.param])
    )


@pytest.fixture
def events(rng: torch.Generator) -> Events:
    gaps = torch.rand(2, LENGTH, generator=rng, dtype=torch.float64) * 3.0
    return Events(gaps, torch.randint(MARKS, (2, LENGTH), generator=rng))


def suited(events: Events, model: EventForecaster) -> Events:
    return Events(events.gaps, events.marks.clamp(max=model.num_marks - 1))


def numbers(law: NextEvent) -> Tensor:
    """Whatever can be told of a law, as one tensor, (..., n)."""
    gaps = [law.mean(), law.median(), law.gap.log_density(0.7), law.gap.log_survival(2.0)]
    return torch.cat([torch.stack(gaps, dim=-1), law.mark_probabilities], dim=-1)


def fold_steps(
    model: EventForecaster, events: Events, mask: Tensor | None = None
) -> tuple[Tensor, EventState]:
    state, found = model.init_state(len(events.gaps)), []
    for place in range(events.gaps.shape[1]):
        event = Events(events.gaps[:, place], events.marks[:, place])
        law, state = model.step(event, state, mask=None if mask is None else mask[:, place])
        found.append(numbers(law))
    return torch.stack(found, dim=1), state


@pytest.mark.parametrize(
    ("num_marks", "used", "with_spare"),
    [
        (1, 55_896, 56_090),
        (22, 58_670, 60_164),
        (97, 68_345, 74_714),
        (984, 182_768, 246_792),
        (8226, 1_116_986, 1_651_740),
    ],
)
def test_parameter_totals_of_the_base_code(num_marks: int, used: int, with_spare: int) -> None:
    for mixer, more in (("softmax", 0), ("aaren", 128)):
        for spare_heads, total in ((False, used), (True, with_spare)):
            config = EventModelConfig(num_marks=num_marks, mixer=mixer, spare_heads=spare_heads)
            assert sum(p.numel() for p in EventModel(config).parameters()) == total + more


def test_learned_decay_costs_one_number_per_head() -> None:
    plain, decaying = build(), build(time_decay="learned")
    assert sum(p.numel() for p in decaying.parameters()) == sum(p.numel() for p in plain.parameters()) + 1


def test_folding_step_equals_forward(model: EventForecaster, events: Events) -> None:
    events = suited(events, model)
    law, final = model(events)
    stepped, last = fold_steps(model, events)
    torch.testing.assert_close(stepped, numbers(law), **EXACT)
    torch.testing.assert_close(numbers(model(events, last)[0]), numbers(model(events, final)[0]), **EXACT)
    torch.testing.assert_close(numbers(model.next_event(final)), numbers(law)[:, -1], **EXACT)
    torch.testing.assert_close(final.time, events.gaps.sum(1))


@pytest.mark.parametrize("cut", [1, 6, LENGTH - 1])
def test_any_split_with_carried_state_equals_the_whole(
    model: EventForecaster, events: Events, cut: int
) -> None:
    events = suited(events, model)
    whole = numbers(model(events)[0])
    first, state = model(Events(events.gaps[:, :cut], events.marks[:, :cut]))
    second, _ = model(Events(events.gaps[:, cut:], events.marks[:, cut:]), state)
    torch.testing.assert_close(torch.cat([numbers(first), numbers(second)], dim=1), whole, **EXACT)


def test_it_is_strictly_causal(model: EventForecaster, events: Events) -> None:
    events = suited(events, model)
    before = numbers(model(events)[0])
    events.gaps[:, 9:] += 1.0
    after = numbers(model(events)[0])
    torch.testing.assert_close(after[:, :9], before[:, :9], **EXACT)
    if isinstance(model, EventModel):
        assert not torch.allclose(after[:, 9], before[:, 9])


def test_padding_is_no_event(model: EventForecaster, events: Events) -> None:
    events = suited(events, model)
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, 8:] = False
    events.gaps[0, 8:] = torch.nan
    events.marks[0, 8:] = -7
    law, state = model(events, mask=mask)
    short, short_state = model(Events(events.gaps[:1, :8], events.marks[:1, :8]))
    torch.testing.assert_close(numbers(law)[:1, :8], numbers(short), **EXACT)
    torch.testing.assert_close(numbers(model.next_event(state))[:1], numbers(short)[:, -1], **EXACT)
    torch.testing.assert_close(state.time[:1], short_state.time)
    with torch.no_grad():
        stepped, last = fold_steps(model, events, mask)
    torch.testing.assert_close(stepped[0, 8:], numbers(law)[0, 7].expand(LENGTH - 8, -1), **EXACT)
    torch.testing.assert_close(numbers(model.next_event(last)), numbers(model.next_event(state)), **EXACT)


def test_a_stream_without_any_event_keeps_the_empty_state(events: Events) -> None:
    model = build(time_decay="learned")
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[1] = False
    _, state = model(events, mask=mask)
    empty = model.init_state(1)
    assert state_to_bytes(state.select([1])) == state_to_bytes(empty)


def test_a_stream_without_a_new_event_keeps_its_state_bit_for_bit(events: Events) -> None:
    model = build(time_decay="learned")
    _, state = model(events)
    mask = torch.tensor([True, False])
    with torch.no_grad():
        _, after = model.step(Events(events.gaps[:, 0], events.marks[:, 0]), state, mask=mask)
    assert state_to_bytes(after.select([1])) == state_to_bytes(state.select([1]))
    assert state_to_bytes(after.select([0])) != state_to_bytes(state.select([0]))


def test_the_state_is_constant_and_small(events: Events) -> None:
    model = EventModel(EventModelConfig(num_marks=MARKS)).eval()
    _, state = model(events)
    _, later = model(Events(events.gaps.repeat(1, 100), events.marks.repeat(1, 100)), state)
    assert state.nbytes == later.nbytes == model.init_state(2).nbytes < 2 * 1_400


def test_the_time_scale_is_a_change_of_unit(events: Events) -> None:
    hours, seconds = build(time_scale=1.0), build(time_scale=3600.0)
    in_hours = hours(events)[0]
    in_seconds = seconds(Events(events.gaps * 3600.0, events.marks))[0]
    torch.testing.assert_close(in_seconds.mean(), in_hours.mean() * 3600.0)
    torch.testing.assert_close(in_seconds.survival(3600.0), in_hours.survival(1.0))


def test_times_are_told_apart_only_by_the_encoding_of_times(events: Events) -> None:
    shifted = Events(events.gaps.clone(), events.marks)
    shifted.gaps[:, 0] += 2.0
    for encoding, is_same in (("gaps", False), ("times", False)):
        model = build(encoding=encoding)
        assert torch.allclose(numbers(model(events)[0]), numbers(model(shifted)[0])) is is_same
    late = build(encoding="gaps").init_state(2)._replace(time=torch.full((2,), 9.0).double())
    assert torch.allclose(numbers(build()(events, late)[0]), numbers(build()(events)[0]))


def test_the_encoding_has_published_sines_and_cosines() -> None:
    model = EventModel(EventModelConfig())
    encoded = model._encode_time(torch.tensor([2.0], dtype=torch.float64))[0]
    for place in (0, 1, 10, 63):
        angle = torch.tensor(2.0 / 10_000 ** (2 * (place // 2) / 64))
        expected = angle.sin() if place % 2 == 0 else angle.cos()
        torch.testing.assert_close(encoded[place], expected)
    assert encoded.dtype == torch.float32


def test_decay_forgets_with_time_and_not_with_events(events: Events) -> None:
    model = build(time_decay="learned")
    _, state = model(events)
    other = model(Events(events.gaps.flip(1), events.marks.flip(1)))[1]
    soon, late = (Events(torch.full((2,), gap).double(), events.marks[:, 0]) for gap in (0.1, 1e6))

    def difference(event: Events) -> float:
        found = [model.encode_one(event, start)[0].detach() for start in (state, other)]
        return float((found[0] - found[1]).abs().max())

    assert difference(late) < 1e-9 < difference(soon)


def test_every_weight_learns(events: Events) -> None:
    model = build(time_decay="learned")
    law, _ = model(events)
    (law.log_density(1.0).sum() + law.log_mark(events.marks).sum()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
    assert not model.mark_embedding.weight.grad[0].any()


def test_a_model_survives_the_disk(events: Events, tmp_path: Any) -> None:
    for model in (
        EventModel(EventModelConfig(num_marks=MARKS, time_decay="learned")),
        build_reference("renewal"),
    ):
        again = load_model(save_model(model.eval(), tmp_path / type(model).__name__))
        torch.testing.assert_close(numbers(again(events)[0]), numbers(model(events)[0]), rtol=0, atol=0)


def test_a_state_survives_bytes_and_refuses_other_weights(events: Events) -> None:
    model = build()
    _, state = model(events)
    blob = state_to_bytes(state, fingerprint=model.fingerprint())
    again = state_from_bytes(blob, like=model.init_state(1), fingerprint=model.fold().fingerprint())
    torch.testing.assert_close(
        numbers(model.next_event(again)), numbers(model.next_event(state)), rtol=0, atol=0
    )
    with pytest.raises(StateError, match="fingerprint"):
        state_from_bytes(blob, like=model.init_state(1), fingerprint="other")
    assert state.to(dtype=torch.float32).nbytes < state.nbytes
    assert not state.clone().detach().output.requires_grad


def test_extreme_gaps_in_float32_stay_finite() -> None:
    model = EventModel(EventModelConfig(time_decay="learned"))
    gaps = torch.tensor([[1e-9, 1e9, 1.0, 1e-9, 1e9]], dtype=torch.float64)
    events = Events(gaps, torch.zeros(1, 5, dtype=torch.int64))
    law, _ = model(events)
    total = law.log_density(gaps).sum() + law.gap.log_survival(gaps).sum()
    total.backward()
    assert bool(total.isfinite())
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("count", [1, 2])
def test_every_stream_takes_one_event(model: EventForecaster, events: Events, count: int) -> None:
    gaps, marks = (part[:count] for part in suited(events, model))
    words = rf"state is of 3 streams; items for {count} came.*init_state\({count}\).*select"
    with pytest.raises(StateError, match=words):
        model.step(Events(gaps[:, 0], marks[:, 0]), model.init_state(3))
    with pytest.raises(StateError, match=words):
        model(Events(gaps, marks), model.init_state(3))


def test_what_does_not_fit_is_said(events: Events) -> None:
    model = build()
    with pytest.raises(ShapeError, match=r"gaps must be \(b, t\) and floating; got \(2,\).*call step"):
        model(Events(events.gaps[:, 0], events.marks[:, 0]))
    with pytest.raises(ShapeError, match=r"marks must be \(b, t\) int64.*Without marks, give zeros"):
        model(Events(events.gaps, events.marks.float()))
    with pytest.raises(ShapeError, match=r"mask must be bool, True = real item; got torch.float32"):
        model.step(Events(events.gaps[:, 0], events.marks[:, 0]), model.init_state(2), mask=torch.ones(2))
    with pytest.raises(StateError, match="EventState; got EncoderState"):
        model(events, model.init_state(2).encoder)
    for value, words in (
        (-1.0, r"gap at \(1, 3\) is -1.0; gaps are finite and 0 or more"),
        (torch.nan, "is nan"),
        (torch.inf, "is inf"),
    ):
        events.gaps[1, 3] = value
        with pytest.raises(DataError, match=words):
            model(events)
    events.gaps[1, 3] = 1.0
    for mark in (-1, MARKS):
        events.marks[0, 2] = mark
        with pytest.raises(DataError, match=rf"mark at \(0, 2\) is {mark}, outside 0..4"):
            model(events)


def test_configs_are_checked() -> None:
    with pytest.raises(ConfigError, match="num_marks must be at least 1; got 0"):
        EventModelConfig(num_marks=0)
    with pytest.raises(ConfigError, match="width must be even"):
        EventModelConfig(width=15)
    with pytest.raises(ConfigError, match="time_scale must be positive and finite; got 0"):
        EventModelConfig(time_scale=0.0)
    with pytest.raises(ConfigError, match="time_decay='learned' needs mixer='aaren'; got 'softmax'"):
        EventModelConfig(mixer="softmax", time_decay="learned")
    with pytest.raises(ConfigError, match="unknown time_decay 'fixed'"):
        EventModelConfig(time_decay="fixed")
    with pytest.raises(ConfigError, match="unknown distribution 'weibull'"):
        EventReferenceConfig(distribution="weibull")
