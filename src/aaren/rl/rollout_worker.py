"""A process that rolls out episodes on request: `python -m aaren.rl.rollout_worker`.

It reads lines of JSON from standard input, first the settings, then one request per episode, and answers on
standard output with a line of JSON and the arrays' bytes. It is a process of its own, and not a fork, so that
BLAS can be told to use one thread before numpy is loaded, and so that no script needs a main guard. Knows no
files but the policies.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple, TypedDict

import numpy as np

from aaren.errors import AarenError, DataError
from aaren.rl import policies
from aaren.rl.episodes import Behaviour, Episode, open_stage, roll_out

_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


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


class RolloutWorker:
    """The near end of such a process; close it after use."""

    def __init__(self, environment: str, uses: Sequence[PolicyUse], seed: int) -> None:
        # Not a pipe: one that nobody empties would stop a talkative process.
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
