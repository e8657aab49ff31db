"""D4RL's reference returns and the score that they define: 0 is as good as random, 100 as an expert.

The constants are D4RL's own, for its version-2 environments; a record of a score says which version was run.
"""

from typing import NamedTuple

from aaren.errors import unknown_name


class ReferenceReturns(NamedTuple):
    """What random actions and an expert collect in one episode."""

    random: float
    expert: float


REFERENCE_RETURNS = {
    "halfcheetah": ReferenceReturns(-280.178953, 12135.0),
    "hopper": ReferenceReturns(-20.272305, 3234.3),
    "walker2d": ReferenceReturns(1.629008, 4592.3),
    "ant": ReferenceReturns(-325.6, 3879.7),
}


def normalised_score(environment: str, episode_return: float) -> float:
    """Place a return between random (0) and expert (100); versions and dataset names are allowed.

    >>> round(normalised_score("Hopper-v4", 1607.0), 2)
    50.0
    >>> normalised_score("ant-medium-expert", 3879.7)
    100.0
    """
    robot = environment.lower().partition("-")[0]
    if robot not in REFERENCE_RETURNS:
        raise unknown_name("environment with D4RL reference returns", environment, REFERENCE_RETURNS)
    low, high = REFERENCE_RETURNS[robot]
    return 100.0 * (episode_return - low) / (high - low)
