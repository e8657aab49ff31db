"""Arena: episodes of one Gymnasium environment, side by side, so that a policy is asked for all at once.

An environment that raises, or shows what is no number, ends its own episode only. Knows no model: whoever can
`act` on a batch of observations may play.
"""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aaren.errors import ConfigError, require_extra
from aaren.rl.episodes import Environment, build

_ANT_OBSERVATION, _ANT_PADDED = 27, 111  # D4RL's Ant data has 84 contact forces, which are all zero


class Player(Protocol):
    """Who acts in all episodes at once."""

    def act(
        self, observations: NDArray[np.float64], rewards: NDArray[np.float64] | None
    ) -> NDArray[np.generic]:
        """Choose actions (n, ...) for observations (n, size); rewards are those of the actions before."""

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the episodes only."""


class Outcome(NamedTuple):
    """What became of one episode."""

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


class Arena:
    """As many copies of an environment as episodes are played at once, made when first needed."""

    def __init__(self, environment_id: str, *, max_steps: int | None = None) -> None:
        self.environment_id = environment_id
        first, limit = build(environment_id)
        self.max_steps = limit if max_steps is None else max_steps
        self.observation_size, self.actions = _sizes(environment_id, first)
        self._environments: list[Environment | None] = [first]

    def play(
        self, player: Player, seeds: Sequence[int], *, observation_size: int | None = None
    ) -> list[Outcome]:
        """Play one episode per seed, all in step, and return what became of them.

        Args:
            player: Who acts; it is told which episodes go on.
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
            if episode.error:
                self._environments[episode.row] = None  # whatever state it is in: take another next time
        return [Outcome(episode.total, episode.steps, episode.error) for episode in episodes]

    def _environment(self, row: int) -> Environment:
        while len(self._environments) <= row:
            self._environments.append(None)
        found = self._environments[row]
        if found is None:
            found = self._environments[row] = build(self.environment_id)[0]
        return found

    def _given(self, action: NDArray[np.generic]) -> NDArray[np.float32] | int:
        if self.actions.kind == "discrete":
            return int(action)
        return np.asarray(action, dtype=np.float32).reshape(self.actions.shape)


class _Episode:
    """One environment under way."""

    def __init__(self, environment: Environment, row: int) -> None:
        self.environment, self.row = environment, row
        self.observation: NDArray[np.float64] = np.zeros(0)
        self.reward, self.total, self.steps = 0.0, 0.0, 0
        self.is_running, self.error = True, ""

    def begin(self, seed: int) -> None:
        """Start anew."""
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


def expects(environment_id: str, observation_size: int, data_size: int) -> bool:
    """Tell whether a policy for so many numbers can act on what the environment shows.

    >>> expects("Ant-v4", 27, 111), expects("Hopper-v4", 11, 17)
    (True, False)
    """
    is_ant = environment_id.lower().startswith("ant-")
    return observation_size == data_size or (
        is_ant and (observation_size, data_size) == (_ANT_OBSERVATION, _ANT_PADDED)
    )


def simulator_versions() -> dict[str, str]:
    """Return the versions of what episodes are played in."""
    found = {}
    for package in ("gymnasium", "mujoco"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _sizes(environment_id: str, environment: Environment) -> tuple[int, Actions]:
    spaces = require_extra("gymnasium.spaces", extra="rl", purpose=f"running {environment_id}")
    seen, done = environment.observation_space, environment.action_space
    if not isinstance(seen, spaces.Box) or not isinstance(done, spaces.Box | spaces.Discrete):
        raise ConfigError(
            f"{environment_id}: box observations and box or discrete actions are needed; got "
            f"{type(seen).__name__} and {type(done).__name__}. Wrap it, as gymnasium.wrappers do, and "
            f"register what comes out under an id of your own."
        )
    size = int(np.prod(seen.shape))
    if isinstance(done, spaces.Discrete):
        nothing = np.zeros(0)
        return size, Actions("discrete", int(done.n), (), nothing, nothing)
    bounds = (np.asarray(bound, dtype=np.float64).reshape(-1) for bound in (done.low, done.high))
    return size, Actions("box", int(np.prod(done.shape)), tuple(done.shape), *bounds)
