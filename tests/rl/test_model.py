"""DecisionModel: parameter totals, causality, step and forward, masks, discrete actions, states."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from aaren.errors import ConfigError, ShapeError, StateError
from aaren.nn.blocks import state_from_bytes, state_to_bytes
from aaren.rl.model import DecisionModel, DecisionModelConfig, DecisionState, PolicyState, Steps
from aaren.stream.saved import load_model, save_model

EXACT = {"rtol": 0.0, "atol": 1e-9}
STATE, ACTION, LENGTH = 5, 3, 9
VARIANTS: dict[str, dict[str, Any]] = {
    "aaren": {},
    "softmax": {"mixer": "softmax"},
    "discrete": {"actions": "discrete"},
    "fused": {"is_fused": True},
    "fused discrete": {"is_fused": True, "actions": "discrete", "norm": "pre"},
}


def build(**options: Any) -> DecisionModel:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        config = {"state_size": STATE, "action_size": ACTION, "width": 16, "num_heads": 2, "num_layers": 2}
        return DecisionModel(DecisionModelConfig(**{**config, **options})).double().eval()


@pytest.fixture(params=[*VARIANTS, "folded"])
def model(request: pytest.FixtureRequest) -> DecisionModel:
    return build().fold() if request.param == "folded" else build(**VARIANTS[request.param])


def draw(model: DecisionModel, rng: torch.Generator, length: int = LENGTH, batch: int = 2) -> Steps:
    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    if model.config.is_discrete:
        actions = torch.randint(ACTION, (batch, length), generator=rng)
    else:
        actions = normal(batch, length, ACTION).tanh()
    times = torch.arange(7, 7 + length).expand(batch, length)
    return Steps(normal(batch, length), normal(batch, length, STATE), actions, times)


def cut(steps: Steps, *places: slice | int) -> Steps:
    return Steps(*(part[(slice(None), *places)] for part in steps))


@pytest.mark.parametrize(
    ("state_size", "action_size", "total"),
    [(11, 3, 14_724_623), (17, 6, 14_733_848), (111, 8, 14_832_248), (27, 8, 14_746_148)],
)
def test_parameter_totals_of_the_base_code(state_size: int, action_size: int, total: int) -> None:
    for mixer, more in (("softmax", 0), ("aaren", 2_048)):
        with torch.device("meta"):
            config = DecisionModelConfig(state_size=state_size, action_size=action_size, mixer=mixer)
            assert sum(p.numel() for p in DecisionModel(config).parameters()) == total + more


def test_token_order_and_embedding_are_those_of_the_decision_transformer(rng: torch.Generator) -> None:
    model = build(mixer="softmax")
    steps = draw(model, rng)
    times = model.timestep_embedding(steps.timesteps)
    embedded = [
        model.return_embedding(steps.returns_to_go.unsqueeze(-1)) + times,
        model.state_embedding(steps.states) + times,
        model.action_embedding(steps.actions) + times,
    ]
    tokens = model.embedding_norm(torch.stack(embedded, dim=2).reshape(2, 3 * LENGTH, 16))
    outputs, _ = model.encoder(tokens)
    wanted = model.action_head(outputs[:, 1::3]).tanh()  # read at the states
    torch.testing.assert_close(model(steps)[0], wanted, **EXACT)


def test_folding_step_equals_forward(model: DecisionModel, rng: torch.Generator) -> None:
    steps = draw(model, rng)
    whole, final = model(steps)
    state, found = model.init_state(2), []
    for place in range(LENGTH):
        step = cut(steps, place)
        blind = step._replace(actions=torch.zeros_like(step.actions))  # not known when the action is asked
        output, state = model.step(blind, state)
        state = state.with_action(step.actions)
        found.append(output)
    torch.testing.assert_close(torch.stack(found, dim=1), whole, **EXACT)
    torch.testing.assert_close(model(steps, state)[0], model(steps, final)[0], **EXACT)


@pytest.mark.parametrize("place", [1, 4, LENGTH - 1])
def test_any_split_with_carried_state_equals_the_whole(
    model: DecisionModel, rng: torch.Generator, place: int
) -> None:
    steps = draw(model, rng)
    first, state = model(cut(steps, slice(None, place)))
    second, _ = model(cut(steps, slice(place, None)), state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), model(steps)[0], **EXACT)


def test_an_action_is_seen_by_later_steps_only(model: DecisionModel, rng: torch.Generator) -> None:
    steps = draw(model, rng)
    before, _ = model(steps)
    changed = steps.actions.clone()
    changed[:, 4] = (changed[:, 4] + 1) % ACTION if model.config.is_discrete else -changed[:, 4]
    after, _ = model(steps._replace(actions=changed))
    torch.testing.assert_close(after[:, :5], before[:, :5], **EXACT)
    assert not torch.allclose(after[:, 5], before[:, 5])
    states = steps.states.clone()
    states[:, 4] += 1.0
    after, _ = model(steps._replace(states=states))
    torch.testing.assert_close(after[:, :4], before[:, :4], **EXACT)
    assert not torch.allclose(after[:, 4], before[:, 4])


def test_padding_is_no_step(model: DecisionModel, rng: torch.Generator) -> None:
    steps = draw(model, rng)
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, 6:] = False
    steps.states[0, 6:] = torch.nan
    steps.returns_to_go[0, 6:] = torch.nan
    outputs, state = model(steps, mask=mask)
    short, short_state = model(cut(Steps(*(part[:1] for part in steps)), slice(None, 6)))
    torch.testing.assert_close(outputs[:1, :6], short, **EXACT)
    more = draw(model, rng, length=2)
    later = model(Steps(*(part[:1] for part in more)), short_state)[0]
    torch.testing.assert_close(model(more, state)[0][:1], later, **EXACT)


def test_a_masked_stream_keeps_its_state(model: DecisionModel, rng: torch.Generator) -> None:
    steps, mask = draw(model, rng), torch.tensor([True, False])
    with torch.no_grad():
        _, state = model(steps)
        _, after = model.step(cut(steps, 0), state, mask=mask)
        expected = model(steps, state)[0][1:]
    found = model(steps, after)[0][1:]
    torch.testing.assert_close(found, expected, **EXACT)
    assert torch.equal(after.action[1], state.action[1])


def test_streams_may_begin_at_different_times(rng: torch.Generator) -> None:
    model = build()
    steps = draw(model, rng, length=3)
    state = model.init_state(2)
    _, state = model.step(cut(steps, 0), state, mask=torch.tensor([True, False]))
    state = state.with_action(steps.actions[:, 0])
    output, _ = model.step(cut(steps, 1), state)
    fresh, _ = model.step(Steps(*(part[1:, 1] for part in steps)), model.init_state(1))
    torch.testing.assert_close(output[1:], fresh, **EXACT)


def test_the_loss_is_a_mean_over_real_steps_and_numbers(rng: torch.Generator) -> None:
    model = build()
    steps = draw(model, rng)
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, 6:] = False
    outputs, _ = model(steps, mask=mask)
    errors = (outputs - steps.actions).square()[mask]
    torch.testing.assert_close(model.loss(steps, mask=mask), errors.sum() / (15 * ACTION), **EXACT)
    model = build(actions="discrete")
    steps = draw(model, rng)
    logits, _ = model(steps)
    wanted = F.cross_entropy(logits.reshape(-1, ACTION), steps.actions.reshape(-1))
    torch.testing.assert_close(model.loss(steps), wanted, **EXACT)


def test_scales_lead_to_the_environment_and_back() -> None:
    model = build()
    low, high = torch.tensor([-2.0, 0.0, 1.0]), torch.tensor([2.0, 1.0, 5.0])
    mean, std = torch.arange(5.0), torch.full((5,), 2.0)
    model.set_scales(state_mean=mean, state_std=std, action_low=low, action_high=high)
    actions = torch.tensor([[-2.0, 0.5, 5.0]], dtype=torch.float64)
    unit = model.to_unit(actions)
    torch.testing.assert_close(unit, torch.tensor([[-1.0, 0.0, 1.0]], dtype=torch.float64))
    torch.testing.assert_close(model.to_environment(unit), actions.float())
    torch.testing.assert_close(model.normalise(mean + 4.0), torch.full((5,), 2.0, dtype=torch.float64))


def test_the_state_is_constant_and_small(rng: torch.Generator) -> None:
    model = build()
    _, state = model(draw(model, rng))
    _, later = model(draw(model, rng, length=200), state)
    assert state.nbytes == later.nbytes == model.init_state(2).nbytes
    with torch.device("meta"):
        published = DecisionModel(DecisionModelConfig(state_size=27, action_size=8))
    assert published.init_state(1).nbytes < 20_000


def test_a_saved_policy_is_whole(tmp_path, rng: torch.Generator) -> None:
    model = build()
    model.set_scales(state_mean=torch.arange(5.0), state_std=torch.full((5,), 3.0))
    loaded = load_model(save_model(model, tmp_path))
    assert isinstance(loaded, DecisionModel)
    assert torch.equal(loaded.state_std, model.state_std)
    steps = draw(model, rng)
    torch.testing.assert_close(loaded(steps)[0], model(steps)[0], rtol=0.0, atol=0.0)


def test_steps_beyond_the_table_use_its_last_row(rng: torch.Generator) -> None:
    model = build(max_steps=10)
    steps = draw(model, rng)
    far = steps._replace(timesteps=steps.timesteps.clamp(max=9))
    torch.testing.assert_close(model(steps)[0], model(far)[0], **EXACT)


@pytest.mark.parametrize("options", [{"is_fused": True}, {"is_fused": True, "actions": "discrete"}])
def test_a_fused_step_looks_at_no_numbers(options: dict[str, Any], rng: torch.Generator) -> None:
    """So that a step that was recorded before the first action holds after it, and the other way round."""
    model = build(**options)
    step = cut(draw(model, rng, length=1), 0)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        fakes = Steps(*map(mode.from_tensor, step))
        model.step(fakes, model.init_state(2))  # `if` of a tensor without numbers raises


def test_actions_can_be_left_out_of_sight(rng: torch.Generator) -> None:
    model = build(is_fused=True, sees_actions=False)
    steps = draw(model, rng)
    others = steps._replace(actions=-steps.actions)
    torch.testing.assert_close(model(steps)[0], model(others)[0], **EXACT)
    with pytest.raises(ConfigError, match="needs is_fused=True"):
        build(sees_actions=False)


@pytest.mark.parametrize("count", [1, 2])
def test_every_stream_takes_one_step(model: DecisionModel, rng: torch.Generator, count: int) -> None:
    steps, state = draw(model, rng, batch=count), model.init_state(3)
    words = rf"state is of 3 streams; items for {count} came.*init_state\({count}\).*select"
    with pytest.raises(StateError, match=words):
        model.step(cut(steps, 0), state)
    with pytest.raises(StateError, match=words):
        model(steps, state)


def test_a_policy_state_is_saved_and_converted_like_every_other() -> None:
    model = build()
    state = PolicyState(model.init_state(2), torch.zeros(2, dtype=torch.float64), torch.arange(2))
    smaller = state.to(torch.float32)
    assert isinstance(smaller.memory, DecisionState)
    assert {part.dtype for part in smaller.memory.encoder.layers[0]} == {torch.float32}
    assert smaller.return_to_go.dtype == torch.float64
    assert state_to_bytes(state_from_bytes(state_to_bytes(state), like=state)) == state_to_bytes(state)
    assert state.clone().select([1]).timestep.tolist() == [1]


def test_what_does_not_fit_is_said(rng: torch.Generator) -> None:
    model = build()
    steps = draw(model, rng)
    with pytest.raises(ShapeError, match=r"states must be \(2, 9, 5\) .* got \(2, 9, 4\)"):
        model(steps._replace(states=steps.states[..., 1:]))
    with pytest.raises(ShapeError, match="mask must be bool"):
        model(steps, mask=torch.ones(2, 9))
    with pytest.raises(ShapeError, match=r"mask must be \(b, k\) = \(2, 9\); got \(2, 8\)"):
        model(steps, mask=torch.ones(2, 8, dtype=torch.bool))
    with pytest.raises(StateError, match="DecisionState"):
        model(steps, model.encoder.init_state(2))
    with pytest.raises(ConfigError, match="unknown kind of actions 'multi'"):
        DecisionModelConfig(state_size=1, action_size=1, actions="multi")
    with pytest.raises(ConfigError, match="state_size must be at least 1; got 0; return_scale must be above"):
        DecisionModelConfig(state_size=0, action_size=1, return_scale=0.0)
    assert isinstance(model.init_state(1).detach(), DecisionState)


def test_the_first_numbers_of_the_timestep_table_are_scaled_and_nothing_else() -> None:
    published, small = build().state_dict(), build(timestep_std=0.02).state_dict()
    for name, weights in published.items():
        scale = 0.02 if name == "timestep_embedding.weight" else 1.0
        torch.testing.assert_close(small[name], weights * scale, rtol=1e-6, atol=0.0)
    with pytest.raises(ConfigError, match="timestep_std must be above 0; got 0"):
        build(timestep_std=0.0)
