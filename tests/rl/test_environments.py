"""Episodes side by side: seeds, ends, failures that stay where they happened; D4RL's scores."""

from collections.abc import Iterator, Sequence

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from aaren.errors import ConfigError, MissingDependencyError
from aaren.rl.environments import REFERENCE_RETURNS, Outcome, Simulator, normalised_score


class Countdown(gymnasium.Env):
    """Ends after as many steps as its seed says; may break on the way."""

    observation_space = spaces.Box(-1.0, 100.0, (2,))
    action_space = spaces.Box(-2.0, 2.0, (1,))
    breaks_at: int | None = None
    shows_nan = False

    def reset(self, *, seed):
        self.left, self.seed_given = seed % 10, seed
        return np.array([self.left, 0.0]), {}

    def step(self, action):
        self.left -= 1
        if self.breaks_at is not None and self.seed_given >= 100 and self.left == self.breaks_at:
            if self.shows_nan:
                return np.array([np.nan, 0.0]), 1.0, False, False, {}
            raise RuntimeError("the simulation exploded")
        return np.array([self.left, float(action[0])]), 1.0, self.left == 0, False, {}


class Broken(Countdown):
    breaks_at = 2


class Absurd(Broken):
    shows_nan = True


class Nested(Countdown):
    observation_space = spaces.Dict({"a": spaces.Discrete(2)})


class Recorder:
    """Acts with 0.5 and remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[np.ndarray] = []
        self.rewards: list[np.ndarray | None] = []
        self.kept: list[list[int]] = []

    def act(self, observations: np.ndarray, rewards: np.ndarray | None) -> np.ndarray:
        self.shown.append(observations)
        self.rewards.append(rewards)
        return np.full((len(observations), 1), 0.5)

    def keep(self, rows: Sequence[int]) -> None:
        self.kept.append(list(rows))


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for kind in (Countdown, Broken, Absurd, Nested):
        gymnasium.register(f"{kind.__name__}-v0", entry_point=kind, max_episode_steps=8)
    yield
    for kind in (Countdown, Broken, Absurd, Nested):
        gymnasium.registry.pop(f"{kind.__name__}-v0")


def test_episodes_go_in_step_and_leave_when_they_end() -> None:
    player = Recorder()
    outcomes = Simulator("Countdown-v0").play(player, [3, 1, 5])
    assert outcomes == [Outcome(3.0, 3), Outcome(1.0, 1), Outcome(5.0, 5)]
    assert [len(shown) for shown in player.shown] == [3, 2, 2, 1, 1]
    assert player.kept == [[0, 2], [1]]
    assert player.rewards[0] is None
    assert player.rewards[1].tolist() == [1.0, 1.0]
    assert player.shown[1].tolist() == [[2.0, 0.5], [4.0, 0.5]]


def test_the_step_limit_is_the_environments_own_unless_given() -> None:
    assert Simulator("Countdown-v0").play(Recorder(), [9]) == [Outcome(8.0, 8)]
    assert Simulator("Countdown-v0", max_steps=4).play(Recorder(), [9]) == [Outcome(4.0, 4)]


@pytest.mark.parametrize(
    ("name", "words"),
    [("Broken-v0", "RuntimeError: the simulation exploded"), ("Absurd-v0", "reward is not finite")],
)
def test_a_failure_ends_its_own_episode_only(name: str, words: str) -> None:
    simulator = Simulator(name)
    first = simulator._environments[0]
    outcomes = simulator.play(Recorder(), [105, 4, 107])
    assert outcomes[1] == Outcome(4.0, 4)
    for outcome, steps in ((outcomes[0], 2), (outcomes[2], 4)):
        assert not outcome.is_whole
        assert outcome.steps == steps
        assert words in outcome.error
        assert outcome.error.startswith(f"step {steps}: ")
    again = simulator.play(Recorder(), [4, 4, 4])
    assert again == [Outcome(4.0, 4)] * 3
    assert simulator._environments[0] is not first  # a broken one is not trusted again


def test_missing_numbers_are_zero() -> None:
    player = Recorder()
    Simulator("Countdown-v0").play(player, [2], observation_size=5)
    assert player.shown[0].tolist() == [[2.0, 0.0, 0.0, 0.0, 0.0]]


def test_discrete_and_box_actions_are_known() -> None:
    cart = Simulator("CartPole-v1")
    assert (cart.observation_size, cart.actions.kind, cart.actions.size, cart.max_steps) == (
        4,
        "discrete",
        2,
        500,
    )
    pole = Simulator("Pendulum-v1")
    assert (pole.observation_size, pole.actions.kind, pole.actions.low.tolist()) == (3, "box", [-2.0])


def test_what_cannot_be_played_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"Nested-v0: box observations .* got Dict and Box"):
        Simulator("Nested-v0")
    with pytest.raises(ConfigError, match="Gymnasium has no environment 'Hoper-v4'"):
        Simulator("Hoper-v4")
    monkeypatch.setitem(__import__("sys").modules, "gymnasium", None)
    with pytest.raises(
        MissingDependencyError, match=r"Pendulum-v1 needs 'gymnasium': pip install 'aaren\[rl\]'"
    ):
        Simulator("Pendulum-v1")


@pytest.mark.parametrize("robot", sorted(REFERENCE_RETURNS))
def test_random_is_0_and_expert_is_100(robot: str) -> None:
    low, high = REFERENCE_RETURNS[robot]
    assert normalised_score(robot, low) == 0.0
    assert normalised_score(robot, high) == pytest.approx(100.0)


def test_the_constants_are_those_of_d4rl() -> None:
    assert REFERENCE_RETURNS["halfcheetah"] == (-280.178953, 12135.0)
    assert REFERENCE_RETURNS["hopper"] == (-20.272305, 3234.3)
    assert REFERENCE_RETURNS["walker2d"] == (1.629008, 4592.3)
    assert REFERENCE_RETURNS["ant"] == (-325.6, 3879.7)


def test_an_environment_without_references_is_told() -> None:
    with pytest.raises(ConfigError, match="unknown environment with D4RL reference returns 'Pendulum-v1'"):
        normalised_score("Pendulum-v1", 0.0)
