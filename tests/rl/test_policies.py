import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import ConfigError, DataError
from aaren.rl import policies
from aaren.rl.policies import Policy


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


@pytest.fixture
def observations() -> np.ndarray:
    return np.random.default_rng(9).normal(size=(5, 4))


def test_the_forward_pass_is_that_of_the_layout(tmp_path: Path, observations: np.ndarray) -> None:
    arrays = network(0, 4, 8, 3) | {"obs_mean": np.arange(4.0), "obs_std": np.full(4, 2.0)}
    policy = policies.load(
        write(tmp_path / "p.npz", arrays, obs_clip=0.5, hidden_activation="relu", output="tanh")
    )
    x = np.clip((observations - np.arange(4.0)) / 2.0, -0.5, 0.5)
    hidden = np.maximum(x @ arrays["W0"].T.astype(float) + arrays["b0"], 0)
    want = np.tanh(hidden @ arrays["W1"].T.astype(float) + arrays["b1"])
    np.testing.assert_allclose(policy.act(observations, step=0), want, rtol=1e-12)
    assert (policy.action_size, policy.is_random, policy.name) == (3, False, "p")


def test_actions_are_cut_or_squashed(tmp_path: Path, observations: np.ndarray) -> None:
    cut = policies.load(write(tmp_path / "cut.npz", network(1, 4, 8, 3)))
    assert np.abs(cut.act(100 * observations, step=0)).max() == 1.0
    squashed = policies.load(
        write(tmp_path / "squashed.npz", network(1, 4, 3), output="tanh", hidden_activation="none")
    )
    assert np.abs(squashed.act(observations, step=0)).max() < 1.0


def test_random_actions_have_the_spread_of_the_file(tmp_path: Path) -> None:
    arrays = {"W0": np.zeros((2, 4)), "b0": np.zeros(2), "log_std": np.log([0.1, 0.2])}
    policy = policies.load(write(tmp_path / "p.npz", arrays))
    drawn = policy.act(np.zeros((20_000, 4)), step=0, rng=np.random.default_rng(0))
    np.testing.assert_allclose(drawn.std(axis=0), [0.1, 0.2], rtol=0.03)
    assert not policy.act(np.zeros((3, 4)), step=0).any()


def test_the_spread_may_depend_on_the_observation_and_is_clipped(tmp_path: Path) -> None:
    arrays = {"W0": np.eye(4), "b0": np.zeros(4), "W1": np.zeros((1, 4)), "b1": np.zeros(1)}
    arrays |= {"W_logstd": np.full((1, 4), -100.0), "b_logstd": np.zeros(1)}
    policy = policies.load(write(tmp_path / "p.npz", arrays, hidden_activation="relu", output="tanh"))
    rng = np.random.default_rng(0)
    assert np.abs(policy.act(np.ones((1000, 4)), step=0, rng=rng)).max() == pytest.approx(np.exp(-20), rel=5)
    assert policy.act(np.zeros((1000, 4)), step=0, rng=rng).std() == pytest.approx(0.63, abs=0.05)


def test_a_mean_policy_cannot_be_sampled(tmp_path: Path) -> None:
    policy = policies.load(write(tmp_path / "p.npz", network(0, 4, 2)))
    with pytest.raises(DataError, match="policy p has mean actions only"):
        policy.act(np.zeros((1, 4)), step=0, rng=np.random.default_rng(0))


def test_a_time_feature_counts_down(tmp_path: Path) -> None:
    arrays = {"W0": np.array([[0.0, 0.0, 1.0]]), "b0": np.zeros(1)}
    policy = policies.load(write(tmp_path / "p.npz", arrays, time_feature=True, hidden_activation="none"))
    assert policy.act(np.zeros((1, 2)), step=250)[0, 0] == 0.75


def test_old_ant_policies_get_zeros_for_contact_forces(tmp_path: Path) -> None:
    wide = network(3, 111, 8)
    policy = policies.load(write(tmp_path / "ant.npz", wide, env="Ant", hidden_activation="none"))
    seen = np.random.default_rng(0).normal(size=(2, 27))
    want = np.clip(seen @ wide["W0"][:, :27].T.astype(float) + wide["b0"], -1, 1)
    np.testing.assert_allclose(policy.act(seen, step=0), want)
    with pytest.raises(DataError, match="policy ant takes 111 numbers; the environment gives 11"):
        policy.act(np.zeros((1, 11)), step=0)


def test_one_snapshot_of_a_series_is_chosen_by_name(tmp_path: Path) -> None:
    arrays = {f"it{i:03d}/{key}": value for i in (0, 20) for key, value in network(i, 4, 2).items()}
    path = write(tmp_path / "series.npz", arrays, hidden_activation="none")
    assert policies.list_snapshots(path) == ["it000", "it020"]
    policy = policies.load(f"{path}@it020")
    np.testing.assert_array_equal(policy.layers[0][0], network(20, 4, 2)["W0"])
    assert policy.name == "series@it020"
    with pytest.raises(DataError, match=r"is a series of snapshots; choose one, such as series\.npz@it020"):
        policies.load(path)
    with pytest.raises(ConfigError, match=r"unknown snapshot of series\.npz 'it999'"):
        policies.load(f"{path}@it999")


@pytest.mark.parametrize(
    ("arrays", "description", "words"),
    [
        ({"X": np.zeros(1)}, {}, r"expected an array 'W0'; it holds X"),
        ({"W0": np.zeros((2, 3))}, {}, "expected an array 'b0' beside 'W0'"),
        ({"W0": np.zeros((2, 3)), "b0": np.zeros(3)}, {}, r"W0 \(2, 3\) and b0 \(3,\) do not fit together"),
        (network(0, 3, 4) | {"W1": np.zeros((2, 5)), "b1": np.zeros(2)}, {}, r"W1 \(2, 5\) .* layer before"),
        (network(0, 3, 4), {"hidden_activation": "gelu"}, "must be one of tanh, relu, none; got 'gelu'"),
        (network(0, 3, 4), {"output": None}, r"'output' must be one of tanh, clip\[-1,1\]; got None"),
    ],
)
def test_what_does_not_fit_the_layout_is_told(
    tmp_path: Path, arrays: dict[str, np.ndarray], description: dict[str, object], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        policies.load(write(tmp_path / "p.npz", arrays, **description))


def test_a_policy_without_its_description_is_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", **network(0, 3, 4))
    with pytest.raises(DataError, match=r"the description p\.json should lie beside it"):
        policies.load(tmp_path / "p.npz")
    (tmp_path / "p.json").write_text("{")
    with pytest.raises(DataError, match=r"p\.json: not valid JSON"):
        policies.load(tmp_path / "p.npz")
    (tmp_path / "p.json").write_text("[]")
    with pytest.raises(DataError, match=r"p\.json: expected a JSON object"):
        policies.load(tmp_path / "p.npz")


def test_every_policy_of_the_mirror_loads_and_acts(mirror: Path) -> None:
    files = sorted((mirror / "rl").glob("*.npz"))
    if not files:
        pytest.skip("needs the policies of the mirror's rl folder")
    for file in files:
        for snapshot in policies.list_snapshots(file)[:1] or [""]:
            policy: Policy = policies.load(f"{file}@{snapshot}" if snapshot else file)
            size = {"HalfCheetah": 17, "Hopper": 11, "Walker2d": 17, "Ant": 27}[policy.environment]
            actions = policy.act(np.zeros((3, size)), step=0)
            assert actions.shape == (3, policy.action_size)
            assert np.abs(actions).max() <= 1.0
