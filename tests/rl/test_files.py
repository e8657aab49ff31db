import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import DataError, MissingDependencyError
from aaren.rl import data as trajectory_files

h5py = pytest.importorskip("h5py", reason="HDF5 needs the extra aaren[rl]")


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "observations": rng.normal(size=(9, 11)).astype(np.float32),
        "actions": rng.uniform(-1, 1, size=(9, 3)).astype(np.float32),
        "rewards": rng.normal(size=9).astype(np.float32),
        "terminals": np.array([0, 0, 1, 0, 0, 0, 0, 0, 0], dtype=bool),
        "timeouts": np.array([0, 0, 0, 0, 0, 0, 1, 0, 0], dtype=bool),
    }


def write_hdf5(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file[key] = array
        file["infos/qpos"] = np.zeros(9)
    return path


def test_hdf5_and_npz_hold_the_same(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    for path in (write_hdf5(tmp_path / "a.hdf5", arrays), tmp_path / "a.npz"):
        found = trajectory_files.read(path)
        assert found.lengths.tolist() == [3, 4]
        assert found.is_terminal.tolist() == [True, False]
        np.testing.assert_array_equal(found.observations, arrays["observations"][:7])
        np.testing.assert_array_equal(found.actions, arrays["actions"][:7])


@pytest.mark.parametrize("key", trajectory_files.ARRAYS)
def test_a_missing_key_is_named(tmp_path: Path, arrays: dict[str, np.ndarray], key: str) -> None:
    del arrays[key]
    with pytest.raises(DataError, match=rf"a\.hdf5: no dataset '{key}'; it has .*infos"):
        trajectory_files.read(write_hdf5(tmp_path / "a.hdf5", arrays))
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=rf"a\.npz: expected an array '{key}'"):
        trajectory_files.read(tmp_path / "a.npz")


def test_damaged_and_uneven_files_are_told(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    path = write_hdf5(tmp_path / "a.hdf5", arrays)
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(DataError, match=r"a\.hdf5: not a whole HDF5 file"):
        trajectory_files.read(path)
    np.savez(tmp_path / "a.npz", **(arrays | {"rewards": np.zeros(4)}))
    with pytest.raises(DataError, match=r"one row per transition is needed in all arrays.*rewards \(4,\)"):
        trajectory_files.read(tmp_path / "a.npz")


def test_rewards_of_nan_are_told_with_file_and_row(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    arrays["rewards"][4] = np.nan
    with pytest.raises(DataError, match=r"a\.hdf5: rewards, row 4: not a finite number"):
        trajectory_files.read(write_hdf5(tmp_path / "a.hdf5", arrays))


@pytest.mark.parametrize("module", ["h5py", "minari"])
def test_without_the_extra_the_cure_is_told(
    module: str, tmp_path: Path, arrays: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_hdf5(tmp_path / "a.hdf5", arrays)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=rf"needs '{module}': pip install 'aaren\[rl\]'"):
        trajectory_files.read(path if module == "h5py" else "some/dataset-v0")


def test_pickles_and_strangers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "hopper-medium-v2.pkl").write_bytes(pickle.dumps([{}]))
    with pytest.raises(DataError, match="is a pickle"):
        trajectory_files.read(tmp_path / "hopper-medium-v2.pkl")
    (tmp_path / "a.csv").write_text("1")
    with pytest.raises(
        DataError, match=r"expected \.hdf5, \.h5 or \.npz, or the id of a Minari dataset; got '\.csv'"
    ):
        trajectory_files.read(tmp_path / "a.csv")
    with pytest.raises(DataError, match=r"none\.hdf5: no such file"):
        trajectory_files.read(tmp_path / "none.hdf5")


@pytest.fixture
def minari_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    minari = pytest.importorskip("minari", reason="Minari needs the extra aaren[rl]")
    gymnasium = pytest.importorskip("gymnasium")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    buffers = []
    for number, steps in enumerate((4, 3)):
        rows = np.arange(steps + 1, dtype=np.float32)[:, None]
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=np.repeat(rows, 3, axis=1),
                actions=np.zeros((steps, 1), dtype=np.float32),
                rewards=np.ones(steps),
                terminations=np.array([False] * (steps - 1) + [number == 1]),
                truncations=np.array([False] * (steps - 1) + [number == 0]),
            )
        )
    minari.create_dataset_from_buffers(
        "test/small-v0",
        buffers,
        env="Pendulum-v1",
        eval_env="Pendulum-v1",
        observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32),
        action_space=gymnasium.spaces.Box(-2, 2, (1,), np.float32),
        algorithm_name="none",
        author="nobody",
        author_email="nobody@example.org",
        code_permalink="https://example.org",
        description="two short episodes",
    )
    return "test/small-v0"


def test_a_minari_dataset_is_read_without_its_last_observations(minari_id: str) -> None:
    found = trajectory_files.read(minari_id)
    assert found.lengths.tolist() == [4, 3]
    assert found.is_terminal.tolist() == [False, True]
    assert found.observations[:, 0].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert found.environment == "Pendulum-v1"
    assert found.name == minari_id


def test_a_minari_dataset_that_is_not_here_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("minari", reason="Minari needs the extra aaren[rl]")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(
        DataError, match=r"no Minari dataset 'mujoco/hopper/none-v0'.* minari download mujoco/hopper/none-v0"
    ):
        trajectory_files.read("mujoco/hopper/none-v0")


def test_a_minari_dataset_imports_nothing_that_it_names(
    minari_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its spaces Minari would build the environment, from any module of the file's choice."""
    (tmp_path / "trap_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    described = tmp_path / minari_id / "data" / "metadata.json"
    metadata = json.loads(described.read_text())
    spec = json.loads(metadata["env_spec"]) | {"entry_point": "trap_module:Environment"}
    metadata["env_spec"] = json.dumps(spec)
    described.write_text(json.dumps(metadata))
    assert trajectory_files.read(minari_id).environment == "Pendulum-v1"
    del metadata["observation_space"]
    described.write_text(json.dumps(metadata))
    with pytest.raises(DataError, match="does not describe observation_space and action_space"):
        trajectory_files.read(minari_id)
    assert "trap_module" not in sys.modules


def test_links_in_a_minari_dataset_are_refused(minari_id: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.hdf5", "w") as other:
        other["rewards"] = np.ones(4)
    with h5py.File(tmp_path / minari_id / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0"]["rewards"]
        file["episode_0"]["rewards"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "/rewards")
    with pytest.raises(DataError, match="'rewards' is a link"):
        trajectory_files.read(minari_id)


@pytest.mark.parametrize("kind", ["external", "soft", "dangling", "circle"])
def test_links_in_hdf5_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], kind: str) -> None:
    write_hdf5(tmp_path / "other.hdf5", arrays)
    path = write_hdf5(tmp_path / "a.hdf5", arrays)
    links = {
        "external": h5py.ExternalLink(str(tmp_path / "other.hdf5"), "/rewards"),
        "soft": h5py.SoftLink("/infos/qpos"),
        "dangling": h5py.SoftLink("/nowhere"),
        "circle": h5py.SoftLink("/rewards"),
    }
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file["rewards"] = links[kind]
    with pytest.raises(
        DataError, match="'rewards' is a link, which could show any file of this disk: refused"
    ):
        trajectory_files.read(path)


def test_numbers_stored_in_other_files_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(72))
    path = write_hdf5(tmp_path / "a.hdf5", arrays)
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file.create_dataset("rewards", (9,), dtype="f8", external=[(str(secret), 0, 72)])
    with pytest.raises(DataError, match="the numbers of 'rewards' are stored in other files: refused"):
        trajectory_files.read(path)
    other = write_hdf5(tmp_path / "other.hdf5", arrays)
    layout = h5py.VirtualLayout(shape=(9,), dtype="f4")
    layout[:] = h5py.VirtualSource(str(other), "rewards", shape=(9,))
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file.create_virtual_dataset("rewards", layout)
    with pytest.raises(DataError, match="the numbers of 'rewards' are stored in other files: refused"):
        trajectory_files.read(path)


@pytest.mark.parametrize("rows", [10**9, 10**15])
def test_an_hdf5_file_that_claims_more_than_it_holds_is_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], rows: int
) -> None:
    path = write_hdf5(tmp_path / "a.hdf5", arrays)
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file.create_dataset("rewards", (rows,), dtype="f8", chunks=(1000,), compression="gzip")
    with pytest.raises(DataError, match="refused as an archive bomb"):
        trajectory_files.read(path)


def test_groups_and_texts_for_arrays_are_told(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    path = write_hdf5(tmp_path / "a.hdf5", arrays)
    for value in ("text", [b"bytes"], h5py.Empty("f4")):
        with h5py.File(path, "a") as file:
            del file["rewards"]
            file["rewards"] = value
        with pytest.raises(DataError, match="'rewards' must be an array of numbers"):
            trajectory_files.read(path)
