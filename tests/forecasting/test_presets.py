from pathlib import Path
from typing import Any, get_args

import pytest

from aaren.engine.config import RunConfig
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.presets import make_run
from aaren.errors import ConfigError
from aaren.forecasting.config import ForecastingConfig, ModelName, NetworkConfig
from aaren.forecasting.data import seasonal, write_series
from aaren.forecasting.experiment import ForecastingExperiment, open_data
from aaren.forecasting.presets import published_epochs, season_steps
from aaren.forecasting.references import LinearForecaster


def preset(dataset: str = "", *, horizon: int = 96, **options: Any) -> RunConfig:
    return make_run("forecasting", dataset, assignments=[f"horizon={horizon}"], **options)


def task(*given: str, **options: object) -> ForecastingConfig:
    found = preset(*given, **options).task
    assert isinstance(found, ForecastingConfig)
    return found


def test_the_paper_profile_is_the_protocol() -> None:
    run = preset("ETTh1", model="aaren", profile="paper", seed=3, horizon=336)
    assert run.profile == "paper"
    assert run.seed == 3
    assert run.task == ForecastingConfig(dataset="ETTh1", horizon=336)
    paper = ForecastingConfig(dataset="ETTh1")
    assert (paper.past_steps, paper.label_steps, paper.batch_size, paper.epochs, paper.patience) == (
        96,
        48,
        32,
        10,
        3,
    )
    assert paper.network == NetworkConfig(
        width=512, num_heads=8, ff_width=2048, num_encoder_layers=2, num_decoder_layers=1, dropout=0.1
    )
    assert paper.optimiser == OptimiserConfig(name="adam", learning_rate=1e-4)
    assert paper.last_batch == "protocol"


def test_some_published_scripts_end_earlier() -> None:
    assert published_epochs("Weather", 96) == 3
    assert published_epochs("Weather", 192) == 10
    assert published_epochs("Exchange", 336) == 1
    assert published_epochs("Exchange", 96) == 10
    assert {published_epochs("Traffic", horizon) for horizon in (96, 192, 336, 720)} == {3}
    assert task("weather", profile="paper", horizon=96).epochs == 3


def test_every_cell_of_cpu_has_ten_short_epochs_and_a_rate_that_falls_with_updates() -> None:
    found = [
        task(name, profile="cpu", horizon=horizon)
        for name in ("weather", "traffic-20")
        for horizon in (96, 720)
    ]
    assert {(one.epochs, one.halve_every, one.validation_windows) for one in found} == {(10, 200, 512)}
    assert task("ETTh1", profile="paper").halve_every is None


@pytest.mark.parametrize("profile", ["cpu", "smoke", "paper"])
@pytest.mark.parametrize("model", get_args(ModelName))
def test_every_model_has_every_profile(model: str, profile: str) -> None:
    found = task("ETTm1", model=model, profile=profile, horizon=192)
    assert found.model == model
    assert found.season_steps == 96
    assert (found.streaming.judged == "carried") == (model == "streaming-carried")


def test_the_two_models_share_everything_else() -> None:
    for profile in ("cpu", "paper"):
        aaren, transformer = (
            preset("ETTh2", model=model, profile=profile, horizon=720).task
            for model in ("aaren", "transformer")
        )
        changed = {name for name in aaren.__slots__ if getattr(aaren, name) != getattr(transformer, name)}
        assert changed == {"model"}


def test_own_files_have_the_season_of_their_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, texts, expected in (
        ("quarters.csv", ["2024-01-01 00:00", "2024-01-01 00:15", "2024-01-01 00:30"], 96),
        ("days.csv", ["2024-01-01", "2024-01-02", "2024-01-03"], 7),
        ("months.csv", ["2024-01-01", "2024-02-01", "2024-03-01"], 12),
    ):
        (tmp_path / name).write_text("\n".join(["date,x", *(f"{text},1" for text in texts)]))
        assert season_steps("", str(tmp_path / name)) == expected


def test_the_horizon_is_a_choice_of_the_preset() -> None:
    run = make_run("forecasting", "ETTh1", profile="cpu", assignments=["horizon=192", "width=32"])
    assert isinstance(run.task, ForecastingConfig)
    assert run.task.horizon == 192
    assert run.task.network.width == 32
    assert run.task.updates_per_epoch == task("ETTh1", horizon=192).updates_per_epoch


def test_small_runs_take_one_core() -> None:
    assert preset("ETTh1", profile="cpu").engine.threads == 1
    assert preset("ETTh1", profile="paper").engine.threads == 0


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="unknown model 'aren'; did you mean 'aaren'"):
        preset("ETTh1", model="aren")
    with pytest.raises(ConfigError, match="unknown dataset 'ETTh3'; did you mean 'ETTh"):
        preset("ETTh3")
    with pytest.raises(ConfigError, match="wiki is a dataset of events"):
        preset("wiki")
    with pytest.raises(ConfigError, match="horizon must be at least 1; got 0"):
        preset("ETTh1", horizon=0)


def test_an_own_file_of_1200_rows_trains(tmp_path: Path) -> None:
    source = write_series(seasonal(rows=1_200, num_series=2), tmp_path / "own.csv")
    config = task("", data_file=str(source), profile="smoke")
    experiment = ForecastingExperiment(config, open_data(config), seed=0)
    assert len(experiment.loaders.validation) >= 1
    assert experiment.plan.max_updates >= 1


def test_the_linear_row_of_336_sees_more_of_the_past() -> None:
    config = task("ETTh1", model="linear-336")
    assert config.window_steps == 336
    model = config.build_model(7)
    assert isinstance(model, LinearForecaster)
    assert model.weight.shape == (96, 336)
