"""Make an offline-RL dataset by rolling out behaviour policies.

Episode k of behaviour p depends on the seed, p and k alone. The same bytes come out on one machine with one
set of versions, which the file's record names.

A recipe names the public policies that stand in for D4RL's where its files are unavailable. Levels of score
are alike; the algorithms are not: D4RL rolled out SAC policies, these come from PPO, TRPO, ARS, A2C, SAC and
TQC. "Medium-replay" is rollouts from snapshots of one training run, an approximation of D4RL's replay buffer;
where the run leaves a hole between two scores, other policies of its level fill it. Its snapshots have equal
numbers of episodes, because training draws episodes, not steps: with equal numbers of steps nearly all would
be the short ones of policies that fall at once. Medium and expert have equal numbers of steps, as in D4RL.
Actions are drawn, as in D4RL, except where a policy has mean actions only.
"""

import json
import platform
from collections.abc import Iterator
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aaren.errors import ConfigError, DataError, require_extra, unknown_name
from aaren.files import folders, npz
from aaren.rl.environments import Environment, build_environment, normalised_score
from aaren.version import __version__
from rl_data import policies
from rl_data.policies import Policy

SUFFIX = "-regen"
QUALITIES = ("medium", "medium-replay", "medium-expert")
SOURCES = (
    "DLR-RM/rl-trained-agents, openai/imitation (expert_policies), modestyachts/ARS (trained_policies), "
    "berkeleydeeprlcourse/homework (hw1/experts), Farama-Foundation/minari-dataset-generation-scripts"
)


class Behaviour(NamedTuple):
    """A policy file of the `rl` data folder, without its suffix, and how it is used."""

    policy: str  # "name" or "series@snapshot"
    is_sampled: bool = True  # draw actions; False: take their mean
    noise: float = 0.0  # standard deviation of noise that is added to actions


class Recipe(NamedTuple):
    """An environment and the behaviours that share a dataset equally."""

    name: str  # such as "hopper-medium-regen"
    environment: str  # Gymnasium id
    behaviours: tuple[Behaviour, ...]
    takes_turns: bool = False  # one episode of each, and again; False: equal numbers of transitions


class Episode(NamedTuple):
    """What happened, step by step; the last observation is not kept."""

    observations: NDArray[np.float32]  # (steps, observation size)
    actions: NDArray[np.float32]  # (steps, action size), as the environment got them
    rewards: NDArray[np.float32]  # (steps,)
    is_terminal: bool  # ended by the environment, not by the step limit


def roll_out(
    environment: Environment, max_steps: int, policy: Policy, use: Behaviour, key: tuple[int, int, int]
) -> Episode:
    """Run one episode: a function of the key: the seed, the behaviour's number and the episode's own."""
    start, draws = np.random.SeedSequence(key).spawn(2)
    rng = np.random.default_rng(draws)
    observations: list[NDArray[np.float32]] = []
    actions: list[NDArray[np.float32]] = []
    rewards: list[float] = []
    observation, _ = environment.reset(seed=int(start.generate_state(1)[0]))
    is_terminal = False
    while len(rewards) < max_steps and not is_terminal:
        observations.append(observation.astype(np.float32))
        action = policy.act(observation[None], rng=rng if use.is_sampled else None)[0]
        if use.noise:
            action = np.clip(action + use.noise * rng.standard_normal(action.shape), -1.0, 1.0)
        # The environment gets the very float32 numbers that are kept, so that the data can be replayed.
        actions.append(action.astype(np.float32))
        observation, reward, is_terminal, _, _ = environment.step(actions[-1])
        rewards.append(reward)
    stacked = np.stack(observations), np.stack(actions), np.array(rewards, dtype=np.float32)
    return Episode(*stacked, bool(is_terminal))


def make(name: str, *, transitions: int = 200_000, seed: int = 0) -> Path:
    """Roll out a dataset such as "hopper-medium" into the data folder, as `rl/hopper-medium-regen.npz`.

    Whole episodes are kept, so the file holds up to one episode more than asked for. All behaviours have
    equal shares, up to one episode: of the episodes in medium-replay, of the transitions elsewhere.
    """
    if transitions < 1:
        raise ConfigError(f"transitions must be at least 1; got {transitions}.")
    recipe = recipe_for(name)
    for module in ("gymnasium", "mujoco"):
        require_extra(module, extra="rl", purpose=f"rolling out {name}")
    existing = folders.find("rl", f"{recipe.name}.npz")
    if existing is not None:
        raise DataError(f"{existing} exists. Delete or move it first.")
    loaded = [policies.load(_find_policy(recipe, use.policy)) for use in recipe.behaviours]
    settings: dict[str, object] = {
        "environment": recipe.environment,
        "seed": seed,
        "transitions": transitions,
        "behaviours": [
            {
                "policy": policy.name,
                "sha256": policy.sha256,
                "is_sampled": use.is_sampled,
                "noise": use.noise,
            }
            for policy, use in zip(loaded, recipe.behaviours, strict=True)
        ],
    }
    if recipe.takes_turns:
        settings["shares"] = "episodes"
    episodes = _collect(recipe, loaded, transitions, seed)
    return _write(folders.place("rl", f"{recipe.name}.npz"), recipe, settings, loaded, episodes)


def recipe_for(name: str) -> Recipe:
    """Find the recipe of a dataset, with or without "-regen".

    >>> recipe_for("ant-medium-expert").behaviours[1].policy
    'berkeley_Ant'
    """
    robot, _, quality = name.lower().removesuffix(SUFFIX).partition("-")
    if robot not in ENVIRONMENTS or quality not in QUALITIES:
        known = (f"{robot}-{quality}{SUFFIX}" for robot in ENVIRONMENTS for quality in QUALITIES)
        raise unknown_name("dataset to roll out", name, known)
    behaviours: tuple[Behaviour, ...] = (MEDIUM[robot],)
    if quality == "medium-expert":
        behaviours = (MEDIUM[robot], EXPERT[robot])
    elif quality == "medium-replay":
        behaviours = REPLAY[robot]
    takes_turns = quality == "medium-replay"
    return Recipe(f"{robot}-{quality}{SUFFIX}", ENVIRONMENTS[robot], behaviours, takes_turns)


def _series(robot: str, *iterations: int) -> tuple[Behaviour, ...]:
    return tuple(Behaviour(f"oai_trpo_{robot}_series@it{iteration:03d}") for iteration in iterations)


ENVIRONMENTS = {
    "halfcheetah": "HalfCheetah-v4",
    "hopper": "Hopper-v4",
    "walker2d": "Walker2d-v4",
    "ant": "Ant-v4",
}
MEDIUM = {
    "halfcheetah": Behaviour("zoo_ppo_HalfCheetah"),
    "hopper": Behaviour("zoo_sac_Hopper"),
    "walker2d": _series("Walker2d", 80)[0],
    "ant": _series("Ant", 260)[0],
}
EXPERT = {
    "halfcheetah": Behaviour("zoo_tqc_HalfCheetah"),
    "hopper": _series("Hopper", 380)[0],
    "walker2d": Behaviour("berkeley_Walker2d"),
    "ant": Behaviour("berkeley_Ant"),
}
REPLAY = {
    "halfcheetah": (
        *_series("HalfCheetah", *range(0, 501, 20)),
        Behaviour("zoo_ars_HalfCheetah", is_sampled=False),
    ),
    # The run jumps from a score of 18 (it020) to 85 (it040): the medium policy with less and less noise on
    # its actions fills the hole, at about 26, 32 and 39.
    "hopper": (
        *_series("Hopper", 0, 20),
        Behaviour("zoo_a2c_Hopper_best"),
        Behaviour("zoo_a2c_Hopper"),
        *(Behaviour("zoo_sac_Hopper", noise=noise) for noise in (0.3, 0.2, 0.1, 0.0)),
    ),
    "walker2d": (*_series("Walker2d", 0, 20, 40, 60, 80), Behaviour("zoo_a2c_Walker2d")),
    "ant": _series("Ant", *range(0, 261, 20)),
}


def _find_policy(recipe: Recipe, policy: str) -> str:
    """Return the path of a policy, with `@snapshot` of a series."""
    name, at, snapshot = policy.partition("@")
    path = folders.find("rl", f"{name}.npz")
    if path is None:
        raise DataError(
            f"{recipe.name} is rolled out from the policy rl/{name}.npz, which is in none of "
            f"{', '.join(map(str, folders.roots()))}. Public policies to convert into it, on GitHub: "
            f"{SOURCES}. Nothing is trained here."
        )
    return f"{path}{at}{snapshot}"


def _collect(recipe: Recipe, loaded: list[Policy], transitions: int, seed: int) -> list[list[Episode]]:
    """Return the episodes of every share: of all behaviours in turn, or of one each."""
    environment, max_steps = build_environment(recipe.environment)
    parts = range(len(loaded))
    shares = [parts] if recipe.takes_turns else [range(part, part + 1) for part in parts]
    collected: list[list[Episode]] = []
    total = 0
    for number, share in enumerate(shares, start=1):
        collected.append([])
        keys = ((seed, part, place) for place in count() for part in share)
        while total < round(transitions * number / len(shares)):
            key = next(keys)
            use = recipe.behaviours[key[1]]
            collected[-1].append(roll_out(environment, max_steps, loaded[key[1]], use, key))
            total += len(collected[-1][-1].rewards)
    return collected


def _write(
    target: Path,
    recipe: Recipe,
    settings: dict[str, object],
    loaded: list[Policy],
    collected: list[list[Episode]],
) -> Path:
    """Write one file, with a record of what it holds."""
    every = [episode for episodes in collected for episode in episodes]
    if recipe.takes_turns:
        by_part = [every[part :: len(loaded)] for part in range(len(loaded))]
    else:
        by_part = collected
    lasts = np.cumsum([len(episode.rewards) for episode in every]) - 1
    total = int(lasts[-1]) + 1
    record = {
        "name": recipe.name,
        "settings": settings,
        "behaviours": list(_describe(recipe, loaded, by_part)),
        "episodes": len(every),
        "transitions": total,
        "versions": {
            **{package: version(package) for package in ("gymnasium", "mujoco", "numpy")},
            "aaren": __version__,
            "python": platform.python_version(),
        },
        "machine": platform.machine(),
    }
    terminals, timeouts = np.zeros(total, dtype=bool), np.zeros(total, dtype=bool)
    is_terminal = np.array([episode.is_terminal for episode in every])
    terminals[lasts], timeouts[lasts] = is_terminal, ~is_terminal
    arrays: npz.Arrays = {
        "observations": np.concatenate([episode.observations for episode in every]),
        "actions": np.concatenate([episode.actions for episode in every]),
        "rewards": np.concatenate([episode.rewards for episode in every]),
        "terminals": terminals,
        "timeouts": timeouts,
        "record": np.asarray(json.dumps(record)),
    }
    return npz.save(target, arrays, compressed=False)


def _describe(
    recipe: Recipe, loaded: list[Policy], by_part: list[list[Episode]]
) -> Iterator[dict[str, object]]:
    """Yield what every behaviour collected, as measured in its episodes."""
    for policy, used, episodes in zip(loaded, recipe.behaviours, by_part, strict=True):
        returns = np.array([episode.rewards.sum(dtype=np.float64) for episode in episodes])
        mean = float(returns.mean()) if len(returns) else None
        yield {
            "policy": policy.name,
            "algorithm": str(policy.description.get("algorithm", "")),
            "source": str(policy.description.get("source", "")),
            "is_sampled": used.is_sampled,
            "noise": used.noise,
            "episodes": len(episodes),
            "transitions": sum(len(episode.rewards) for episode in episodes),
            "mean_return": mean,
            "std_return": float(returns.std(ddof=1)) if len(returns) > 1 else None,
            "normalised_score": None if mean is None else normalised_score(recipe.environment, mean),
        }
