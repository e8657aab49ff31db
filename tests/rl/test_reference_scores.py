import pytest

from aaren.errors import ConfigError
from aaren.rl.recipes import REFERENCE_RETURNS, normalised_score


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
