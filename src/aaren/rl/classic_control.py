"""Small RL sets that need no download: classic-control environments with scripted policies.

"pendulum" (continuous): pump energy until the pole stands, then hold it. "cartpole" (two actions): push to
the side to which the pole falls. Some episodes act badly on purpose, so that returns differ and a model can
be asked for good ones. Needs Gymnasium, not MuJoCo.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aaren.errors import unknown_name
from aaren.rl.episodes import build
from aaren.rl.trajectories import Trajectories

_LEVELS = (0.0, 0.3, 1.0)  # share of random actions in an episode: skilled, clumsy, random


class ControlSet(NamedTuple):
    """An environment, its scripted policy, and its random one."""

    environment: str
    scripted: Callable[[NDArray[np.float64]], float]
    random: Callable[[np.random.Generator], float]
    is_discrete: bool
    bound: float  # of continuous actions


def swing_up(observation: NDArray[np.float64]) -> float:
    """Torque in [-2, 2] for (cos, sin, speed) of a pendulum whose angle is 0 when it stands."""
    cosine, sine, speed = observation
    if cosine > 0.9:  # near the top: a spring and a brake
        torque = -10.0 * np.arctan2(sine, cosine) - 2.5 * speed
    else:  # push along the motion while there is less energy than at rest on the top
        energy = speed**2 / 6.0 + 5.0 * (cosine - 1.0)
        direction = 1.0 if speed == 0.0 else np.sign(speed)
        torque = -2.0 * direction * np.sign(energy)
    return float(np.clip(torque, -2.0, 2.0))


def balance(observation: NDArray[np.float64]) -> float:
    """Push 0 (left) or 1 (right) for (position, speed, angle, turning speed) of a cart and its pole."""
    position, speed, angle, turning = observation
    return float(angle + 0.3 * turning + 0.02 * position + 0.05 * speed > 0.0)


SETS = {
    "pendulum": ControlSet("Pendulum-v1", swing_up, lambda rng: float(rng.uniform(-2.0, 2.0)), False, 2.0),
    "cartpole": ControlSet("CartPole-v1", balance, lambda rng: float(rng.integers(2)), True, 1.0),
}


def generate(name: str, *, episodes: int = 60, seed: int = 0) -> Trajectories:
    """Run the scripted policy, with a third each of skilled, clumsy and random episodes."""
    if name not in SETS:
        raise unknown_name("classic-control set", name, SETS)
    chosen = SETS[name]
    environment, max_steps = build(chosen.environment)
    observations: list[NDArray[np.float64]] = []
    actions: list[float] = []
    rewards: list[float] = []
    terminals: list[bool] = []
    timeouts: list[bool] = []
    for number in range(episodes):
        start, draws = np.random.SeedSequence((seed, number)).spawn(2)
        rng, level = np.random.default_rng(draws), _LEVELS[number % len(_LEVELS)]
        observation, _ = environment.reset(seed=int(start.generate_state(1)[0]))
        for step in range(1, max_steps + 1):
            action = chosen.random(rng) if rng.random() < level else chosen.scripted(observation)
            observations.append(np.asarray(observation, dtype=np.float64))
            actions.append(action)
            given = int(action) if chosen.is_discrete else np.array([action], dtype=np.float32)
            observation, reward, is_terminal, _, _ = environment.step(given)
            rewards.append(float(reward))
            terminals.append(bool(is_terminal))
            timeouts.append(step == max_steps and not is_terminal)
            if is_terminal:
                break
    made = Trajectories.from_flat(
        observations=np.stack(observations),
        actions=np.array(actions, dtype=np.int64 if chosen.is_discrete else np.float32),
        rewards=np.array(rewards),
        terminals=np.array(terminals),
        timeouts=np.array(timeouts),
        name=name,
        environment=chosen.environment,
    )
    return made if chosen.is_discrete else made.with_bounds(-chosen.bound, chosen.bound)
