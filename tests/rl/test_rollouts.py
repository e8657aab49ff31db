"""Datasets by rolling out policies: recipes, schedule, shards, resuming, the finished file."""

import json
import random
import shutil
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import ConfigError, DataError, MissingDependencyError
from aaren.rl import data as rl
from aaren.rl import policies, rollouts
from aaren.rl.rollout_worker import Episode
from aaren.rl.rollouts import ENVIRONMENTS, QUALITIES, EpisodeKey, EpisodeShards, RolloutSchedule, recipe_for

pytest.importorskip("mujoco", reason="MuJoCo environments need the extra aaren[rl]")
NAMES = [f"{robot}-{quality}" for robot in ENVIRONMENTS for quality in QUALITIES]


def test_there_are_twelve_with_the_shares_of_the_protocol() -> None:
    counts = {name: len(recipe_for(name).ingredients) for name in NAMES}
    assert len(counts) == 12
    assert all(counts[f"{robot}-medium"] == 1 for robot in ENVIRONMENTS)
    assert all(counts[f"{robot}-medium-expert"] == 2 for robot in ENVIRONMENTS)
    replays = [counts[f"{robot}-medium-replay"] for robot in ("halfcheetah", "hopper", "walker2d", "ant")]
    assert replays == [27, 8, 6, 14]


def test_the_first_half_of_medium_expert_is_medium() -> None:
    for robot in ENVIRONMENTS:
        medium, both = recipe_for(f"{robot}-medium"), recipe_for(f"{robot}-medium-expert")
        assert both.ingredients[0] == medium.ingredients[0]


def test_names_work_with_and_without_their_ending() -> None:
    assert recipe_for("Hopper-Medium-regen") == recipe_for("hopper-medium")
    assert recipe_for("ant-medium").environment == "Ant-v4"
    with pytest.raises(ConfigError, match="unknown dataset to roll out 'hopper-expert'; did you mean"):
        recipe_for("hopper-expert")


@pytest.mark.parametrize("name", NAMES)
def test_the_mirror_has_every_policy(name: str, mirror: Path) -> None:
    if not list((mirror / "rl").glob("*.npz")):
        pytest.skip("needs the policies of the mirror's rl folder")
    for ingredient in recipe_for(name).ingredients:
        file, at, snapshot = ingredient.policy.partition("@")
        policy = policies.load(f"{mirror / 'rl' / file}.npz{at}{snapshot}")
        assert policy.environment.lower() == name.partition("-")[0]
        assert policy.is_random == ingredient.is_sampled


def serve(schedule: RolloutSchedule, lengths: dict[int, int]) -> list[EpisodeKey]:
    done = []
    while (key := schedule.next()) is not None:
        schedule.finish(key, lengths[key.part])
        done.append(key)
    return done


def test_episodes_come_in_order_until_each_share_is_full() -> None:
    done = serve(RolloutSchedule([10, 5], {}), {0: 4, 1: 5})
    assert done == [EpisodeKey(0, 0), EpisodeKey(0, 1), EpisodeKey(0, 2), EpisodeKey(1, 0)]


def test_finished_episodes_are_not_run_again_and_holes_are_filled() -> None:
    schedule = RolloutSchedule([20], {EpisodeKey(0, 0): 4, EpisodeKey(0, 2): 4})
    assert schedule.transitions == 8
    assert serve(schedule, {0: 4}) == [EpisodeKey(0, 1), EpisodeKey(0, 3), EpisodeKey(0, 4)]
    assert schedule.transitions == 20


def test_behaviours_that_share_take_turns_until_the_share_is_full() -> None:
    lengths = {0: 1, 1: 9}
    done = serve(RolloutSchedule([25], {EpisodeKey(1, 0): 9}, turns=2), lengths)
    assert done == [EpisodeKey(0, 0), EpisodeKey(0, 1), EpisodeKey(1, 1), EpisodeKey(0, 2), EpisodeKey(1, 2)]


def test_nothing_to_do_is_said_at_once() -> None:
    assert RolloutSchedule([3], {EpisodeKey(0, 0): 3}).next() is None


def test_a_stopped_schedule_sends_everybody_home() -> None:
    schedule = RolloutSchedule([1000], {})
    assert schedule.next() == EpisodeKey(0, 0)  # under way: the share looks full, so the next one waits
    waiting = threading.Thread(target=schedule.next)
    waiting.start()
    schedule.stop()
    waiting.join(timeout=5)
    assert not waiting.is_alive()


def test_many_threads_fill_every_share_without_a_hole() -> None:
    schedule = RolloutSchedule([500, 300, 700], {})
    steps: dict[EpisodeKey, int] = {}

    def work() -> None:
        while (key := schedule.next()) is not None:
            length = random.Random(f"{key}").randrange(1, 60)
            time.sleep(length * 1e-5)
            steps[key] = length
            schedule.finish(key, length)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for part, share in enumerate([500, 300, 700]):
        numbers = sorted(key.number for key in steps if key.part == part)
        assert numbers == list(range(len(numbers)))
        assert sum(steps[EpisodeKey(part, number)] for number in numbers) >= share


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
    monkeypatch.setattr(rollouts, "SHARD_TRANSITIONS", 10)
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


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "small.npz"
    np.savez(path, W0=0.1 * np.ones((3, 11)), b0=np.zeros(3), log_std=np.full(3, -1.0))
    description = {"env": "Hopper", "hidden_activation": "none", "output": "tanh", "algorithm": "by hand"}
    path.with_suffix(".json").write_text(json.dumps(description))
    return path


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data"


def test_a_dataset_is_made_recorded_and_read(policy: Path, data: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    path = rollouts.make(
        "hopper-medium", policy=[policy], transitions=400, progress=lambda *now: told.append(now)
    )
    assert path == data / "rl" / "hopper-medium-regen.npz"
    assert told[-1] == ("hopper-medium-regen", 400, 400)
    assert [file.name for file in path.parent.iterdir() if file.suffix == ".npz"] == [path.name]
    assert not (path.parent / ".shards").exists()
    made = rl.read(path)
    record = rollouts.read_record(path)
    assert made.num_transitions == record["transitions"]
    assert 400 <= made.num_transitions < 400 + made.lengths[-1]
    assert made.environment == "Hopper-v4"
    assert made.is_terminal.all()
    behaviours = record["behaviours"]
    assert isinstance(behaviours, list)
    assert behaviours[0]["policy"] == "small"
    assert behaviours[0]["mean_return"] == pytest.approx(made.returns.mean())
    assert behaviours[0]["std_return"] == pytest.approx(made.returns.std(ddof=1))
    versions = record["versions"]
    assert isinstance(versions, dict)
    assert {"gymnasium", "mujoco", "numpy", "aaren"} <= set(versions)


def test_the_result_depends_neither_on_workers_nor_on_a_stop(policy: Path, data: Path) -> None:
    target = data / "rl" / "hopper-medium-regen.npz"
    made = {}
    for workers in (1, 3):
        made[workers] = rollouts.make(
            "hopper-medium", policy=[policy], transitions=600, workers=workers
        ).read_bytes()
        target.unlink()
    assert made[1] == made[3]

    def interrupt(_name: str, so_far: int, _total: int | None) -> None:
        if so_far:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rollouts.make("hopper-medium", policy=[policy], transitions=600, progress=interrupt)
    assert not target.exists()
    assert list(data.glob("rl/.shards/*/*.npz"))
    seen: list[int] = []
    rollouts.make(
        "hopper-medium", policy=[policy], transitions=600, progress=lambda _, now, __: seen.append(now)
    )
    assert seen[0] > 0
    assert target.read_bytes() == made[1]
    again = rollouts.make("hopper-medium", policy=[policy], transitions=600)  # there already: nothing is run
    assert again.read_bytes() == made[1]


def test_another_seed_is_other_data_and_never_silently_overwritten(policy: Path) -> None:
    first = rollouts.make("hopper-medium", policy=[policy], transitions=50)
    kept = shutil.copy(first, first.with_name("kept.npz"))
    with pytest.raises(
        DataError, match=r"exists and was made with other settings: .* Delete or move it first"
    ):
        rollouts.make("hopper-medium", policy=[policy], transitions=50, seed=1)
    first.unlink()
    second = rollouts.make("hopper-medium", policy=[policy], transitions=50, seed=1)
    assert not np.array_equal(rl.read(kept).observations[0], rl.read(second).observations[0])


def test_snapshots_of_a_replay_have_equal_shares_of_the_episodes(policy: Path, tmp_path: Path) -> None:
    series = tmp_path / "series.npz"
    arrays = {
        f"it{i:03d}/{key}": value
        for i in range(3)
        for key, value in (("W0", np.zeros((3, 11))), ("b0", np.zeros(3)))
    }
    np.savez(series, **arrays)
    shutil.copy(policy.with_suffix(".json"), series.with_suffix(".json"))
    record = rollouts.read_record(
        rollouts.make("hopper-medium-replay", policy=[policy, series], transitions=800)
    )
    behaviours = record["behaviours"]
    assert isinstance(behaviours, list)
    assert [part["policy"] for part in behaviours] == [
        "small",
        "series@it000",
        "series@it001",
        "series@it002",
    ]
    assert sum(part["transitions"] for part in behaviours) == record["transitions"]
    shares = [part["episodes"] for part in behaviours]  # what training draws
    assert sum(shares) == record["episodes"]
    assert max(shares) - min(shares) <= 1
    settings = record["settings"]
    assert isinstance(settings, dict)
    assert settings["shares"] == "episodes"
    assert [used["is_sampled"] for used in settings["behaviours"]] == [True, False, False, False]


def test_medium_and_expert_have_equal_shares_of_the_transitions(policy: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.npz"
    np.savez(other, W0=np.zeros((3, 11)), b0=np.ones(3))  # falls sooner
    shutil.copy(policy.with_suffix(".json"), other.with_suffix(".json"))
    path = rollouts.make("hopper-medium-expert", policy=[policy, other], transitions=800)
    behaviours = rollouts.read_record(path)["behaviours"]
    assert isinstance(behaviours, list)
    shares = [part["transitions"] for part in behaviours]
    assert max(shares) - min(shares) < 150  # a share is whole episodes, here of up to some 75 steps


def test_without_policies_the_public_sources_are_named_and_nothing_is_trained() -> None:
    with pytest.raises(
        DataError, match=r"policy rl/zoo_sac_Hopper\.npz.*--policy FILE\.npz.*DLR-RM/rl-trained-agents"
    ):
        rollouts.make("hopper-medium")


def test_two_at_once_make_one_file(policy: Path, data: Path) -> None:
    made: list[Path] = []

    def work() -> None:
        made.append(rollouts.make("hopper-medium", policy=[policy], transitions=100, workers=1))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [data / "rl" / "hopper-medium-regen.npz"] * 2
    assert rl.read(made[0]).num_transitions >= 100


def test_without_the_extra_the_cure_is_told(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(
        MissingDependencyError, match=r"rolling out hopper-medium needs 'mujoco': pip install 'aaren\[rl\]'"
    ):
        rollouts.make("hopper-medium", policy=[policy])


def test_wrong_requests_are_told(policy: Path) -> None:
    with pytest.raises(
        ConfigError, match="medium-expert-regen needs two policies, first medium, then expert; got 1"
    ):
        rollouts.make("hopper-medium-expert", policy=[policy])
    with pytest.raises(ConfigError, match="needs at least one policy"):
        rollouts.make("hopper-medium", policy=[])
    with pytest.raises(ConfigError, match="transitions and workers must be at least 1"):
        rollouts.make("hopper-medium", policy=[policy], transitions=0)
    with pytest.raises(DataError, match="policy small takes 11 numbers; the environment gives 17"):
        rollouts.make("walker2d-medium", policy=[policy], transitions=10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["hopper-medium-expert", pytest.param("ant-medium-replay", marks=pytest.mark.long)]
)
def test_the_recipes_run_on_the_mirrors_policies(
    name: str, mirror: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not list((mirror / "rl").glob("*.npz")):
        pytest.skip("needs the policies of the mirror's rl folder")
    monkeypatch.setenv("AAREN_DATA", f"{data}:{mirror}")
    path = rollouts.make(name, transitions=8_000)
    behaviours = rollouts.read_record(path)["behaviours"]
    assert isinstance(behaviours, list)
    scores = [part["normalised_score"] for part in behaviours if part["episodes"]]
    assert scores[0] < scores[-1]
