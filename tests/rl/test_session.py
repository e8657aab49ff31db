"""PolicySession: what it feeds, each context against its definition, saving in mid-episode, refusals."""

from typing import Any

import numpy as np
import pytest
import torch

from aaren.errors import ConfigError, DataError, ShapeError, StateError
from aaren.rl.model import DecisionModel, DecisionModelConfig, Steps

K, LENGTH = 4, 11
CONTEXTS = ("window", "carried", "reset")


def build(**options: Any) -> DecisionModel:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = {"state_size": 3, "action_size": 2, "width": 16, "num_heads": 2, "num_layers": 2}
        config |= {"context_steps": K, "return_scale": 10.0, "target_return": 50.0}
        model = DecisionModel(DecisionModelConfig(**{**config, **options})).double().eval()
    if not model.config.is_discrete:
        bounds = {"action_low": torch.tensor([-2.0, 0.0]), "action_high": torch.tensor([2.0, 1.0])}
        model.set_scales(state_mean=torch.ones(3), state_std=torch.full((3,), 2.0), **bounds)
    return model


@pytest.fixture
def episode(rng: torch.Generator) -> tuple[np.ndarray, np.ndarray]:
    return (
        torch.randn(LENGTH, 3, generator=rng, dtype=torch.float64).numpy(),
        torch.randn(LENGTH, generator=rng, dtype=torch.float64).numpy(),
    )


def run(
    session: Any, episode: tuple[np.ndarray, np.ndarray], begin: int = 0, end: int = LENGTH
) -> np.ndarray:
    observations, rewards = episode
    return np.stack([session.push(observations[t], rewards[t - 1] if t else None) for t in range(begin, end)])


@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_context_sees_what_it_should(mixer: str, context: str, episode) -> None:
    model = build(mixer=mixer)
    actions = run(model.stream(context=context), episode)
    observations, rewards = episode
    returns = 50.0 - np.concatenate([[0.0], np.cumsum(rewards)[:-1]])
    unit = model.to_unit(torch.from_numpy(actions))
    for t in range(LENGTH):
        begin = {"window": max(0, t - K + 1), "carried": 0, "reset": t - t % K}[context]
        steps = Steps(
            torch.from_numpy(returns[begin : t + 1])[None] / 10.0,
            model.normalise(torch.from_numpy(observations[begin : t + 1]))[None],
            unit[None, begin : t + 1],
            torch.arange(begin, t + 1)[None],
        )
        wanted = model.to_environment(model(steps)[0][0, -1])
        np.testing.assert_allclose(actions[t], wanted.detach().numpy(), atol=1e-5)
    assert actions[:, 1].min() >= 0.0
    assert actions.dtype == np.float32


@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_restored_policy_acts_identically(mixer: str, context: str, episode) -> None:
    model = build(mixer=mixer).float()
    whole = run(model.stream(context=context), episode)
    session = model.stream(context=context)
    run(session, episode, end=6)
    blob = session.to_bytes()
    other = model.stream(context=context)
    other.restore(blob)
    np.testing.assert_array_equal(run(other, episode, begin=6), whole[6:])
    state = session.state  # a value: going on does not change it
    run(session, episode, begin=6)
    session.state = state
    np.testing.assert_array_equal(run(session, episode, begin=6), whole[6:])


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
def test_episodes_side_by_side_do_not_touch(mixer: str, context: str, rng: torch.Generator) -> None:
    model = build(mixer=mixer)
    observations = torch.randn(LENGTH, 3, 3, generator=rng, dtype=torch.float64)
    session = model.stream(3, context=context)
    alone = model.stream(context=context)
    for t in range(LENGTH):
        if t == 5:
            session.keep([2, 0])
        rows = [0, 1, 2] if t < 5 else [2, 0]
        # The second of those that go on stands still for one step.
        mask = [True, t != 7] if t >= 5 else None
        actions = session.push(observations[t, rows], np.ones(len(rows)), mask=mask)
        wanted = alone.push(observations[t, 2], 1.0)
        np.testing.assert_allclose(actions[rows.index(2)], wanted, atol=1e-6)
    assert session.state.timestep.tolist() == [LENGTH, LENGTH - 1]


@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("begun", [1, K, 6])
def test_an_episode_can_be_taken_over(mixer: str, context: str, begun: int, episode) -> None:
    model = build(mixer=mixer)
    plain, later = model.stream(context=context), model.stream(context=context)
    actions = run(plain, episode)
    later.replay(episode[0][:begun], actions[:begun], episode[1][:begun])
    first = later.push(episode[0][begun])  # whose reward has been told
    np.testing.assert_allclose(first, actions[begun], atol=1e-5)
    rest = run(later, episode, begin=begun + 1)
    np.testing.assert_allclose(rest, actions[begun + 1 :], atol=1e-5)
    assert float(later.state.return_to_go) == pytest.approx(float(plain.state.return_to_go))
    with pytest.raises(ShapeError, match="at least one step"):
        later.replay(np.zeros((0, 3)), np.zeros((0, 2)), np.zeros(0))


def test_returns_are_asked_for_and_counted_down(episode) -> None:
    model = build()
    session = model.stream(target_return=80.0)
    modest = model.stream(target_return=-20.0)
    assert not np.allclose(run(session, episode), run(modest, episode))
    assert float(session.state.return_to_go) == pytest.approx(80.0 - episode[1][:-1].sum())
    session.reset()
    assert float(session.state.return_to_go) == 80.0
    assert float(model.stream().state.return_to_go) == 50.0


def test_the_carried_out_action_may_be_another_one(episode) -> None:
    model = build()
    for context in CONTEXTS:
        plain, told = model.stream(context=context), model.stream(context=context)
        first = plain.push(episode[0][0])
        told.push(episode[0][0])
        same = told.push(episode[0][1], 1.0, action=first)
        np.testing.assert_allclose(same, plain.push(episode[0][1], 1.0), atol=1e-6)
        other = model.stream(context=context)
        other.push(episode[0][0])
        assert not np.allclose(other.push(episode[0][1], 1.0, action=first + 0.5), same)


def test_discrete_actions_are_numbers(episode) -> None:
    model = build(actions="discrete", action_size=4)
    for context in CONTEXTS:
        action = model.stream(context=context).push(episode[0][0])
        assert isinstance(action, int)
        assert action in range(4)
        actions = model.stream(2, context=context).push(episode[0][:2])
        assert actions.shape == (2,)


def test_memory_is_constant_where_it_should_be(episode) -> None:
    model = build()
    for context in CONTEXTS:
        session = model.stream(context=context)
        run(session, episode, end=5)
        early = session.state.nbytes
        run(session, episode, begin=5)
        assert session.state.nbytes == early


@pytest.mark.parametrize("actions", ["box", "discrete"])
@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_session_may_have_no_episode(mixer: str, context: str, actions: str, episode) -> None:
    model = build(mixer=mixer, actions=actions)
    session = model.stream(2, context=context)
    session.push(episode[0][:2])
    session.keep([])
    assert session.batch_size == 0
    shape = (0,) if actions == "discrete" else (0, 2)
    for opened in (session, model.stream(0, context=context)):
        for mask in (None, []):
            assert opened.push(np.zeros((0, 3)), [], mask=mask).shape == shape
        opened.reset()
        assert opened.state.timestep.shape == (0,)


@pytest.mark.parametrize("chosen", [[2, 0], (2, 0), np.array([2, 0]), torch.tensor([2, 0])])
def test_episodes_are_kept_in_the_order_given(chosen: Any, episode) -> None:
    session = build().stream(3)
    session.push(episode[0][:3])
    session.push(episode[0][:3], [1.0, 2.0, 3.0])
    session.keep(chosen)
    assert session.batch_size == 2
    assert session.state.return_to_go.tolist() == [47.0, 49.0]
    session.keep(torch.tensor([False, True]))
    assert session.batch_size == 1
    assert session.state.return_to_go.tolist() == [49.0]


def test_a_state_of_another_number_of_episodes_is_refused() -> None:
    model = build()
    for context in CONTEXTS:
        blob = model.stream(2, context=context).to_bytes()
        with pytest.raises(StateError, match="holds 2 streams; this session has 1"):
            model.stream(context=context).restore(blob)


@pytest.mark.parametrize("context", CONTEXTS)
def test_an_action_that_does_not_fit_is_refused(context: str, episode) -> None:
    session = build().stream(context=context)
    session.push(episode[0][0])
    before = session.to_bytes()
    with pytest.raises(ShapeError, match=r"action must be \(2,\) in this session; got \(3,\)"):
        session.push(episode[0][1], 1.0, action=[0.0, 0.0, 0.0])
    with pytest.raises(DataError, match="the action of step 1 in episode 0 is not finite"):
        session.push(episode[0][1], 1.0, action=[0.0, float("nan")])
    assert session.to_bytes() == before
    side_by_side = build(actions="discrete", action_size=4).stream(2, context=context)
    side_by_side.push(episode[0][:2])
    with pytest.raises(ShapeError, match=r"action must be \(2,\) in this session; got \(3,\)"):
        side_by_side.push(episode[0][:2], [1.0, 1.0], action=[0, 1, 2])
    side_by_side.push(episode[0][:2], [1.0, 1.0], action=[3, 1])


def test_refusals(episode) -> None:
    model = build()
    session = model.stream()
    session.push(episode[0][0])
    with pytest.raises(DataError, match=r"the reward of step 1 in episode 0 is not finite \(nan\)"):
        session.push(episode[0][1], float("nan"))
    with pytest.raises(DataError, match="the observation of step 1 in episode 0 is not finite"):
        session.push([1.0, float("inf"), 0.0])
    with pytest.raises(ShapeError, match=r"observation must be \(3,\) in this session; got \(4,\)"):
        session.push([1.0, 2.0, 3.0, 4.0])
    with pytest.raises(ShapeError, match=r"mask must be \(1,\), one per stream; got \(2,\)"):
        session.push(episode[0][1], mask=[True, False])
    with pytest.raises(ConfigError, match="unknown context 'windows'; did you mean 'window'"):
        model.stream(context="windows")
    with pytest.raises(ConfigError, match="context_steps must be at least 1; got 0"):
        model.stream(context="reset", context_steps=0)
    with pytest.raises(ConfigError, match="target_return must be a finite number"):
        model.stream(target_return=float("nan"))
    with pytest.raises(ConfigError, match="open it with a batch_size"):
        session.keep([0])
    with pytest.raises(StateError, match="model with other layers"):
        model.stream(context="window").restore(session.to_bytes())
    other = build(width=32)
    with pytest.raises(StateError, match="fingerprint"):
        other.stream().restore(session.to_bytes())


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("value", [1e39, -1e300, float("inf"), float("nan")])
def test_what_float32_cannot_hold_leaves_no_trace(context: str, value: float, episode) -> None:
    session = build().float().stream(2, context=context)
    session.push(episode[0][:2])
    before = session.to_bytes()
    seen = np.array(episode[0][2:4], dtype=np.float64)
    spoilt = seen.copy()
    spoilt[1, 0] = value
    pushes: list[dict[str, Any]] = [
        {"observation": spoilt, "reward": [1.0, 1.0]},
        {"observation": seen, "reward": [1.0, value * 1e6]},
        {"observation": seen, "reward": [1.0, 1.0], "action": [[0.0, 0.0], [value, 0.0]]},
    ]
    for given in pushes:
        with pytest.raises(
            DataError, match=r"of step 1 in episode 1 is (not finite|too large for torch.float32)"
        ):
            session.push(**given)
        assert session.to_bytes() == before
    for given in pushes:
        assert np.isfinite(session.push(**given, mask=[True, False])[0]).all()  # type: ignore[index]
    assert session.state.timestep.tolist() == [4, 1]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("wrong", [0.7, 7, -1, 4, float("nan"), float("inf"), 1e30])
def test_discrete_actions_are_whole_and_among_those_there_are(context: str, wrong: float, episode) -> None:
    model = build(actions="discrete", action_size=4).float()
    session = model.stream(2, context=context)
    session.push(episode[0][:2])
    before = session.to_bytes()
    with pytest.raises(
        DataError, match=r"action of step 1 in episode 1: expected a whole number from 0 to 3"
    ):
        session.push(episode[0][:2], [1.0, 1.0], action=[1, wrong])
    with pytest.raises(
        DataError, match=r"actions of step 1 in episode 0: expected a whole number from 0 to 3"
    ):
        session.replay(np.zeros((2, 3, 3)), [[0, 1, wrong], [0, 1, 2]], np.zeros((2, 3)))
    assert session.to_bytes() == before
    session.push(episode[0][:2], [1.0, 1.0], action=[3.0, wrong], mask=[True, False])


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 1e39, 1e300])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_replay_that_cannot_be_held_leaves_no_trace(
    context: str, value: float, place: int, episode
) -> None:
    session = build().float().stream(context=context)
    session.push(episode[0][0])
    before = session.to_bytes()
    given = [np.zeros((4, 3)), np.zeros((4, 2)), np.zeros(4)]
    given[place].flat[-1] = value * (1e6 if place == 2 else 1.0)
    with pytest.raises(DataError, match=r"episode 0 is (not finite|too large)"):
        session.replay(*given)
    assert session.to_bytes() == before
    for shape in ((4,), (4, 3), (3, 2), ()):
        with pytest.raises(ShapeError):
            session.replay(np.zeros((4, 3)), np.zeros(shape), np.zeros(4))


def test_a_return_that_float32_cannot_hold_is_not_asked_for() -> None:
    for target in (1e45, float("inf")):
        with pytest.raises(
            ConfigError, match=r"target_return must be a finite number that torch.float32 can hold"
        ):
            build().float().stream(target_return=target)


@pytest.mark.parametrize("wrong", [[0.7], [3], [-1], [float("nan")]])
def test_episodes_that_are_not_there_cannot_be_kept(wrong: Any) -> None:
    session = build().float().stream(3)
    with pytest.raises(DataError, match="episodes are whole numbers from 0 to 2; got"):
        session.keep(wrong)
    assert session.batch_size == 3


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_rewards_can_be_left_uncounted(engine: str, episode) -> None:
    observations, rewards = episode
    model = build(is_fused=True, counts_rewards=False).float()
    without, with_rewards = (model.stream(context="reset", engine=engine) for _ in range(2))
    first = [without.push(row) for row in observations]
    second = [with_rewards.push(row, gained) for row, gained in zip(observations, rewards, strict=True)]
    np.testing.assert_array_equal(first, second)
    assert float(with_rewards.state.return_to_go) == 50.0
    replayed = model.stream(context="reset", engine=engine)
    replayed.replay(observations[:5], np.array(first[:5]), rewards[:5])
    np.testing.assert_allclose(replayed.push(observations[5], rewards[4]), first[5], atol=1e-5)
