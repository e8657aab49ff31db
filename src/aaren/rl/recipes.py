"""Which public policies stand in for D4RL's, dataset by dataset, when its files cannot be had.

Levels of score are alike; the algorithms are not: D4RL rolled out SAC policies, these come from PPO, TRPO,
ARS, A2C, SAC and TQC. "Medium-replay" is equal shares of rollouts from snapshots of one training run, an
approximation of D4RL's replay buffer, with neighbours filled in where the run leaves a hole. Actions are
drawn, as in D4RL, except where a policy has mean actions only. Opens no file.

D4RL's reference returns and the score that they define: 0 is as good as random, 100 as an expert.

The constants are D4RL's own, for its version-2 environments; a record of a score says which version was run.
"""

from typing import NamedTuple

from aaren.errors import unknown_name

SUFFIX = "-regen"
QUALITIES = ("medium", "medium-replay", "medium-expert")


class Ingredient(NamedTuple):
    """A policy file of the `rl` data folder, without its suffix, and how it is used."""

    policy: str  # "name" or "series@snapshot"
    is_sampled: bool = True
    noise: float = 0.0  # added to actions


class Recipe(NamedTuple):
    """An environment and the behaviours that share a dataset equally."""

    name: str  # such as "hopper-medium-regen"
    environment: str  # Gymnasium id
    ingredients: tuple[Ingredient, ...]


def _series(robot: str, *iterations: int) -> tuple[Ingredient, ...]:
    return tuple(Ingredient(f"oai_trpo_{robot}_series@it{iteration:03d}") for iteration in iterations)


ENVIRONMENTS = {
    "halfcheetah": "HalfCheetah-v4",
    "hopper": "Hopper-v4",
    "walker2d": "Walker2d-v4",
    "ant": "Ant-v4",
}
_MEDIUM = {
    "halfcheetah": Ingredient("zoo_ppo_HalfCheetah"),
    "hopper": Ingredient("zoo_sac_Hopper"),
    "walker2d": _series("Walker2d", 80)[0],
    "ant": _series("Ant", 260)[0],
}
_EXPERT = {
    "halfcheetah": Ingredient("zoo_tqc_HalfCheetah"),
    "hopper": _series("Hopper", 380)[0],
    "walker2d": Ingredient("berkeley_Walker2d"),
    "ant": Ingredient("berkeley_Ant"),
}
_REPLAY = {
    "halfcheetah": (
        *_series("HalfCheetah", *range(0, 501, 20)),
        Ingredient("zoo_ars_HalfCheetah", is_sampled=False),
    ),
    # The run jumps from a score of 18 (it020) to 85 (it040): the medium policy with less and less noise on
    # its actions fills the hole, at about 26, 32 and 39.
    "hopper": (
        *_series("Hopper", 0, 20),
        Ingredient("zoo_a2c_Hopper_best"),
        Ingredient("zoo_a2c_Hopper"),
        Ingredient("zoo_sac_Hopper", noise=0.3),
        Ingredient("zoo_sac_Hopper", noise=0.2),
        Ingredient("zoo_sac_Hopper", noise=0.1),
        Ingredient("zoo_sac_Hopper"),
    ),
    "walker2d": (*_series("Walker2d", 0, 20, 40, 60, 80), Ingredient("zoo_a2c_Walker2d")),
    "ant": _series("Ant", *range(0, 261, 20)),
}


def recipe_for(name: str) -> Recipe:
    """Find the recipe of a dataset, with or without "-regen".

    >>> recipe_for("ant-medium-expert").ingredients[1].policy
    'berkeley_Ant'
    """
    robot, _, quality = name.lower().removesuffix(SUFFIX).partition("-")
    if robot not in ENVIRONMENTS or quality not in QUALITIES:
        known = (f"{robot}-{quality}{SUFFIX}" for robot in ENVIRONMENTS for quality in QUALITIES)
        raise unknown_name("dataset to roll out", name, known)
    ingredients: tuple[Ingredient, ...]
    if quality == "medium":
        ingredients = (_MEDIUM[robot],)
    elif quality == "medium-expert":
        ingredients = (_MEDIUM[robot], _EXPERT[robot])
    else:
        ingredients = _REPLAY[robot]
    return Recipe(f"{robot}-{quality}{SUFFIX}", ENVIRONMENTS[robot], ingredients)


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
