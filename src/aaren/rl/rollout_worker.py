"""Roll out episodes of a behaviour policy in a process of its own: `python -m aaren.rl.rollout_worker`.

An episode is a function of (environment, behaviour, seed, part, number): it does not matter which process
runs it or what ran before. The process reads lines of JSON from standard input, first the settings, then one
request per episode, and answers on standard output with a line of JSON and the arrays' bytes. It is a process
of its own, and not a fork, so that BLAS can be told to use one thread before numpy is loaded, and so that no
script needs a main guard. It never imports torch.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from aaren.errors import AarenError, ConfigError, DataError
from aaren.rl import policies
from aaren.rl.environments import Environment, build_environment
from aaren.rl.policies import Policy

_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


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


class PolicyUse(NamedTuple):
    """A policy file (with `@snapshot` for one of a series) and how it is used."""

    path: str
    is_sampled: bool
    noise: float


class _Answer(TypedDict):
    steps: int
    is_terminal: bool
    observation_size: int
    action_size: int


def open_stage(environment_id: str) -> Stage:
    """Build an environment with flat observations and actions by its Gymnasium id."""
    environment, max_steps = build_environment(environment_id)
    observations, actions = environment.observation_space.shape, environment.action_space.shape
    if observations is None or actions is None or len(observations) != 1 or len(actions) != 1:
        raise ConfigError(
            f"{environment_id}: flat observations and actions are needed; got {observations} and {actions}."
        )
    return Stage(environment, observations[0], actions[0], max_steps)


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


class RolloutWorker:
    """The near end of such a process; close it after use."""

    def __init__(self, environment: str, uses: Sequence[PolicyUse], seed: int) -> None:
        # Not a pipe: one that is not read would block a process that writes a lot.
        self._told = tempfile.TemporaryFile()  # noqa: SIM115  # closed in close()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "aaren.rl.rollout_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._told,
            env={**os.environ, **_ONE_THREAD},
        )
        self._send({"environment": environment, "uses": [list(use) for use in uses], "seed": seed})

    def roll_out(self, part: int, number: int) -> Episode:
        """Have one episode rolled out, and wait for it."""
        self._send({"part": part, "number": number})
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        answer: _Answer = json.loads(line)
        steps, width = answer["steps"], answer["observation_size"] + answer["action_size"] + 1
        content = self._process.stdout.read(4 * steps * width)
        if len(content) < 4 * steps * width:
            raise self._failure()
        table = np.frombuffer(content, dtype=np.float32).reshape(steps, width)
        size = answer["observation_size"]
        return Episode(table[:, :size], table[:, size:-1], table[:, -1], answer["is_terminal"])

    def close(self) -> None:
        """End the process; it holds nothing that could be lost."""
        self._process.kill()
        self._process.communicate()
        self._told.close()

    def _send(self, message: dict[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None

    def _failure(self) -> DataError:
        self._process.wait()
        self._told.seek(0)
        told = self._told.read().decode(errors="replace").strip().splitlines()
        return DataError(f"rolling out stopped: {told[-1] if told else 'the process ended without a word'}")


def main() -> None:
    """Serve requests until standard input ends."""
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints goes to standard error and cannot spoil the answers
    settings = json.loads(sys.stdin.readline())
    stage = open_stage(settings["environment"])
    behaviours = [
        Behaviour(policy=policies.load(Path(path)), is_sampled=is_sampled, noise=noise)
        for path, is_sampled, noise in settings["uses"]
    ]
    for line in sys.stdin:
        request = json.loads(line)
        episode = roll_out(
            stage, behaviours[request["part"]], (settings["seed"], request["part"], request["number"])
        )
        _answer(channel, episode)


def _answer(channel: IO[bytes], episode: Episode) -> None:
    answer: _Answer = {
        "steps": len(episode.rewards),
        "is_terminal": episode.is_terminal,
        "observation_size": episode.observations.shape[1],
        "action_size": episode.actions.shape[1],
    }
    table = np.concatenate([episode.observations, episode.actions, episode.rewards[:, None]], axis=1)
    channel.write(json.dumps(answer).encode() + b"\n" + table.tobytes())
    channel.flush()


if __name__ == "__main__":
    try:
        main()
    except AarenError as error:
        sys.exit(str(error))
