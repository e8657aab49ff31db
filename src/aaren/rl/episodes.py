"""Roll out one episode of a behaviour in a Gymnasium environment, from nothing but its seed.

An episode is a function of (environment, behaviour, seed, part, number): it does not matter which process
runs it or what ran before. The environment is built without Gymnasium's wrappers, whose checks cost time and
whose warnings only say that `-v4` is not the newest; the step limit is counted here. Knows no files and no
datasets.
"""

import sys
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aaren.errors import ConfigError, require_extra
from aaren.rl.policies import Policy

DEFAULT_STEPS = 1000


class Space(Protocol):
    """The part of a Gymnasium space that is used here."""

    shape: tuple[int, ...] | None


class Environment(Protocol):
    """The part of a Gymnasium environment that is used here."""

    observation_space: Space
    action_space: Space

    def reset(self, *, seed: int) -> tuple[NDArray[np.float64], dict[str, object]]:
        """Begin an episode."""
        ...

    def step(
        self, action: NDArray[np.float32] | int
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, object]]:
        """Go one step."""
        ...


class Stage(NamedTuple):
    """An environment ready to run, and its sizes."""

    environment: Environment
    observation_size: int
    action_size: int
    max_steps: int


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Behaviour:
    """A policy and how it is used."""

    policy: Policy
    is_sampled: bool  # draw actions; False: take their mean
    noise: float = 0.0  # standard deviation of Gaussian noise added to every action before the cut to [-1, 1]


class Episode(NamedTuple):
    """What happened, step by step; the last observation is not kept."""

    observations: NDArray[np.float32]  # (steps, observation size)
    actions: NDArray[np.float32]  # (steps, action size), as the environment got them
    rewards: NDArray[np.float32]  # (steps,)
    is_terminal: bool  # ended by the environment, not by the step limit


def open_stage(environment_id: str) -> Stage:
    """Build an environment with flat observations and actions by its Gymnasium id."""
    environment, max_steps = build(environment_id)
    observations, actions = environment.observation_space.shape, environment.action_space.shape
    if observations is None or actions is None or len(observations) != 1 or len(actions) != 1:
        raise ConfigError(
            f"{environment_id}: flat observations and actions are needed; got {observations} and {actions}."
        )
    return Stage(environment, observations[0], actions[0], max_steps)


def build(environment_id: str) -> tuple[Environment, int]:
    """Build any environment by its Gymnasium id, bare and quiet, and say its step limit (1000 if none).

    `module:ID`, as in Gymnasium, names the module that registers it, which must be imported: ids come from
    files too, and no file may choose what is imported.
    """
    gymnasium = require_extra("gymnasium", extra="rl", purpose=f"running {environment_id}")
    registration = require_extra(
        "gymnasium.envs.registration", extra="rl", purpose=f"running {environment_id}"
    )
    module, _, name = environment_id.rpartition(":")
    if module and module not in sys.modules:
        raise ConfigError(
            f"{environment_id}: the module {module!r} is not imported, and a file may not choose what is. If "
            f"you trust it, name it yourself: `aaren --import {module} ...`, or import it in Python."
        )
    try:
        spec = gymnasium.spec(name)
    except gymnasium.error.Error as error:
        raise ConfigError(f"Gymnasium has no environment {environment_id!r} ({error}).") from error
    if "mujoco" in str(spec.entry_point):
        mujoco = require_extra("mujoco", extra="rl", purpose=f"running {environment_id}")
        mujoco.set_mju_user_warning(_pass_warning)
    creator = spec.entry_point if callable(spec.entry_point) else None
    try:
        environment: Environment = (creator or registration.load_env_creator(spec.entry_point))(**spec.kwargs)
    except Exception as error:  # an environment is foreign code: some need libraries, some need arguments
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(f"{environment_id} cannot be built ({type(error).__name__}: {reason}).") from error
    return environment, int(spec.max_episode_steps or DEFAULT_STEPS)


def is_built_in(environment_id: str) -> bool:
    """Tell whether an id is Gymnasium's own or registered by an object, so that nothing else is imported.

    A file of recorded episodes may name such an environment; any other only the user may.
    """
    gymnasium = require_extra("gymnasium", extra="rl", purpose="looking up an environment")
    spec = gymnasium.registry.get(environment_id)
    return spec is not None and (callable(spec.entry_point) or str(spec.entry_point).startswith("gymnasium."))


def roll_out(stage: Stage, behaviour: Behaviour, seed: tuple[int, int, int]) -> Episode:
    """Run one episode; `seed` is (seed of the dataset, part, number of the episode)."""
    start, draws = np.random.SeedSequence(seed).spawn(2)
    rng = np.random.default_rng(draws)
    observations = np.empty((stage.max_steps, stage.observation_size), dtype=np.float32)
    actions = np.empty((stage.max_steps, stage.action_size), dtype=np.float32)
    rewards = np.empty(stage.max_steps, dtype=np.float32)
    environment, act = stage.environment, behaviour.policy.act
    action_rng = rng if behaviour.is_sampled else None
    observation, _ = environment.reset(seed=int(start.generate_state(1)[0]))
    steps, is_terminal = 0, False
    while steps < stage.max_steps and not is_terminal:
        observations[steps] = observation
        action = act(observation[None], step=steps, rng=action_rng)[0]
        if behaviour.noise:
            action = np.clip(action + behaviour.noise * rng.standard_normal(action.shape), -1.0, 1.0)
        actions[steps] = action
        # The environment gets the very float32 numbers that are kept, so that the data can be replayed.
        observation, rewards[steps], is_terminal, _, _ = environment.step(actions[steps])
        steps += 1
    return Episode(observations[:steps], actions[:steps], rewards[:steps], bool(is_terminal))


def _pass_warning(message: str) -> None:
    """Keep MuJoCo from writing MUJOCO_LOG.TXT into the current folder; tell all but what we cannot change."""
    if "settotalmass" not in message:  # in Gymnasium's half_cheetah.xml: deprecated, and works
        print(f"MuJoCo: {message}", file=sys.stderr)
