from pathlib import Path

import pytest

from aaren.errors import ConfigError
from aaren.rl import policies
from aaren.rl.recipes import ENVIRONMENTS, QUALITIES, recipe_for

NAMES = [f"{robot}-{quality}" for robot in ENVIRONMENTS for quality in QUALITIES]


def test_there_are_twelve_with_the_shares_of_the_protocol() -> None:
    counts = {name: len(recipe_for(name).ingredients) for name in NAMES}
    assert len(counts) == 12
    assert all(counts[f"{robot}-medium"] == 1 for robot in ENVIRONMENTS)
    assert all(counts[f"{robot}-medium-expert"] == 2 for robot in ENVIRONMENTS)
    replays = [counts[f"{robot}-medium-replay"] for robot in ("halfcheetah", "hopper", "walker2d", "ant")]
    assert replays == [27, 8, 6, 14]


def test_the_first_half_of_medium_expert_is_medium() -> None:
    for robot in ENVIRONMENTS:
        medium, both = recipe_for(f"{robot}-medium"), recipe_for(f"{robot}-medium-expert")
        assert both.ingredients[0] == medium.ingredients[0]


def test_names_work_with_and_without_their_ending() -> None:
    assert recipe_for("Hopper-Medium-regen") == recipe_for("hopper-medium")
    assert recipe_for("ant-medium").environment == "Ant-v4"
    with pytest.raises(ConfigError, match="unknown dataset to roll out 'hopper-expert'; did you mean"):
        recipe_for("hopper-expert")


@pytest.mark.parametrize("name", NAMES)
def test_the_mirror_has_every_policy(name: str, mirror: Path) -> None:
    if not list((mirror / "rl").glob("*.npz")):
        pytest.skip("needs the policies of the mirror's rl folder")
    for ingredient in recipe_for(name).ingredients:
        file, at, snapshot = ingredient.policy.partition("@")
        policy = policies.load(f"{mirror / 'rl' / file}.npz{at}{snapshot}")
        assert policy.environment.lower() == name.partition("-")[0]
        assert policy.is_random == ingredient.is_sampled
