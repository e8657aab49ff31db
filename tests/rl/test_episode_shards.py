from pathlib import Path

import numpy as np
import pytest

from aaren.rl import rollouts as episode_shards
from aaren.rl.episodes import Episode
from aaren.rl.rollouts import EpisodeKey, EpisodeShards


def episode(steps: int, value: float = 1.0) -> Episode:
    shape = (steps, 2)
    return Episode(
        np.full(shape, value, np.float32), np.zeros(shape, np.float32), np.ones(steps, np.float32), steps > 3
    )


def test_what_was_flushed_is_there_for_the_next(tmp_path: Path) -> None:
    shards = EpisodeShards(tmp_path / "s")
    shards.add(EpisodeKey(0, 0), episode(3, 1.5))
    shards.add(EpisodeKey(1, 4), episode(5, 2.5))
    assert not (tmp_path / "s").exists()
    shards.flush()
    shards.flush()
    assert len(list((tmp_path / "s").glob("*.npz"))) == 1
    again = EpisodeShards(tmp_path / "s")
    assert set(again.episodes) == {EpisodeKey(0, 0), EpisodeKey(1, 4)}
    found = again.episodes[EpisodeKey(1, 4)]
    assert (found.observations[0, 0], len(found.rewards), found.is_terminal) == (2.5, 5, True)
    assert not again.episodes[EpisodeKey(0, 0)].is_terminal
    again.remove()
    assert not (tmp_path / "s").exists()


def test_a_full_shard_is_written_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_shards, "SHARD_TRANSITIONS", 10)
    shards = EpisodeShards(tmp_path)
    for number in range(5):
        shards.add(EpisodeKey(0, number), episode(4))
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["000000.npz"]
    assert len(EpisodeShards(tmp_path).episodes) == 3


def test_a_damaged_shard_is_thrown_away_and_never_overwritten(tmp_path: Path) -> None:
    shards = EpisodeShards(tmp_path)
    shards.add(EpisodeKey(0, 0), episode(3))
    shards.flush()
    (tmp_path / "000001.npz").write_bytes(b"half a shard")
    again = EpisodeShards(tmp_path)
    assert set(again.episodes) == {EpisodeKey(0, 0)}
    again.add(EpisodeKey(0, 1), episode(3))
    again.flush()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["000000.npz", "000002.npz"]


def test_shards_of_other_arrays_and_names_are_left_out(tmp_path: Path) -> None:
    names = ("part", "number", "steps", "is_terminal", "observations", "actions", "rewards")
    for number, odd in enumerate((np.asarray("text"), np.asarray(1j), np.zeros((2, 2)), np.asarray([-5]))):
        np.savez(tmp_path / f"{number:06d}.npz", **dict.fromkeys(names, odd))
    np.savez(tmp_path / "notes.npz", x=np.zeros(1))
    assert EpisodeShards(tmp_path).episodes == {}
    assert [path.name for path in tmp_path.iterdir()] == ["notes.npz"]
