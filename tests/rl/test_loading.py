from pathlib import Path

import numpy as np
import pytest

from aaren.datasets import catalogue as registry
from aaren.errors import ConfigError, DataError
from aaren.rl import data as rl


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
        DataError, match=r"no file rl/hopper-medium-regen\.npz .* aaren data make rl hopper-medium-regen"
    ):
        rl.load("hopper-medium-regen")
    with pytest.raises(DataError, match="aaren data fetch hopper-medium"):
        rl.load("hopper-medium")
    with pytest.raises(ConfigError, match="ETTh1 is a forecasting set; this reads trajectories"):
        rl.load("ETTh1")
