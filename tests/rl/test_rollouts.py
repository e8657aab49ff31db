import json
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import ConfigError, DataError, MissingDependencyError
from aaren.rl import data as trajectory_files
from aaren.rl import rollouts

pytest.importorskip("mujoco", reason="MuJoCo environments need the extra aaren[rl]")


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
    made = trajectory_files.read(path)
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
    assert not np.array_equal(
        trajectory_files.read(kept).observations[0], trajectory_files.read(second).observations[0]
    )


def test_behaviours_have_equal_shares(policy: Path, tmp_path: Path) -> None:
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
    shares = [part["transitions"] for part in behaviours]
    assert sum(shares) == record["transitions"]
    assert max(shares) - min(shares) < 150  # a share is whole episodes, here of up to some 75 steps
    settings = record["settings"]
    assert isinstance(settings, dict)
    assert [used["is_sampled"] for used in settings["behaviours"]] == [True, False, False, False]


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
    assert trajectory_files.read(made[0]).num_transitions >= 100


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
    with pytest.raises(DataError, match="policy small looks at 11 numbers; the environment shows 17"):
        rollouts.make("walker2d-medium", policy=[policy], transitions=10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hopper-medium-expert", "ant-medium-replay"])
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
