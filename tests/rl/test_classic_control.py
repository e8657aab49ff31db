import numpy as np
import pytest

from aaren.errors import ConfigError
from aaren.rl import classic_control
from aaren.rl.trajectories import Trajectories

pytest.importorskip("gymnasium", reason="environments need the extra aaren[rl]")


@pytest.fixture(scope="module", params=sorted(classic_control.SETS))
def made(request: pytest.FixtureRequest) -> Trajectories:
    return classic_control.generate(request.param, episodes=30)


def test_skilled_episodes_beat_clumsy_and_random_ones(made: Trajectories) -> None:
    skilled, clumsy, random = (made.returns[level::3].mean() for level in range(3))
    assert skilled > clumsy > random


def test_sets_repeat_with_their_seed(made: Trajectories) -> None:
    again = classic_control.generate(made.name, episodes=3)
    rows = again.num_transitions
    np.testing.assert_array_equal(made.observations[:rows], again.observations)
    other = classic_control.generate(made.name, episodes=3, seed=1)
    assert not np.array_equal(made.observations[0], other.observations[0])


def test_the_pendulum_is_continuous_and_bounded() -> None:
    pendulum = classic_control.generate("pendulum", episodes=6)
    assert (pendulum.state_size, pendulum.action_size, pendulum.num_actions) == (3, 1, None)
    assert (pendulum.lengths == 200).all()
    assert not pendulum.is_terminal.any()
    assert pendulum.action_high is not None
    assert np.abs(pendulum.actions).max() <= pendulum.action_high[0] == 2.0
    assert pendulum.returns[::3].mean() > -300  # it does swing up; random actions get about -1,100


def test_the_cart_balances() -> None:
    cartpole = classic_control.generate("cartpole", episodes=6)
    assert (cartpole.state_size, cartpole.num_actions) == (4, 2)
    assert cartpole.returns[0] == 500.0
    assert not cartpole.is_terminal[0]
    assert cartpole.is_terminal[2]


def test_an_unknown_set_is_told() -> None:
    with pytest.raises(ConfigError, match="unknown classic-control set 'pendulm'; did you mean 'pendulum'"):
        classic_control.generate("pendulm")
