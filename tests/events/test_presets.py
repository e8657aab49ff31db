"""The three profiles of event runs."""

import json
from pathlib import Path
from typing import get_args

import pytest

from aaren.engine.presets import make_run
from aaren.errors import ConfigError
from aaren.events.config import EventNetworkConfig, EventsConfig, ModelName
from aaren.events.presets import grid

RESULTS = Path(__file__).parents[2] / "results"


def task(dataset: str = "sin", **options: object) -> EventsConfig:
    found = make_run("events", dataset, **options).task
    assert isinstance(found, EventsConfig)
    return found


def test_the_paper_profile_is_the_published_one() -> None:
    found = task(profile="paper")
    assert found.network == EventNetworkConfig(encoding="times")
    assert (found.network.width, found.network.num_layers, found.network.num_heads) == (64, 2, 1)
    optimiser = found.optimiser
    assert (optimiser.name, optimiser.learning_rate, optimiser.eps) == ("adam", 5e-4, 1e-5)
    assert (found.batch_size, found.epochs, found.patience) == (16, 6_000, 500)
    assert (found.selection, found.censoring, found.time_scale) == ("rmse", "protocol", 1.0)


def test_the_encoding_is_what_the_validation_likelihood_chose(tmp_path) -> None:
    chosen = json.loads((RESULTS / "events" / "encodings.json").read_text())["rows"]
    assert {row["dataset"] for row in chosen} >= {"sin", "mimic", "taxi-tritpp", "uber-sample"}
    for row in chosen:
        better = min(row["validation_nll"], key=row["validation_nll"].get)
        for profile in ("smoke", "cpu", "paper"):
            assert task(row["dataset"], profile=profile).network.encoding == better
    assert task("hawkes").network.encoding == "gaps"
    assert make_run("events", data_file=str(tmp_path / "mine.csv")).task.network.encoding == "gaps"
    assert task(assignments=["encoding=gaps"]).network.encoding == "gaps"


def test_the_cpu_profile_differs_in_epochs_and_selection() -> None:
    paper, cpu = task(profile="paper"), task(profile="cpu")
    different = [
        name for name in EventsConfig.__dataclass_fields__ if getattr(paper, name) != getattr(cpu, name)
    ]
    assert different == ["selection", "epochs", "patience"]
    assert cpu.selection == "nll"


def test_wiki_is_run_at_paper_alone() -> None:
    at_cpu, at_paper = (
        {name for group in grid(profile) for name in group.datasets} for profile in ("cpu", "paper")
    )
    assert at_paper - at_cpu == {"wiki"}


def test_both_models_differ_in_one_word() -> None:
    aaren, transformer = (task(model=model) for model in ("aaren", "transformer"))
    left, right = (found.model_config(num_marks=1, time_scale=1.0) for found in (aaren, transformer))
    assert [name for name in left.__dataclass_fields__ if getattr(left, name) != getattr(right, name)] == [
        "mixer"
    ]


@pytest.mark.parametrize("model", get_args(ModelName))
def test_every_model_has_every_profile(model: str) -> None:
    for profile in ("smoke", "cpu", "paper"):
        assert task(model=model, profile=profile).model == model


def test_seconds_and_own_files_count_in_mean_gaps(tmp_path) -> None:
    assert task("stackoverflow-partial").time_scale == "mean-gap"
    own = make_run("events", data_file=str(tmp_path / "mine.csv")).task
    assert own.time_scale == "mean-gap"
    assert task(assignments=["time_scale=3.5"]).time_scale == 3.5
    assert task(assignments=["time_scale=mean-gap"]).time_scale == "mean-gap"


def test_unknown_names_are_said() -> None:
    with pytest.raises(ConfigError, match="unknown model 'rnn'"):
        task(model="rnn")
    with pytest.raises(
        ConfigError, match="ETTh1 is a dataset of forecasting; for events: aaren data list events"
    ):
        task("ETTh1")
