"""Recorded episodes: arrays, files that are whole, broken or hostile, registered and generated sets."""

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from aaren.datasets import catalogue as registry
from aaren.errors import ConfigError, DataError, MissingDependencyError
from aaren.rl import data as rl
from aaren.rl.data import Trajectories


def flat(lengths: list[int], *, tail: int = 0, **changes: object) -> dict[str, object]:
    count = sum(lengths) + tail
    rng = np.random.default_rng(0)
    ends = np.zeros(count, dtype=bool)
    ends[np.cumsum(lengths, dtype=int) - 1] = True
    arrays: dict[str, object] = {
        "observations": rng.normal(size=(count, 3)),
        "actions": rng.uniform(-1, 1, size=(count, 2)),
        "rewards": rng.normal(size=count),
        "terminals": ends & (np.arange(count) % 2 == 0),
        "timeouts": ends & (np.arange(count) % 2 == 1),
    }
    return arrays | changes


def make(lengths: list[int], *, drop_short: bool = False, tail: int = 0, **changes: object) -> Trajectories:
    return Trajectories.from_flat(**flat(lengths, tail=tail, **changes), drop_short=drop_short)  # type: ignore[arg-type]  # a table of arrays


def test_flat_arrays_are_split_after_either_flag_and_a_tail_is_left_out() -> None:
    made = make([3, 4, 2], tail=5)
    assert made.lengths.tolist() == [3, 4, 2]
    assert made.num_transitions == 9
    assert made.is_terminal.tolist() == [True, True, True]
    assert (made.state_size, made.action_size) == (3, 2)
    assert make([2, 3]).is_terminal.tolist() == [False, True]


def test_returns_to_go_are_suffix_sums_of_each_trajectory() -> None:
    made = make([3, 4, 2])
    for begin, end in zip(made.offsets[:-1], made.offsets[1:], strict=True):
        rewards = made.rewards[begin:end].astype(np.float64)
        want = [rewards[i:].sum() for i in range(len(rewards))]
        np.testing.assert_allclose(made.returns_to_go[begin:end], want, rtol=0, atol=1e-12)
    np.testing.assert_allclose(made.returns, made.returns_to_go[made.offsets[:-1]], atol=1e-12)


def test_statistics_are_float64_population_with_the_floor() -> None:
    made = make([50, 50])
    states = made.observations.astype(np.float64)
    np.testing.assert_array_equal(made.state_statistics.mean, states.mean(axis=0))
    np.testing.assert_array_equal(made.state_statistics.std, states.std(axis=0) + 1e-6)
    normal = made.state_statistics.normalise(made.observations)
    assert normal.dtype == np.float32
    np.testing.assert_allclose(normal.mean(axis=0), 0, atol=1e-6)


def test_constant_states_become_0_and_not_nan() -> None:
    made = make([4, 4], observations=np.full((8, 3), 2.5))
    assert not made.state_statistics.normalise(made.observations).any()


def test_whole_number_actions_are_discrete() -> None:
    made = make([3, 3], actions=np.array([0, 2, 1, 0, 0, 1]))
    assert (made.num_actions, made.action_size, made.actions.dtype) == (3, 3, np.int64)
    one_number = make([3, 3], actions=np.linspace(-1, 1, 6))
    assert (one_number.num_actions, one_number.action_size) == (None, 1)


def test_short_trajectories_are_told_or_dropped() -> None:
    with pytest.raises(DataError, match=r"trajectory 1 \(row 3\) has one step.*drop_short=True"):
        make([3, 1, 4])
    assert make([3, 1, 4], drop_short=True).lengths.tolist() == [3, 4]


@pytest.mark.parametrize("label", ["observations", "actions", "rewards"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_told_with_its_row(label: str, value: float) -> None:
    arrays = flat([3, 4])
    broken = np.array(arrays[label])
    broken[5] = value
    with pytest.raises(DataError, match=rf"{label}, row 5: not a finite number"):
        make([3, 4], **{label: broken})


def test_arrays_that_do_not_fit_are_told() -> None:
    with pytest.raises(DataError, match=r"one row per transition is needed .* observations \(2, 3\)"):
        Trajectories(
            observations=np.zeros((2, 3), np.float32),
            actions=np.zeros((4, 1), np.float32),
            rewards=np.zeros(4, np.float32),
            offsets=np.array([0, 4]),
            is_terminal=np.array([True]),
        )
    with pytest.raises(DataError, match="no finished trajectory"):
        make([], tail=5)


def test_names_and_bounds_can_be_given() -> None:
    made = make([3]).named("hopper-medium", "Hopper-v4").with_bounds(-2.0, 2.0)
    assert (made.name, made.environment) == ("hopper-medium", "Hopper-v4")
    assert made.action_high is not None
    assert made.action_high.tolist() == [2.0, 2.0]
    assert made.named("x", "Other-v0").environment == "Hopper-v4"


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
        found = rl.read(path)
        assert found.lengths.tolist() == [3, 4]
        assert found.is_terminal.tolist() == [True, False]
        np.testing.assert_array_equal(found.observations, arrays["observations"][:7])
        np.testing.assert_array_equal(found.actions, arrays["actions"][:7])


@pytest.mark.parametrize("key", rl.ARRAYS)
def test_a_missing_key_is_named(tmp_path: Path, arrays: dict[str, np.ndarray], key: str) -> None:
    del arrays[key]
    with pytest.raises(DataError, match=rf"a\.hdf5: no dataset '{key}'; it has .*infos"):
        rl.read(write_hdf5(tmp_path / "a.hdf5", arrays))
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=rf"a\.npz: expected an array '{key}'"):
        rl.read(tmp_path / "a.npz")


def test_damaged_and_uneven_files_are_told(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    path = write_hdf5(tmp_path / "a.hdf5", arrays)
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(DataError, match=r"a\.hdf5: not a whole HDF5 file"):
        rl.read(path)
    np.savez(tmp_path / "a.npz", **(arrays | {"rewards": np.zeros(4)}))
    with pytest.raises(DataError, match=r"one row per transition is needed in all arrays.*rewards \(4,\)"):
        rl.read(tmp_path / "a.npz")


def test_rewards_of_nan_are_told_with_file_and_row(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    arrays["rewards"][4] = np.nan
    with pytest.raises(DataError, match=r"a\.hdf5: rewards, row 4: not a finite number"):
        rl.read(write_hdf5(tmp_path / "a.hdf5", arrays))


@pytest.mark.parametrize("module", ["h5py", "minari"])
def test_without_the_extra_the_cure_is_told(
    module: str, tmp_path: Path, arrays: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_hdf5(tmp_path / "a.hdf5", arrays)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=rf"needs '{module}': pip install 'aaren\[rl\]'"):
        rl.read(path if module == "h5py" else "some/dataset-v0")


def test_pickles_and_strangers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "hopper-medium-v2.pkl").write_bytes(pickle.dumps([{}]))
    with pytest.raises(DataError, match="is a pickle"):
        rl.read(tmp_path / "hopper-medium-v2.pkl")
    (tmp_path / "a.csv").write_text("1")
    with pytest.raises(
        DataError, match=r"expected \.hdf5, \.h5 or \.npz, or the id of a Minari dataset; got '\.csv'"
    ):
        rl.read(tmp_path / "a.csv")
    with pytest.raises(DataError, match=r"none\.hdf5: no such file"):
        rl.read(tmp_path / "none.hdf5")


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
    found = rl.read(minari_id)
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
        rl.read("mujoco/hopper/none-v0")


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
    assert rl.read(minari_id).environment == "Pendulum-v1"
    del metadata["observation_space"]
    described.write_text(json.dumps(metadata))
    with pytest.raises(DataError, match="does not describe observation_space and action_space"):
        rl.read(minari_id)
    assert "trap_module" not in sys.modules


def test_links_in_a_minari_dataset_are_refused(minari_id: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.hdf5", "w") as other:
        other["rewards"] = np.ones(4)
    with h5py.File(tmp_path / minari_id / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0"]["rewards"]
        file["episode_0"]["rewards"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "/rewards")
    with pytest.raises(DataError, match="'rewards' is a link"):
        rl.read(minari_id)


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
        rl.read(path)


def test_numbers_stored_in_other_files_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(72))
    path = write_hdf5(tmp_path / "a.hdf5", arrays)
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file.create_dataset("rewards", (9,), dtype="f8", external=[(str(secret), 0, 72)])
    with pytest.raises(DataError, match="the numbers of 'rewards' are stored in other files: refused"):
        rl.read(path)
    other = write_hdf5(tmp_path / "other.hdf5", arrays)
    layout = h5py.VirtualLayout(shape=(9,), dtype="f4")
    layout[:] = h5py.VirtualSource(str(other), "rewards", shape=(9,))
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file.create_virtual_dataset("rewards", layout)
    with pytest.raises(DataError, match="the numbers of 'rewards' are stored in other files: refused"):
        rl.read(path)


@pytest.mark.parametrize("rows", [10**9, 10**15])
def test_an_hdf5_file_that_claims_more_than_it_holds_is_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], rows: int
) -> None:
    path = write_hdf5(tmp_path / "a.hdf5", arrays)
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file.create_dataset("rewards", (rows,), dtype="f8", chunks=(1000,), compression="gzip")
    with pytest.raises(DataError, match="refused as an archive bomb"):
        rl.read(path)


def test_groups_and_texts_for_arrays_are_told(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    path = write_hdf5(tmp_path / "a.hdf5", arrays)
    for value in ("text", [b"bytes"], h5py.Empty("f4")):
        with h5py.File(path, "a") as file:
            del file["rewards"]
            file["rewards"] = value
        with pytest.raises(DataError, match="'rewards' must be an array of numbers"):
            rl.read(path)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "rl").mkdir()
    return tmp_path


def test_a_registered_set_is_found_named_and_measured(data: Path) -> None:
    ends = np.array([0, 0, 1, 0, 1, 1])  # the last trajectory has one step and is left out
    np.savez(
        data / "rl" / "hopper-medium-regen.npz",
        observations=np.zeros((6, 11)),
        actions=np.zeros((6, 3)),
        rewards=np.ones(6),
        terminals=ends,
        timeouts=0 * ends,
    )
    found = rl.load("hopper-medium-regen")
    assert (found.name, found.environment) == ("hopper-medium-regen", "Hopper-v4")
    dataset = registry.lookup("hopper-medium-regen")
    measured = rl.measure(dataset)
    assert measured == {
        "state_size": 11,
        "action_size": 3,
        "transitions": 5,
        "trajectories": 2,
        "mean_return": 2.5,
    }
    assert {key: measured[key] for key in dataset.facts} == dict(dataset.facts)


def test_generated_sets_need_no_file() -> None:
    assert rl.load("cartpole").num_actions == 2


def test_what_is_missing_or_of_another_setting_is_told() -> None:
    with pytest.raises(
        DataError, match=r"no file rl/hopper-medium-regen\.npz .* python benchmarks/rl_data hopper-medium"
    ):
        rl.load("hopper-medium-regen")
    with pytest.raises(DataError, match="aaren data fetch hopper-medium"):
        rl.load("hopper-medium")
    with pytest.raises(ConfigError, match="ETTh1 is a forecasting set; this reads trajectories"):
        rl.load("ETTh1")


@pytest.fixture(scope="module", params=sorted(rl.CONTROL_SETS))
def made(request: pytest.FixtureRequest) -> Trajectories:
    return rl.generate(request.param, episodes=30)


def test_skilled_episodes_beat_clumsy_and_random_ones(made: Trajectories) -> None:
    skilled, clumsy, random = (made.returns[level::3].mean() for level in range(3))
    assert skilled > clumsy > random


def test_sets_repeat_with_their_seed(made: Trajectories) -> None:
    again = rl.generate(made.name, episodes=3)
    rows = again.num_transitions
    np.testing.assert_array_equal(made.observations[:rows], again.observations)
    other = rl.generate(made.name, episodes=3, seed=1)
    assert not np.array_equal(made.observations[0], other.observations[0])


def test_the_pendulum_is_continuous_and_bounded() -> None:
    pendulum = rl.generate("pendulum", episodes=6)
    assert (pendulum.state_size, pendulum.action_size, pendulum.num_actions) == (3, 1, None)
    assert (pendulum.lengths == 200).all()
    assert not pendulum.is_terminal.any()
    assert pendulum.action_high is not None
    assert np.abs(pendulum.actions).max() <= pendulum.action_high[0] == 2.0
    assert pendulum.returns[::3].mean() > -300  # it does swing up; random actions get about -1,100


def test_the_cart_balances() -> None:
    cartpole = rl.generate("cartpole", episodes=6)
    assert (cartpole.state_size, cartpole.num_actions) == (4, 2)
    assert cartpole.returns[0] == 500.0
    assert not cartpole.is_terminal[0]
    assert cartpole.is_terminal[2]


def test_an_unknown_set_is_told() -> None:
    with pytest.raises(ConfigError, match="unknown classic-control set 'pendulm'; did you mean 'pendulum'"):
        rl.generate("pendulm")
