"""Gymnasium environments: built by their ids, played in many at once, and D4RL's scores of what is collected.

An environment is built without Gymnasium's wrappers, whose checks cost time and whose warnings only say that
`-v4` is not the newest; the step limit is counted here. One that raises, or shows a NaN, ends its own
episode only. Anything that can `act` on a batch of observations may play.

The reference returns are D4RL's own, for its version-2 environments; a record of a score says which version
was run.
"""

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aaren.errors import ConfigError, require_extra, unknown_name
from aaren.files.stdio import write_line

DEFAULT_STEPS = 1000
_ANT_OBSERVATION, _ANT_PADDED = 27, 111  # D4RL's Ant data has 84 contact forces, which are all zero


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


def build_environment(environment_id: str) -> tuple[Environment, int]:
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


class Player(Protocol):
    """Acts in all episodes at once."""

    def act(
        self, observations: NDArray[np.float64], rewards: NDArray[np.float64] | None
    ) -> NDArray[np.generic]:
        """Choose actions (n, ...) for observations (n, size); rewards are those of the actions before."""

    def keep(self, rows: Sequence[int]) -> None:
        """Continue with some of the episodes only."""


class Outcome(NamedTuple):
    """The result of one episode."""

    total: float  # sum of rewards
    steps: int
    error: str = ""  # why it could not be finished

    @property
    def is_whole(self) -> bool:
        """Tell whether the episode came to its end."""
        return not self.error


class Actions(NamedTuple):
    """The actions that an environment takes."""

    kind: str  # "box" or "discrete"
    size: int
    shape: tuple[int, ...]
    low: NDArray[np.float64]  # (size,), for box; may be infinite
    high: NDArray[np.float64]


class Simulator:
    """As many copies of an environment as episodes are played at once, made when first needed.

    Args:
        environment: A Gymnasium id; or a built environment, which can play one episode at a time.
        max_steps: After which an episode is ended; None: the environment's own limit, or 1000.
    """

    def __init__(self, environment: str | Environment, *, max_steps: int | None = None) -> None:
        self.is_built = not isinstance(environment, str)
        if isinstance(environment, str):
            self.environment_id = environment
            first, limit = build_environment(environment)
        else:
            spec = getattr(environment, "spec", None)
            self.environment_id = type(environment).__name__ if spec is None else str(spec.id)
            first, limit = environment, int(getattr(spec, "max_episode_steps", None) or DEFAULT_STEPS)
        self.max_steps = limit if max_steps is None else max_steps
        self.observation_size, self.actions = _sizes(self.environment_id, first)
        self._environments: list[Environment | None] = [first]

    def play(
        self, player: Player, seeds: Sequence[int], *, observation_size: int | None = None
    ) -> list[Outcome]:
        """Play one episode per seed, all in step, and return their results.

        Args:
            player: Acts; its `keep` is called with the episodes that continue.
            seeds: Of the environments.
            observation_size: What the player expects, if it differs (Ant); missing numbers are 0.
        """
        episodes = [_Episode(self._environment(row), row) for row in range(len(seeds))]
        for episode, seed in zip(episodes, seeds, strict=True):
            episode.begin(seed)
        padding = 0 if observation_size is None else observation_size - self.observation_size
        running = list(episodes)
        rewards: NDArray[np.float64] | None = None
        for _ in range(self.max_steps):
            going = [place for place, episode in enumerate(running) if episode.is_running]
            if len(going) < len(running):
                if not going:
                    break
                player.keep(going)
                running = [running[place] for place in going]
                rewards = None if rewards is None else rewards[going]
            seen = np.stack([episode.observation for episode in running])
            actions = player.act(np.pad(seen, ((0, 0), (0, padding))) if padding else seen, rewards)
            for episode, action in zip(running, actions, strict=True):
                episode.step(self._given(action))
            rewards = np.array([episode.reward for episode in running])
        for episode in episodes:
            if episode.error and not self.is_built:
                self._environments[episode.row] = None  # whatever state it is in: take another next time
        return [Outcome(episode.total, episode.steps, episode.error) for episode in episodes]

    def _environment(self, row: int) -> Environment:
        if self.is_built and row:
            raise ConfigError("a built environment plays one episode at a time; name it by its id for many.")
        while len(self._environments) <= row:
            self._environments.append(None)
        found = self._environments[row]
        if found is None:
            found = self._environments[row] = build_environment(self.environment_id)[0]
        return found

    def _given(self, action: NDArray[np.generic]) -> NDArray[np.float32] | int:
        if self.actions.kind == "discrete":
            return int(action)
        return np.asarray(action, dtype=np.float32).reshape(self.actions.shape)


def expects(environment_id: str, observation_size: int, data_size: int) -> bool:
    """Tell whether a policy for so many numbers can act on what the environment shows.

    >>> expects("Ant-v4", 27, 111), expects("Hopper-v4", 11, 17)
    (True, False)
    """
    is_ant = environment_id.lower().startswith("ant-")
    return observation_size == data_size or (
        is_ant and (observation_size, data_size) == (_ANT_OBSERVATION, _ANT_PADDED)
    )


def describe_actions(kind: str, size: int) -> str:
    """Say what actions are.

    >>> describe_actions("discrete", 2), describe_actions("box", 1)
    ('2 discrete actions', 'actions of 1 number')
    """
    if kind == "discrete":
        return f"{size} discrete actions"
    return f"actions of {size} number{'s' if size != 1 else ''}"


def simulator_versions() -> dict[str, str]:
    """Return the versions of what episodes are played in."""
    found = {}
    for package in ("gymnasium", "mujoco"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


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


def has_score(environment: str) -> bool:
    """Tell whether D4RL says what random and expert collect there.

    >>> has_score("Hopper-v4"), has_score("Pendulum-v1")
    (True, False)
    """
    return environment.lower().partition("-")[0] in REFERENCE_RETURNS


def score(environment: str, total: float) -> float:
    """Return the normalised score of a return; NaN where D4RL has no reference."""
    return normalised_score(environment, total) if has_score(environment) else float("nan")


class _Episode:
    """One environment under way."""

    def __init__(self, environment: Environment, row: int) -> None:
        self.environment, self.row = environment, row
        self.observation: NDArray[np.float64] = np.zeros(0)
        self.reward, self.total, self.steps = 0.0, 0.0, 0
        self.is_running, self.error = True, ""

    def begin(self, seed: int) -> None:
        """Begin the episode."""
        try:
            observation, _ = self.environment.reset(seed=seed)
            self._see(observation, 0.0)
        except Exception as error:  # an environment is foreign code: whatever it raises ends this episode
            self._fail(error)

    def step(self, action: NDArray[np.float32] | int) -> None:
        """Go one step."""
        try:
            observation, reward, is_terminal, is_cut, _ = self.environment.step(action)
            self._see(observation, float(reward))
        except Exception as error:
            self._fail(error)
            return
        self.total += self.reward
        self.steps += 1
        self.is_running = not (is_terminal or is_cut)

    def _see(self, observation: NDArray[np.float64], reward: float) -> None:
        seen = np.asarray(observation, dtype=np.float64).reshape(-1)
        if not (np.isfinite(seen).all() and np.isfinite(reward)):
            raise FloatingPointError("an observation or a reward is not finite")
        self.observation, self.reward = seen, reward

    def _fail(self, error: Exception) -> None:
        self.error = f"step {self.steps}: {type(error).__name__}: {error}"
        self.is_running = False
        if not self.observation.size:
            self.observation = np.zeros(1)


def _sizes(environment_id: str, environment: Environment) -> tuple[int, Actions]:
    spaces = require_extra("gymnasium.spaces", extra="rl", purpose=f"running {environment_id}")
    seen, done = environment.observation_space, environment.action_space
    if not isinstance(seen, spaces.Box) or not isinstance(done, spaces.Box | spaces.Discrete):
        how = "Wrap it, as gymnasium.wrappers do"
        if not isinstance(seen, spaces.Box):
            how = "Wrap it, while recording too: gymnasium.wrappers.FlattenObservation(environment)"
        raise ConfigError(
            f"{environment_id}: box observations and box or discrete actions are needed; got "
            f"{type(seen).__name__} and {type(done).__name__}. {how}, and give what comes out, or register "
            f"it under an id of your own."
        )
    if isinstance(done, spaces.Discrete) and int(done.start) != 0:
        raise ConfigError(
            f"{environment_id} counts its actions from {done.start}; here they are counted from 0. Wrap it, "
            f"while recording too: gymnasium.wrappers.TransformAction(environment, lambda action: action + "
            f"({done.start}), gymnasium.spaces.Discrete({done.n}))."
        )
    size = int(np.prod(seen.shape))
    if isinstance(done, spaces.Discrete):
        nothing = np.zeros(0)
        return size, Actions("discrete", int(done.n), (), nothing, nothing)
    bounds = (np.asarray(bound, dtype=np.float64).reshape(-1) for bound in (done.low, done.high))
    return size, Actions("box", int(np.prod(done.shape)), tuple(done.shape), *bounds)


def _pass_warning(message: str) -> None:
    """Keep MuJoCo from writing MUJOCO_LOG.TXT into the current folder; tell all but what we cannot change."""
    if "settotalmass" not in message:  # in Gymnasium's half_cheetah.xml: deprecated, and works
        write_line(f"MuJoCo: {message}", sys.stderr)
