import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import DataError
from aaren.rl import policies
from aaren.rl.episodes import Behaviour, open_stage, roll_out
from aaren.rl.rollout_worker import PolicyUse, RolloutWorker

pytest.importorskip("mujoco", reason="MuJoCo environments need the extra aaren[rl]")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "small.npz"
    np.savez(path, W0=0.1 * np.ones((3, 11)), b0=np.zeros(3), log_std=np.full(3, -1.0))
    description = {"env": "Hopper", "hidden_activation": "none", "output": "tanh"}
    path.with_suffix(".json").write_text(json.dumps(description))
    return path


@pytest.fixture
def worker(policy: Path) -> Iterator[RolloutWorker]:
    started = RolloutWorker(
        "Hopper-v4", [PolicyUse(str(policy), True, 0.0), PolicyUse(str(policy), False, 0.1)], 5
    )
    yield started
    started.close()


def test_a_worker_gives_the_episodes_of_this_process(worker: RolloutWorker, policy: Path) -> None:
    stage, loaded = open_stage("Hopper-v4"), policies.load(policy)
    behaviours = [
        Behaviour(policy=loaded, is_sampled=True),
        Behaviour(policy=loaded, is_sampled=False, noise=0.1),
    ]
    for part, number in [(0, 0), (1, 3), (0, 2)]:
        want = roll_out(stage, behaviours[part], (5, part, number))
        got = worker.roll_out(part, number)
        for one, other in zip(got[:3], want[:3], strict=True):
            np.testing.assert_array_equal(one, other)
        assert got.is_terminal == want.is_terminal


def test_a_failure_comes_back_in_one_line(policy: Path) -> None:
    broken = RolloutWorker("HalfCheetah-v4", [PolicyUse(str(policy), True, 0.0)], 0)
    words = "rolling out stopped: policy small looks at 11 numbers; the environment shows 17"
    with pytest.raises(DataError, match=words):
        broken.roll_out(0, 0)
    broken.close()
