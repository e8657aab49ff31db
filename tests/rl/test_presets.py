"""The three profiles of rl runs."""

from dataclasses import replace
from typing import get_args

import pytest

from aaren.engine.presets import make_run
from aaren.errors import ConfigError
from aaren.rl.config import ModelName, RlConfig, RlNetworkConfig
from aaren.rl.presets import CONTEXTS


def task(dataset: str = "hopper-medium-regen", **options: object) -> RlConfig:
    found = make_run("rl", dataset, **options).task
    assert isinstance(found, RlConfig)
    return found


def test_the_paper_profile_is_the_published_one() -> None:
    found = task(profile="paper")
    assert found.network == RlNetworkConfig(width=512, num_heads=4, num_layers=4, dropout=0.1)
    assert (found.context, found.context_steps, found.sampling) == ("window", 20, "trajectory")
    optimiser = found.optimiser
    assert (optimiser.name, optimiser.learning_rate, optimiser.weight_decay) == ("adamw", 1e-4, 1e-4)
    assert (found.batch_size, found.updates, found.warm_up, found.clip_norm) == (64, 20_000, 10_000, 0.25)
    assert (found.evaluations, found.episodes, found.episode_steps) == (200, 10, None)


def test_the_cpu_profile_is_smaller_and_shorter() -> None:
    paper, cpu = task(profile="paper"), task(profile="cpu")
    different = [name for name in RlConfig.__dataclass_fields__ if getattr(paper, name) != getattr(cpu, name)]
    changed = ["network", "asks_for", "optimiser", "warm_up", "rate_falls", "batch_size"]
    changed += ["updates", "evaluations", "episodes"]
    assert different == changed
    assert (cpu.evaluations, cpu.episodes) == (4, 30)
    assert (paper.network.timestep_std, cpu.network.timestep_std) == (1.0, 0.02)
    assert (paper.network.dropout, cpu.network.dropout) == (0.1, 0.0)


def test_both_models_differ_in_one_word() -> None:
    sizes = {"state_size": 11, "action_size": 3, "actions": "box", "return_scale": 1.0, "target_return": 1.0}
    aaren, transformer = (task(model=model).model_config(**sizes) for model in ("aaren", "transformer"))
    assert replace(aaren, mixer="softmax") == transformer


@pytest.mark.parametrize("model", get_args(ModelName))
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_model_has_every_profile_and_context(model: str, context: str) -> None:
    for profile in ("smoke", "cpu", "paper"):
        found = task(model=model, profile=profile, assignments=[f"context={context}"])
        assert (found.model, found.context) == (model, context)


def test_unknown_names_are_said() -> None:
    with pytest.raises(ConfigError, match="unknown model 'dt'"):
        task(model="dt")
    with pytest.raises(ConfigError, match="unknown context 'sliding'"):
        task(assignments=["context=sliding"])
    with pytest.raises(ConfigError, match="ETTh1 is a dataset of forecasting; for rl: aaren data list rl"):
        task("ETTh1")
