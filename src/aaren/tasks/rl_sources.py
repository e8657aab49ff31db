"""Where recorded episodes come from, which environment they are of, and by what they are scaled."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aaren.data import rl
from aaren.data.rl import files as trajectory_files
from aaren.data.rl.arrays import Trajectories
from aaren.data.rl.episodes import is_built_in
from aaren.data.rl.reference_scores import REFERENCE_RETURNS
from aaren.errors import ConfigError, DataError
from aaren.tasks.rl_arena import Arena, expects
from aaren.tasks.rl_config import RlConfig

# What the Decision Transformer asks for; Ant's is not in the base code.
TARGETS = {"halfcheetah": 6000.0, "hopper": 3600.0, "walker2d": 5000.0, "ant": 6000.0}
PUBLISHED_SCALE = 1000.0


class Scales(NamedTuple):
    """By what returns and actions are scaled, and which return is asked for."""

    return_scale: float
    target_return: float
    action_low: NDArray[np.float64]  # (action size,), empty for discrete actions
    action_high: NDArray[np.float64]


def open_trajectories(config: RlConfig) -> Trajectories:
    """Read a registered set, or the user's own file or Minari dataset."""
    if config.dataset:
        found = rl.load(config.dataset)
    else:
        try:
            found = trajectory_files.read(config.data_file, drop_short=config.drop_short)
        except DataError as error:
            message = str(error).replace("drop_short=True", "--set drop_short=true")
            raise DataError(message) from error
    if config.max_trajectories is not None:
        found = _first(found, config.max_trajectories)
    longest = int(found.lengths.max())
    if longest > config.network.max_steps:
        raise ConfigError(
            f"{found.name}: its longest episode has {longest} steps, the timestep table "
            f"{config.network.max_steps} rows: --set network.max_steps={longest}."
        )
    return found


def open_arena(config: RlConfig, data: Trajectories) -> Arena:
    """Build the environment that the data is of, and check that it is."""
    environment_id = config.environment or data.environment
    if not environment_id:
        raise ConfigError(
            f"{data.name} does not say which environment it is of: name its Gymnasium id, such as "
            f"--set environment=Hopper-v4."
        )
    if not config.environment and not is_built_in(environment_id):
        raise ConfigError(
            f"{data.name} says that it is of the environment {environment_id[:200]!r}, which is none of "
            f"Gymnasium's own. Nothing is imported because a file names it; if you trust it, name it "
            f"yourself: --set environment=ID."
        )
    arena = Arena(environment_id, max_steps=config.episode_steps)
    kind = "box" if data.num_actions is None else "discrete"
    is_smaller = kind == "discrete" and data.action_size <= arena.actions.size  # some may never be taken
    fits = (
        expects(environment_id, arena.observation_size, data.state_size)
        and kind == arena.actions.kind
        and (data.action_size == arena.actions.size or is_smaller)
    )
    if not fits:
        raise DataError(
            f"{data.name} has observations of {data.state_size} numbers and "
            f"{_words(kind, data.action_size)}; {environment_id} has {arena.observation_size} and "
            f"{_words(*arena.actions[:2])}: the data is of another environment. Name the right one: "
            f"--set environment=ID."
        )
    return arena


def find_scales(config: RlConfig, data: Trajectories, arena: Arena) -> Scales:
    """Take what is published for the robot; elsewhere, what the data shows."""
    robot = arena.environment_id.lower().partition("-")[0]
    target = config.target_return
    if target is None:
        target = TARGETS.get(robot, float(data.returns.max()))
    scale = config.return_scale
    if scale is None:
        is_published = robot in REFERENCE_RETURNS
        scale = PUBLISHED_SCALE if is_published else float(np.abs(data.returns).max()) or 1.0
    low, high = arena.actions.low, arena.actions.high
    if arena.actions.kind == "box":  # where the environment sets no bounds, those of the data hold
        taken = data.actions.astype(np.float64)
        low = np.where(np.isfinite(low), low, taken.min(axis=0))
        high = np.where(np.isfinite(high), high, taken.max(axis=0))
        high = np.where(high > low, high, low + 1.0)
    return Scales(scale, target * config.target_scale, low, high)


def _first(data: Trajectories, count: int) -> Trajectories:
    count = min(count, len(data))
    rows = int(data.offsets[count])
    return replace(
        data,
        observations=data.observations[:rows],
        actions=data.actions[:rows],
        rewards=data.rewards[:rows],
        offsets=data.offsets[: count + 1],
        is_terminal=data.is_terminal[:count],
    )


def _words(kind: str, size: int) -> str:
    return f"actions of {size} numbers" if kind == "box" else f"{size} discrete actions"
