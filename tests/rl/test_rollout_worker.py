"""Episodes of a behaviour policy: the same from the same seed, here and in a process of their own."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import ConfigError, DataError
from aaren.rl import policies
from aaren.rl.policies import Policy
from aaren.rl.rollout_worker import Behaviour, PolicyUse, RolloutWorker, Stage, open_stage, roll_out

pytest.importorskip("mujoco", reason="MuJoCo environments need the extra aaren[rl]")


@pytest.fixture(scope="module")
def hopper() -> Stage:
    return open_stage("Hopper-v4")


@pytest.fixture
def behaviour() -> Behaviour:
    rng = np.random.default_rng(0)
    layer = (0.1 * rng.normal(size=(3, 11)), np.zeros(3))
    policy = Policy(
        name="small",
        environment="Hopper",
        layers=(layer,),
        activation="none",
        output="tanh",
        log_std=np.full(3, -1.0),
    )
    return Behaviour(policy=policy, is_sampled=True)


@pytest.mark.parametrize(
    ("environment", "sizes"),
    [("HalfCheetah-v4", (17, 6)), ("Hopper-v4", (11, 3)), ("Walker2d-v4", (17, 6)), ("Ant-v4", (27, 8))],
)
def test_the_four_robots_have_the_sizes_of_the_protocol(
    environment: str, sizes: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stage = open_stage(environment)
    assert (stage.observation_size, stage.action_size) == sizes
    assert stage.max_steps == 1000
    assert not list(tmp_path.iterdir())  # MuJoCo likes to leave a log behind


def test_an_episode_depends_on_its_seed_alone(hopper: Stage, behaviour: Behaviour) -> None:
    first = roll_out(hopper, behaviour, (0, 0, 7))
    roll_out(hopper, behaviour, (0, 0, 8))
    again = roll_out(hopper, behaviour, (0, 0, 7))
    for one, other in zip(first[:3], again[:3], strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(first.observations[0], roll_out(hopper, behaviour, (0, 1, 7)).observations[0])


def test_what_is_kept_can_be_replayed(hopper: Stage, behaviour: Behaviour) -> None:
    episode = roll_out(hopper, behaviour, (3, 0, 0))
    start = int(np.random.SeedSequence((3, 0, 0)).spawn(2)[0].generate_state(1)[0])
    observation, _ = hopper.environment.reset(seed=start)
    for seen, action, reward in zip(*episode[:3], strict=True):
        np.testing.assert_array_equal(seen, observation.astype(np.float32))
        observation, got, is_terminal, _, _ = hopper.environment.step(action)
        assert np.float32(got) == reward
    assert is_terminal
    assert episode.is_terminal
    assert len(episode.rewards) < 1000


def test_mean_actions_and_noise(hopper: Stage, behaviour: Behaviour) -> None:
    mean = roll_out(hopper, Behaviour(policy=behaviour.policy, is_sampled=False), (0, 0, 0))
    want = behaviour.policy.act(mean.observations.astype(np.float64), step=0)
    np.testing.assert_allclose(mean.actions, want, atol=1e-5)
    noisy = roll_out(hopper, Behaviour(policy=behaviour.policy, is_sampled=False, noise=0.5), (0, 0, 0))
    np.testing.assert_array_equal(noisy.observations[0], mean.observations[0])
    assert not np.array_equal(noisy.actions[0], mean.actions[0])
    assert np.abs(noisy.actions).max() <= 1.0


def test_a_step_limit_is_no_terminal() -> None:
    stage = open_stage("HalfCheetah-v4")._replace(max_steps=5)
    layer = (np.zeros((6, 17)), np.zeros(6))
    still = Policy(name="still", environment="", layers=(layer,), activation="none", output="tanh")
    episode = roll_out(stage, Behaviour(policy=still, is_sampled=False), (0, 0, 0))
    assert (len(episode.rewards), episode.is_terminal) == (5, False)


def test_strange_environments_are_told() -> None:
    with pytest.raises(ConfigError, match="Gymnasium has no environment 'Hoper-v4'"):
        open_stage("Hoper-v4")
    with pytest.raises(ConfigError, match="CartPole-v1: flat observations and actions are needed"):
        open_stage("CartPole-v1")


def test_a_policy_of_the_mirror_does_what_its_file_says(mirror: Path, hopper: Stage) -> None:
    file = mirror / "rl" / "zoo_ars_Hopper.npz"
    if not file.is_file():
        pytest.skip("needs the policies of the mirror's rl folder")
    episode = roll_out(hopper, Behaviour(policy=policies.load(file), is_sampled=False), (0, 0, 0))
    assert episode.rewards.sum() == pytest.approx(3290, abs=50)  # measured there: 3290 +- 5 over ten episodes


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
    words = "rolling out stopped: policy small takes 11 numbers; the environment gives 17"
    with pytest.raises(DataError, match=words):
        broken.roll_out(0, 0)
    broken.close()
