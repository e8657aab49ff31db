import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import ConfigError, DataError
from aaren.rl import data as rl
from rl_data import policies, rollouts
from rl_data.rollouts import ENVIRONMENTS, QUALITIES, Behaviour, recipe_for

SIZES = {"halfcheetah": 17, "hopper": 11, "walker2d": 17, "ant": 27}


def write(path: Path, arrays: dict[str, np.ndarray], **description: object) -> Path:
    np.savez(path, **arrays)
    full = {"env": "Hopper", "hidden_activation": "tanh", "output": "clip[-1,1]", **description}
    path.with_suffix(".json").write_text(json.dumps(full))
    return path


def network(seed: int, *sizes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = {}
    for place, (inner, outer) in enumerate(pairwise(sizes)):
        arrays[f"W{place}"] = rng.normal(size=(outer, inner)).astype(np.float32)
        arrays[f"b{place}"] = rng.normal(size=outer).astype(np.float32)
    return arrays


def test_the_forward_pass_is_that_of_the_layout(tmp_path: Path) -> None:
    observations = np.random.default_rng(9).normal(size=(5, 4))
    arrays = network(0, 4, 8, 3) | {"obs_mean": np.arange(4.0), "obs_std": np.full(4, 2.0)}
    path = write(tmp_path / "p.npz", arrays, obs_clip=0.5, hidden_activation="relu", output="tanh")
    policy = policies.load(path)
    x = np.clip((observations - np.arange(4.0)) / 2.0, -0.5, 0.5)
    hidden = np.maximum(x @ arrays["W0"].T.astype(float) + arrays["b0"], 0)
    expected = np.tanh(hidden @ arrays["W1"].T.astype(float) + arrays["b1"])
    np.testing.assert_allclose(policy.act(observations), expected, rtol=1e-12)
    with pytest.raises(DataError, match="mean actions only"):
        policy.act(observations, rng=np.random.default_rng(0))
    with pytest.raises(DataError, match="takes 4 numbers"):
        policy.act(observations[:, :3])


def test_random_actions_have_the_std_of_the_file(tmp_path: Path) -> None:
    arrays = {"W0": np.zeros((2, 4)), "b0": np.zeros(2), "log_std": np.log([0.1, 0.2])}
    policy = policies.load(write(tmp_path / "p.npz", arrays))
    drawn = policy.act(np.zeros((20_000, 4)), rng=np.random.default_rng(0))
    np.testing.assert_allclose(drawn.std(axis=0), [0.1, 0.2], rtol=0.03)
    layers = {"W0": np.eye(4), "b0": np.zeros(4), "W1": np.zeros((1, 4)), "b1": np.zeros(1)}
    layers |= {"W_logstd": np.full((1, 4), -100.0), "b_logstd": np.zeros(1)}
    policy = policies.load(write(tmp_path / "q.npz", layers, hidden_activation="relu", output="tanh"))
    drawn = policy.act(np.ones((1000, 4)), rng=np.random.default_rng(0))
    assert np.abs(drawn).max() == pytest.approx(np.exp(-20), rel=5)  # clipped below


def test_old_ant_policies_get_zeros_for_contact_forces(tmp_path: Path) -> None:
    wide = network(3, 111, 8)
    policy = policies.load(write(tmp_path / "ant.npz", wide, env="Ant", hidden_activation="none"))
    observations = np.random.default_rng(0).normal(size=(2, 27))
    expected = np.clip(observations @ wide["W0"][:, :27].T.astype(float) + wide["b0"], -1, 1)
    np.testing.assert_allclose(policy.act(observations), expected)


def test_a_snapshot_of_a_series_is_chosen_by_name(tmp_path: Path) -> None:
    arrays = {f"it{i:03d}/{key}": value for i in (0, 20) for key, value in network(i, 4, 2).items()}
    path = write(tmp_path / "series.npz", arrays, hidden_activation="none")
    policy = policies.load(f"{path}@it020")
    np.testing.assert_array_equal(policy.arrays["W0"], network(20, 4, 2)["W0"])
    assert policy.name == "series@it020"
    for name in (path, f"{path}@it999"):
        with pytest.raises(ConfigError, match="snapshot"):
            policies.load(name)


@pytest.mark.parametrize("robot", ENVIRONMENTS)
def test_the_policies_of_every_recipe_load_and_act(robot: str, mirror: Path) -> None:
    if not list((mirror / "rl").glob("*.npz")):
        pytest.skip("needs the policies of the mirror's rl folder")
    for quality in QUALITIES:
        for behaviour in recipe_for(f"{robot}-{quality}").behaviours:
            file, at, snapshot = behaviour.policy.partition("@")
            policy = policies.load(f"{mirror / 'rl' / file}.npz{at}{snapshot}")
            assert policy.is_random == behaviour.is_sampled
            assert np.abs(policy.act(np.zeros((3, SIZES[robot])))).max() <= 1.0


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with the policies of Hopper, which fall soon."""
    pytest.importorskip("mujoco", reason="MuJoCo environments need the extra aaren[rl]")
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "rl").mkdir()
    small = {"W0": 0.1 * np.ones((3, 11)), "b0": np.zeros(3), "log_std": np.full(3, -1.0)}
    write(tmp_path / "rl" / "one.npz", small, algorithm="by hand")
    write(tmp_path / "rl" / "two.npz", small | {"b0": np.ones(3)})
    monkeypatch.setitem(rollouts.MEDIUM, "hopper", Behaviour("one"))
    three = (Behaviour("one"), Behaviour("two", noise=0.1), Behaviour("two", is_sampled=False))
    monkeypatch.setitem(rollouts.REPLAY, "hopper", three)
    return tmp_path


def test_a_set_is_made_recorded_and_read(data: Path) -> None:
    path = rollouts.make("hopper-medium", transitions=400)
    assert path == data / "rl" / "hopper-medium-regen.npz"
    made = rl.read(path)
    assert 400 <= made.num_transitions < 400 + made.lengths[-1]
    assert made.environment == "Hopper-v4"
    (behaviour,) = made.record["behaviours"]  # type: ignore[misc]  # of JSON
    assert behaviour["algorithm"] == "by hand"
    assert behaviour["mean_return"] == pytest.approx(made.returns.mean())
    with pytest.raises(DataError, match="exists"):
        rollouts.make("hopper-medium")


@pytest.mark.usefixtures("data")
def test_behaviours_take_turns_and_the_same_bytes_come_out_again() -> None:
    made = []
    for _ in range(2):
        path = rollouts.make("hopper-medium-replay", transitions=600)
        made.append(path.read_bytes())
        shares = [part["episodes"] for part in rl.read(path).record["behaviours"]]  # type: ignore[attr-defined]
        path.unlink()
    assert made[0] == made[1]
    assert max(shares) - min(shares) <= 1


@pytest.mark.usefixtures("data")
def test_wrong_requests_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        rollouts.make("hopper-medium", transitions=0)
    with pytest.raises(ConfigError, match="hopper-expert"):
        rollouts.make("hopper-expert")
    with pytest.raises(DataError, match=r"zoo_ppo_HalfCheetah.*DLR-RM"):
        rollouts.make("halfcheetah-medium")
