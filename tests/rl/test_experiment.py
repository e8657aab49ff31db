"""The rl task end to end: data, training, acting, own files, and all that can be wrong with them."""

import json
import math
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from aaren.engine.loop import fit
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.plan import Moment
from aaren.errors import ConfigError, DataError, MissingDependencyError
from aaren.rl import data as recorded
from aaren.rl.config import RlConfig, RlNetworkConfig
from aaren.rl.data import Trajectories
from aaren.rl.experiment import RlExperiment, find_scales, open_simulator
from aaren.rl.model import DecisionModel
from aaren.rl.references import RandomPolicy
from aaren.rl.setting import SETTING

SMALL = RlNetworkConfig(width=16, num_heads=2, num_layers=1)
START = Moment(0, 0)
MODELS = ("aaren", "transformer", "behaviour", "random")
generated = cache(recorded.generate)


@pytest.fixture(autouse=True)
def sets_are_generated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rolling a set out takes longer than most of these tests."""
    monkeypatch.setattr(recorded, "generate", generated)


def config(**options: Any) -> RlConfig:
    given = {"dataset": "pendulum", "network": SMALL, "updates": 4, "evaluations": 2, "warm_up": 2}
    given |= {"batch_size": 8, "episodes": 2, "episode_steps": 12, "context_steps": 4, "max_trajectories": 9}
    if "data_file" in options:
        del given["dataset"]
    return RlConfig(**{**given, **options})


def open_experiment(**options: Any) -> RlExperiment:
    experiment = SETTING.open(config(**options), seed=0)
    assert isinstance(experiment, RlExperiment)
    return experiment


def write_npz(path: Path, *, steps: int = 12, **changes: Any) -> Path:
    """Three episodes of a pendulum-like recording, the last of which may be changed."""
    rng = np.random.default_rng(0)
    arrays = {
        "observations": rng.normal(size=(steps, 3)),
        "actions": rng.uniform(-2, 2, size=(steps, 1)),
        "rewards": rng.normal(size=steps),
        "terminals": np.zeros(steps, dtype=bool),
        "timeouts": np.arange(1, steps + 1) % 4 == 0,
    }
    np.savez(path, **{**arrays, **changes})
    return path


@pytest.mark.parametrize("dataset", ["pendulum", "cartpole"])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_trained_and_judged_alike(model: str, dataset: str) -> None:
    experiment = open_experiment(model=model, dataset=dataset)
    fitted = fit(experiment, seed=0)
    found = experiment.evaluate(fitted.model, "test", START)
    assert set(found) >= {"score", "return", "return_std", "length", "failed"}
    assert math.isfinite(found["return"])
    assert math.isnan(found["score"])  # D4RL has no reference for it
    assert found["failed"] == 0.0
    assert ("target" in found) == (model in ("aaren", "transformer"))
    assert len(fitted.status.curve) == (1 if model in ("behaviour", "random") else 2)


@pytest.mark.parametrize("context", ["window", "carried", "reset"])
def test_every_context_can_be_chosen(context: str) -> None:
    experiment = open_experiment(context=context)
    assert next(experiment.batches(0)).mask.shape == (8, 4)
    model = experiment.build_model().eval()
    assert math.isfinite(experiment.evaluate(model, "validation", START)["return"])
    assert experiment.facts()["context"] == context
    cell = SETTING.cell(config(context=context))
    assert dict(cell).get("context", "window") == context


def test_plan_and_schedule_are_the_published_ones() -> None:
    plan = open_experiment(updates=20_000, evaluations=200, warm_up=10_000).plan
    assert (plan.max_updates, plan.evaluate_every, plan.clip_norm) == (20_000, 100, 0.25)
    assert plan.schedule(Moment(0, 0)) == pytest.approx(1e-4)
    assert plan.schedule(Moment(4_999, 0)) == 0.5
    assert (plan.selects.metric, plan.selects.goal, plan.patience) == ("return", "max", None)
    optimiser = RlConfig(dataset="pendulum").optimiser
    assert (optimiser.name, optimiser.learning_rate, optimiser.weight_decay) == ("adamw", 1e-4, 1e-4)


def test_the_model_gets_the_scales_of_data_and_environment() -> None:
    experiment = open_experiment()
    model = experiment.build_model()
    assert isinstance(model, DecisionModel)
    statistics = experiment.data.state_statistics
    np.testing.assert_array_equal(model.state_std.numpy(), statistics.std)  # with the 1e-6, in float64
    assert (model.action_low.item(), model.action_high.item()) == (-2.0, 2.0)
    batch = next(experiment.batches(0))
    raw = experiment.data.observations[0]
    np.testing.assert_array_equal(model.normalise(torch.from_numpy(raw)).numpy(), statistics.normalise(raw))
    assert model.to_unit(batch.actions).abs().max() <= 1.0


def test_targets_and_scales() -> None:
    experiment = open_experiment()
    best = float(experiment.data.returns.max())
    assert experiment.scales.target_return == best  # nothing is published for it
    assert experiment.scales.return_scale == float(np.abs(experiment.data.returns).max())
    assert open_experiment(target_return=-10.0, target_scale=3.0).scales.target_return == -30.0


@pytest.mark.parametrize(
    ("environment", "sizes", "target"),
    [
        ("Hopper-v4", (11, 3), 3600.0),
        ("HalfCheetah-v4", (17, 6), 6000.0),
        ("Walker2d-v4", (17, 6), 5000.0),
        ("Ant-v4", (27, 8), 6000.0),
        ("Ant-v4", (111, 8), 6000.0),
    ],
)
def test_published_robots(environment: str, sizes: tuple[int, int], target: float) -> None:
    pytest.importorskip("mujoco")
    data = Trajectories.from_flat(
        observations=np.zeros((6, sizes[0])),
        actions=np.zeros((6, sizes[1])),
        rewards=np.ones(6),
        terminals=np.arange(6) == 5,
        timeouts=np.zeros(6),
        environment=environment,
    )
    task = config(episode_steps=3, model="aaren")
    simulator = open_simulator(task, data)
    scales = find_scales(task, data, simulator)
    assert (scales.target_return, scales.return_scale) == (target, 1000.0)
    assert find_scales(replace(task, asks_for="best"), data, simulator).target_return == 6.0
    assert (scales.action_low.tolist(), scales.action_high.tolist()) == ([-1.0] * sizes[1], [1.0] * sizes[1])
    experiment = RlExperiment(task, data, simulator, seed=0)
    found = experiment.evaluate(experiment.build_model().eval(), "test", START)
    assert math.isfinite(found["score"])
    facts = experiment.facts()
    assert facts["environment"] == environment
    assert facts["observation_size"] == (27 if sizes[0] == 111 else sizes[0])
    assert set(facts["simulator"]) == {"gymnasium", "mujoco"}


def test_test_episodes_are_fresh_and_always_the_same() -> None:
    experiment = open_experiment(model="random", episodes=3)
    model = experiment.build_model()
    assert isinstance(model, RandomPolicy)

    def returns(part: Any, update: int) -> list[float]:
        found = experiment.evaluate(model, part, Moment(update, 0))
        return [found[f"return_{number}"] for number in range(3)]

    assert returns("test", 5) == returns("test", 9)
    assert returns("validation", 5) == returns("validation", 5)
    assert len({tuple(returns(*place)) for place in (("test", 0), ("validation", 0), ("validation", 5))}) == 3


def test_runs_are_repeatable() -> None:
    curves = [fit(open_experiment(model=model), seed=0).status.curve for model in ("aaren", "aaren")]
    first, second = ([look["validation"]["return"] for look in curve] for curve in curves)
    assert first == second


def test_behaviour_is_what_the_data_collected() -> None:
    experiment = open_experiment(model="behaviour", max_trajectories=None)
    found = experiment.evaluate(experiment.build_model(), "test", START)
    assert found["return"] == pytest.approx(float(experiment.data.returns.mean()))
    assert found["return_std"] == pytest.approx(float(experiment.data.returns.std(ddof=1)))


def test_it_learns_to_balance() -> None:
    options = {"updates": 80, "evaluations": 1, "episode_steps": 100, "episodes": 4, "batch_size": 16}
    options["optimiser"] = OptimiserConfig(name="adamw", learning_rate=3e-3)
    experiment = open_experiment(dataset="cartpole", max_trajectories=None, **options)
    fitted = fit(experiment, seed=0)
    random = open_experiment(dataset="cartpole", model="random", **options)
    learned = experiment.evaluate(fitted.model, "test", START)["return"]
    assert learned > 1.5 * random.evaluate(random.build_model(), "test", START)["return"]


def test_a_failing_environment_is_in_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gymnasium.envs.classic_control import PendulumEnv

    from aaren.engine.config import RunConfig
    from aaren.engine.run import train

    begun = []

    class Fragile(PendulumEnv):
        def __init__(self) -> None:
            super().__init__()
            begun.append(self)
            self.left = 3 if len(begun) == 2 else 10**9

        def step(self, action: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise RuntimeError("a joint came off")
            return super().step(action)

    monkeypatch.setitem(
        gymnasium.registry,
        "Fragile-v0",
        gymnasium.envs.registration.EnvSpec("Fragile-v0", entry_point=Fragile, max_episode_steps=20),
    )
    run = RunConfig(setting="rl", task=config(environment="Fragile-v0", evaluations=1, episodes=3))
    train(run, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["status"] == "finished"
    assert record["metrics"]["best"]["failed"] == 1.0
    assert record["metrics"]["best"]["return_1"] is None
    assert record["metrics"]["best"]["return_2"] < 0.0
    assert record["metrics"]["test"]["failed"] == 0.0
    assert record["facts"]["failures"] == [
        {"part": "validation", "update": 4, "episode": 1, "error": "step 2: RuntimeError: a joint came off"}
    ]


def test_data_of_another_environment_is_refused() -> None:
    with pytest.raises(
        DataError,
        match="pendulum has observations of 3 numbers and actions of 1 number; CartPole-v1 has 4 and 2 disc",
    ):
        open_experiment(environment="CartPole-v1")
    with pytest.raises(DataError, match="cartpole has observations of 4 numbers and 2 discrete actions"):
        open_experiment(dataset="cartpole", environment="Acrobot-v1")


def test_own_files(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mine.npz")
    with pytest.raises(ConfigError, match="does not say which environment it is of"):
        open_experiment(data_file=str(path))
    experiment = open_experiment(data_file=str(path), environment="Pendulum-v1")
    assert len(experiment.data) == 3
    assert list(experiment.checksums()) == ["mine.npz"]
    assert SETTING.cell(experiment.config)["dataset"] == "mine"


@pytest.mark.parametrize(
    "named", ["trap_module:Trap-v0", "trap_module:Pendulum-v1", "Trap-v0", "nowhere", "a" * 10_000]
)
def test_a_file_chooses_no_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """Only `--import` may name a module; a file may name what Gymnasium itself has."""
    (tmp_path / "trap_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(
        gymnasium.registry, "Trap-v0", gymnasium.envs.registration.EnvSpec("Trap-v0", "trap_module:Trap")
    )
    record = json.dumps({"settings": {"environment": named}})
    path = write_npz(tmp_path / "mine.npz", record=np.array(record))
    with pytest.raises(
        ConfigError, match=r"Nothing is imported because a file names it.*--set environment=ID"
    ):
        open_experiment(data_file=str(path))
    assert "trap_module" not in sys.modules
    with pytest.raises(ConfigError, match="name it yourself: `aaren --import trap_module"):
        open_experiment(data_file=str(path), environment="trap_module:Trap-v0")  # may be a file's word too
    assert "trap_module" not in sys.modules
    record = json.dumps({"settings": {"environment": "Pendulum-v1"}})
    path = write_npz(tmp_path / "mine.npz", record=np.array(record))
    assert open_experiment(data_file=str(path)).simulator.environment_id == "Pendulum-v1"


def test_an_environment_that_cannot_be_built_is_told(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mine.npz")
    with pytest.raises(ConfigError, match=r"GymV26Environment-v0 cannot be built \(\w+: "):
        open_experiment(data_file=str(path), environment="GymV26Environment-v0")


def test_faults_of_own_files_are_said(tmp_path: Path) -> None:
    rewards = np.ones(12)
    rewards[7] = np.nan
    path = write_npz(tmp_path / "nan.npz", rewards=rewards)
    with pytest.raises(DataError, match=r"rewards, row 7: not a finite number"):
        open_experiment(data_file=str(path), environment="Pendulum-v1")
    path = write_npz(tmp_path / "short.npz", timeouts=np.isin(np.arange(12), (3, 4, 11)))
    with pytest.raises(
        DataError, match=r"trajectory 1 \(row 4\) has one step; at least 2 are needed.*--set drop_short=true"
    ):
        open_experiment(data_file=str(path), environment="Pendulum-v1")
    kept = open_experiment(data_file=str(path), environment="Pendulum-v1", drop_short=True)
    assert len(kept.data) == 2
    with pytest.raises(ConfigError, match="longest episode has 4 steps, the timestep table 3 rows"):
        open_experiment(
            data_file=str(write_npz(tmp_path / "long.npz")),
            environment="Pendulum-v1",
            network=RlNetworkConfig(width=16, num_heads=2, num_layers=1, max_steps=3),
        )


def test_d4rl_files_and_minari_datasets_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = pytest.importorskip("h5py")
    arrays = np.load(write_npz(tmp_path / "mine.npz"))
    with h5py.File(tmp_path / "mine.hdf5", "w") as file:
        for name in arrays:
            file[name] = arrays[name]
    experiment = open_experiment(data_file=str(tmp_path / "mine.hdf5"), environment="Pendulum-v1")
    assert experiment.data.state_size == 3
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    buffers = [
        EpisodeBuffer(
            id=number,
            observations=np.zeros((7, 4), dtype=np.float32),
            actions=np.arange(6) % 2,
            rewards=np.ones(6),
            terminations=np.arange(6) == 5,
            truncations=np.zeros(6, dtype=bool),
        )
        for number in range(3)
    ]
    about = dict.fromkeys(("algorithm_name", "author", "author_email", "code_permalink", "description"), "-")
    minari.create_dataset_from_buffers(
        "cartpole/mine-v0", buffers, env="CartPole-v1", eval_env="CartPole-v1", **about
    )
    experiment = open_experiment(data_file="cartpole/mine-v0")
    assert experiment.simulator.environment_id == "CartPole-v1"
    assert experiment.checksums() == {}
    with pytest.raises(DataError, match=r"no Minari dataset 'cartpole/other-v0'.*minari download"):
        open_experiment(data_file="cartpole/other-v0")


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gymnasium", None)
    with pytest.raises(MissingDependencyError, match=r"needs 'gymnasium': pip install 'aaren\[rl\]'"):
        open_experiment()


def test_faults_of_a_config_come_together() -> None:
    with pytest.raises(
        ConfigError, match="name either a dataset or a data_file; batch_size must be at least"
    ):
        RlConfig(batch_size=0)
    with pytest.raises(ConfigError, match="return_scale must be above 0, or none; got -1"):
        config(return_scale=-1.0)
    with pytest.raises(ConfigError, match="num_heads must divide width"):
        config(network=RlNetworkConfig(num_heads=3))
