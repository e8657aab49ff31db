"""Finished episodes on disk while a dataset is in the making, so that a stopped run loses next to nothing.

Each shard is one `.npz` file, whole or not there; a damaged one is thrown away and its episodes are run
again. Knows nothing of environments or policies.
"""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aaren.data.files import npz
from aaren.data.files.packed import parsing
from aaren.data.numbers import flags, narrow, wholes
from aaren.data.rl.episodes import Episode
from aaren.errors import DataError

SHARD_TRANSITIONS = 10_000  # a few seconds of work
_ARRAYS = ("part", "number", "steps", "is_terminal", "observations", "actions", "rewards")


class EpisodeKey(NamedTuple):
    """Which episode: the number of its behaviour, and its own number within that."""

    part: int
    number: int


class EpisodeShards:
    """All episodes of one folder of shards; new ones are written every few thousand transitions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.episodes: dict[EpisodeKey, Episode] = {}
        self._waiting: list[EpisodeKey] = []
        self._next = 0
        for path in sorted(path for path in folder.glob("*.npz") if path.stem.isdecimal()):
            self._next = int(path.stem) + 1
            try:
                self.episodes.update(_read(path))
            except DataError:
                path.unlink()

    def add(self, key: EpisodeKey, episode: Episode) -> None:
        """Keep an episode; it is safe on disk after the next `flush` at the latest."""
        self.episodes[key] = episode
        self._waiting.append(key)
        if sum(len(self.episodes[waiting].rewards) for waiting in self._waiting) >= SHARD_TRANSITIONS:
            self.flush()

    def flush(self) -> None:
        """Write what is not yet on disk."""
        if not self._waiting:
            return
        kept = [self.episodes[key] for key in self._waiting]
        arrays: npz.Arrays = {
            "part": np.array([key.part for key in self._waiting]),
            "number": np.array([key.number for key in self._waiting]),
            "steps": np.array([len(episode.rewards) for episode in kept]),
            "is_terminal": np.array([episode.is_terminal for episode in kept]),
            "observations": np.concatenate([episode.observations for episode in kept]),
            "actions": np.concatenate([episode.actions for episode in kept]),
            "rewards": np.concatenate([episode.rewards for episode in kept]),
        }
        npz.save(self.folder / f"{self._next:06d}.npz", arrays, compressed=False)
        self._next += 1
        self._waiting.clear()

    def remove(self) -> None:
        """Delete the folder, when its episodes have found their place."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # others may have shards beside it
            self.folder.parent.rmdir()


def _read(path: Path) -> dict[EpisodeKey, Episode]:
    arrays = npz.load(path, required=_ARRAYS)
    with parsing(path, "a shard of episodes"):
        bounds = np.cumsum(wholes(arrays["steps"], name=f"{path}: steps"))[:-1]
        observations, actions, rewards = (
            np.split(narrow(arrays[name], name=f"{path}: {name}"), bounds)
            for name in ("observations", "actions", "rewards")
        )
        numbers = zip(arrays["part"].tolist(), arrays["number"].tolist(), strict=True)
        ends = flags(arrays["is_terminal"], name=f"{path}: is_terminal").tolist()
        return {
            EpisodeKey(*number): Episode(observations[i], actions[i], rewards[i], ends[i])
            for i, number in enumerate(numbers)
        }
