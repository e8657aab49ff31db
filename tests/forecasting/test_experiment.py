import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aaren.engine.loop import fit
from aaren.engine.plan import Moment
from aaren.engine.presets import make_run
from aaren.engine.run import train
from aaren.engine.setting import find_setting
from aaren.engine.use import evaluate_run
from aaren.errors import ConfigError, DataError
from aaren.forecasting.batches import load
from aaren.forecasting.config import ForecastingConfig, NetworkConfig, StreamingConfig
from aaren.forecasting.experiment import ForecastingExperiment, StreamingExperiment
from aaren.forecasting.model import Forecaster
from aaren.forecasting.references import LinearForecaster
from aaren.forecasting.setting import SETTING

TINY = NetworkConfig(width=8, num_heads=2, ff_width=16, num_encoder_layers=1)
NOW = Moment(0, 0)


@pytest.fixture(autouse=True)
def _no_real_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AAREN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def config(**options: Any) -> ForecastingConfig:
    return ForecastingConfig(**{"dataset": "seasonal", "network": TINY, **options})


def opened(**options: Any) -> ForecastingExperiment:
    experiment = SETTING.open(config(**options), seed=1)
    assert isinstance(experiment, ForecastingExperiment)
    return experiment


def test_the_published_plan() -> None:
    experiment = opened()
    plan = experiment.plan
    windows = 2_800 - 96 - 96 + 1
    assert plan.updates_per_epoch == plan.evaluate_every == windows // 32
    assert plan.max_updates == 10 * plan.updates_per_epoch
    assert [plan.schedule(Moment(0, epoch)) for epoch in range(5)] == [1.0, 1.0, 0.5, 0.25, 0.125]
    assert plan.patience == 3
    assert plan.selects.ties
    assert plan.clip_norm is None
    optimiser = experiment.build_optimiser(experiment.build_model())
    assert type(optimiser) is torch.optim.Adam
    group = optimiser.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (1e-4, (0.9, 0.999), 1e-8, 0)


def test_epochs_may_be_shortened() -> None:
    plan = opened(updates_per_epoch=5, epochs=4).plan
    assert (plan.updates_per_epoch, plan.max_updates) == (5, 20)


@pytest.mark.parametrize(("model", "mixer"), [("aaren", "aaren"), ("transformer", "softmax")])
def test_the_two_models_differ_in_the_mixer_alone(model: str, mixer: str) -> None:
    built = opened(model=model).build_model()
    assert isinstance(built, Forecaster)
    assert built.config.mixer == mixer
    assert built.config == opened(model="aaren").build_model().config.__class__(
        **{**{name: getattr(built.config, name) for name in built.config.__slots__}, "mixer": mixer}
    )


def test_the_loss_is_the_mean_squared_error_and_falls() -> None:
    experiment = opened()
    torch.manual_seed(0)
    model = experiment.build_model()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    batch = next(experiment.batches(0))
    losses = []
    for _ in range(15):
        loss = experiment.loss(model, batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_test_metrics_are_over_every_window_step_and_series() -> None:
    experiment = opened(model="naive-last", horizon=24)
    found = experiment.evaluate(experiment.build_model(), "test", NOW)
    data = load("seasonal")
    windows = data.windows("test", horizon_steps=24)
    assert len(windows) == 800 - 24 + 1
    difference = (windows.past[:, -1:] - windows.future).double()
    assert found["mse"] == pytest.approx(difference.square().mean().item(), rel=1e-6)
    assert found["mae"] == pytest.approx(difference.abs().mean().item(), rel=1e-6)


def test_validation_looks_at_full_batches_of_a_shuffled_order() -> None:
    experiment = opened()
    first, second = (experiment.chosen("validation", Moment(0, epoch)) for epoch in (0, 1))
    assert len(first) == len(second) == (400 - 96 + 1) // 32 * 32
    assert not torch.equal(first, second)
    assert len(opened(last_batch="keep").chosen("validation", NOW)) == 305
    assert torch.equal(experiment.chosen("test", NOW), torch.arange(705))


def test_a_part_of_the_validation_windows_is_evenly_spaced_and_always_the_same() -> None:
    experiment = opened(validation_windows=40)
    first, second = (experiment.chosen("validation", Moment(9 * epoch, epoch)) for epoch in (0, 7))
    assert torch.equal(first, second)
    assert torch.equal(first, opened(validation_windows=40).chosen("validation", NOW))
    assert (len(first), first[0], first[-1]) == (40, 0, 400 - 96)
    assert first.diff().min() >= (400 - 96) // 39
    assert first.diff().max() <= (400 - 96) // 39 + 1
    assert torch.equal(
        opened(validation_windows=10_000).chosen("validation", NOW), torch.arange(400 - 96 + 1)
    )


def test_the_rate_can_fall_with_the_updates_however_short_an_epoch_is() -> None:
    for updates in (5, 20):
        schedule = opened(updates_per_epoch=updates, halve_every=20).plan.schedule
        rates = [schedule(Moment(update, update // updates)) for update in (0, 39, 40, 60)]
        assert rates == [1.0, 1.0, 0.5, 0.25]
    as_published = opened(updates_per_epoch=5).plan.schedule
    assert [as_published(Moment(0, epoch)) for epoch in range(4)] == [1.0, 1.0, 0.5, 0.25]


def test_the_linear_reference_is_fitted_by_least_squares() -> None:
    experiment = opened(model="linear", horizon=24)
    model = experiment.build_model()
    assert isinstance(model, LinearForecaster)
    windows = experiment.parts["train"]
    inputs = windows.past.transpose(1, 2).reshape(-1, 96).double()
    targets = windows.future.transpose(1, 2).reshape(-1, 24).double()
    inputs = torch.cat([inputs, torch.ones(len(inputs), 1).double()], dim=1)
    expected = torch.linalg.lstsq(inputs, targets).solution
    torch.testing.assert_close(model.weight.detach().double(), expected[:-1].T, rtol=0, atol=1e-3)
    last = opened(model="naive-last", horizon=24)
    with torch.no_grad():
        found = experiment.evaluate(model, "test", NOW)["mse"]
        assert found < last.evaluate(last.build_model(), "test", NOW)["mse"]


@pytest.mark.parametrize("model", ["naive-last", "naive-seasonal", "linear"])
def test_references_go_through_the_engine_without_updates(model: str) -> None:
    fitted = fit(opened(model=model, horizon=24), seed=0)
    assert fitted.status.update == 0
    assert fitted.status.best is not None
    assert fitted.status.best["validation"]["mse"] > 0.0


@pytest.mark.parametrize("model", ["aaren", "transformer", "streaming"])
def test_models_go_through_the_engine(model: str) -> None:
    experiment = opened(model=model, horizon=24, epochs=2, updates_per_epoch=4, validation_windows=32)
    fitted = fit(experiment, seed=0)
    assert fitted.status.update == 8
    assert len(fitted.status.curve) == 2


def test_a_season_longer_than_the_past_has_the_same_test_targets() -> None:
    plain, long = opened(model="naive-last"), opened(model="naive-seasonal", season_steps=144)
    assert long.parts["test"].past_steps == 144
    assert torch.equal(plain.parts["test"].future, long.parts["test"].future)


def test_streaming_restarted_and_carried_agree_on_the_first_window() -> None:
    experiment = opened(model="streaming", horizon=24)
    assert isinstance(experiment, StreamingExperiment)
    torch.manual_seed(0)
    model = experiment.build_model().eval()
    with torch.no_grad():
        found = experiment.evaluate(model, "test", NOW)
        assert set(found) == {"mse", "mae", "carried_mse", "carried_mae"}
        assert set(experiment.evaluate(model, "validation", NOW)) == {"mse", "mae"}
        windows = experiment.parts["test"]
        forecasts, _ = model(windows.values.unsqueeze(0), windows.marks.unsqueeze(0))
        first = experiment.forecast(model, windows.take(torch.tensor([0])))
    torch.testing.assert_close(first, forecasts[:, 95], rtol=1e-4, atol=1e-5)
    due = forecasts[0, 95 : 95 + len(windows)]
    expected = (due - windows.future).double().square().mean().item()
    assert found["carried_mse"] == pytest.approx(expected, rel=1e-5)


def test_streaming_learns_from_several_rows_of_a_long_window() -> None:
    experiment = opened(
        model="streaming-carried",
        horizon=24,
        batch_size=4,
        streaming=StreamingConfig(decay="learned", train_steps=200, num_targets=3, judged="carried"),
    )
    assert isinstance(experiment, StreamingExperiment)
    assert experiment.targets.tolist() == [95, 147, 199]
    batch = next(experiment.batches(0))
    assert batch.past.shape == (4, 200, 7)
    torch.manual_seed(0)
    model = experiment.build_model().eval()
    rows = torch.cat([batch.past, batch.future], dim=1)
    forecasts, _ = model(batch.past, batch.past_marks)
    expected = [
        (forecasts[:, place] - rows[:, place + 1 : place + 25]).square().mean() for place in (95, 147, 199)
    ]
    torch.testing.assert_close(experiment.loss(model, batch), torch.stack(expected).mean())
    with torch.no_grad():
        found = experiment.evaluate(model, "test", NOW)
    assert set(found) == {"mse", "mae", "restarted_mse", "restarted_mae"}


def test_long_training_windows_shrink_to_short_series() -> None:
    experiment = opened(
        model="streaming-carried", horizon=24, streaming=StreamingConfig(train_steps=5_000, num_targets=4)
    )
    assert experiment.facts()["train_steps"] == 2_800 - 24 - 32 + 1
    assert len(list(experiment.batches(0))) == 1


def test_predictions_are_test_windows_evenly_spread() -> None:
    experiment = opened(horizon=24)
    with torch.no_grad():
        kept = experiment.predictions(experiment.build_model().eval())
    assert kept["forecast"].shape == kept["truth"].shape == (256, 24, 7)
    assert kept["window"][[0, -1]].tolist() == [0, 776]


def test_what_a_record_learns_of_the_data() -> None:
    experiment = opened()
    assert experiment.facts()["test_windows"] == 705
    assert experiment.checksums() == {}
    assert experiment.preprocessing()["columns"] == list(load("seasonal").columns)
    assert SETTING.cell(config()) == {"dataset": "seasonal", "horizon": 96, "model": "aaren"}
    assert find_setting("forecasting") is SETTING


def write_csv(path: Path, rows: int, *, change: dict[tuple[int, int], str] | None = None) -> Path:
    hours = np.datetime64("2024-01-01T00") + np.arange(rows) * np.timedelta64(1, "h")
    lines = ["when,load,price,flat"]
    for row, hour in enumerate(hours):
        cells = [f"{100 + 10 * math.sin(row / 4):.4f}", f"{-row * 0.01:.4f}", "5"]
        for (place, column), text in (change or {}).items():
            if place == row:
                cells[column] = text
        lines.append(",".join([str(hour).replace("T", " ") + ":00", *cells]))
    path.write_text("\n".join(lines) + "\n")
    return path


def own(path: Path, **options: Any) -> ForecastingConfig:
    return ForecastingConfig(**{"data_file": str(path), "network": TINY, "horizon": 24, **options})


def test_a_users_own_file_from_data_to_forecast(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "mine.csv", 1_000)
    experiment = SETTING.open(own(path, model="linear"), seed=0)
    assert experiment.facts()["constant_columns"] == ["flat"]
    assert list(experiment.checksums()) == ["mine.csv"]
    model = experiment.build_model()
    new = tmp_path / "new.csv"
    header, *rows = write_csv(tmp_path / "full.csv", 1_200).read_text().splitlines()
    order = [0, 2, 1, 3]  # other order of columns
    new.write_text(
        "\n".join(",".join(line.split(",")[place] for place in order) for line in [header, *rows[:1_100]])
    )
    target = tmp_path / "forecast.csv"
    SETTING.predict(model, own(path, model="linear"), experiment.preprocessing(), source=new, target=target)
    lines = target.read_text().splitlines()
    assert lines[0] == "date,load,price,flat"
    assert len(lines) == 25
    assert lines[1].startswith("2024-02-15 20:00:00,")
    truth = np.array([[float(cell) for cell in line.split(",")[1:]] for line in rows[1_100:1_124]])
    found = np.array([[float(cell) for cell in line.split(",")[1:]] for line in lines[1:]])
    assert np.abs(found[:, 0] - truth[:, 0]).max() < 1.0  # a sine of amplitude 10
    assert np.abs(found[:, 2] - 5.0).max() < 0.05


@pytest.mark.parametrize("model", ["aaren", "streaming", "streaming-carried", "naive-seasonal"])
def test_every_kind_of_model_predicts(model: str, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "mine.csv", 1_000)
    settings = own(path, model=model, streaming=StreamingConfig(judged="carried"))
    experiment = SETTING.open(settings, seed=0)
    target = tmp_path / "forecast.csv"
    SETTING.predict(
        experiment.build_model(), settings, experiment.preprocessing(), source=path, target=target
    )
    assert len(target.read_text().splitlines()) == 25


def test_bad_input_is_named(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "mine.csv", 1_000)
    with pytest.raises(
        DataError, match=r"mine.csv: its validation part is too short \(1000 rows: 700 train.*200 = 296"
    ):
        SETTING.open(own(path, horizon=200), seed=0)
    short = write_csv(tmp_path / "short.csv", 60)
    with pytest.raises(DataError, match=r"short.csv: its train part is too short \(60 rows"):
        SETTING.open(own(short), seed=0)
    for text, what in (("nan", "the value is missing"), ("inf", r"got .*inf")):
        bad = write_csv(tmp_path / "bad.csv", 300, change={(41, 1): text})
        with pytest.raises(DataError, match=rf"line 43, column 'price': expected a finite number; {what}"):
            SETTING.open(own(bad), seed=0)
    experiment = SETTING.open(own(path), seed=0)
    other = tmp_path / "other.csv"
    other.write_text(path.read_text().replace("price", "prize"))
    with pytest.raises(
        DataError, match=r"other.csv: no column 'price'; the model was trained on load, price, flat"
    ):
        SETTING.predict(
            experiment.build_model(),
            own(path),
            experiment.preprocessing(),
            source=other,
            target=tmp_path / "x",
        )
    with pytest.raises(
        DataError, match=r"short.csv: 60 rows are too few: the model forecasts from the last 96"
    ):
        SETTING.predict(
            experiment.build_model(),
            own(path),
            experiment.preprocessing(),
            source=short,
            target=tmp_path / "x",
        )


def test_faults_of_a_config_come_together() -> None:
    with pytest.raises(
        ConfigError, match=r"either a dataset or a data_file; only_target needs a target.*horizon must be"
    ):
        ForecastingConfig(only_target=True, horizon=0)
    with pytest.raises(ConfigError, match="train_steps must be at least past_steps, 96; got 50"):
        config(model="streaming", streaming=StreamingConfig(train_steps=50))
    with pytest.raises(ConfigError, match="updates_per_epoch must be at least 1 or none; got 0"):
        config(updates_per_epoch=0)
    with pytest.raises(ConfigError, match="num_heads must divide width"):
        config(network=NetworkConfig(width=8, num_heads=3))
    with pytest.raises(ConfigError, match="num_targets must be at least 1"):
        StreamingConfig(num_targets=0)


def test_figures_are_three_small_windows() -> None:
    experiment = opened(horizon=24)
    with torch.no_grad():
        model = experiment.build_model().eval()
        drawn, kept = experiment.figures(model), experiment.predictions(model)
    assert drawn["column"] == experiment.data.columns[-1]
    windows = drawn["windows"]
    assert [set(window) for window in windows] == [{"number", "past", "truth", "forecast"}] * 3
    assert {len(window["past"]) for window in windows} == {96}
    assert {len(window["forecast"]) for window in windows} == {24}
    batch = experiment.parts["test"].take(torch.tensor([windows[1]["number"]]))
    torch.testing.assert_close(torch.tensor(windows[1]["truth"]), batch.future[0, :, -1], atol=6e-4, rtol=0.0)
    assert windows[0]["number"] > 0
    assert windows[-1]["number"] < int(kept["window"][-1])


def test_the_record_holds_the_checksum_of_what_was_read(tmp_path: Path) -> None:
    """Also when the file changes meanwhile; later uses compare it."""
    source = tmp_path / "mine.csv"
    hours = np.datetime64("2024-01-01T00", "s") + np.arange(900) * np.timedelta64(3600, "s")
    lines = [f"{hour},{value:.4f}" for hour, value in zip(hours, np.sin(np.arange(900) / 4), strict=True)]
    text = "\n".join(["date,load", *lines]) + "\n"
    source.write_text(text)
    run = make_run(
        "forecasting", model="linear", profile="smoke", data_file=str(source), assignments=["horizon=24"]
    )
    assert isinstance(run.task, ForecastingConfig)
    experiment = SETTING.open(run.task, seed=0)
    source.write_text(text.replace("0.2474", "0.2475"))
    assert experiment.checksums() == {"mine.csv": hashlib.sha256(text.encode()).hexdigest()}
    source.write_text(text)
    train(run, tmp_path / "run")
    evaluate_run(tmp_path / "run")
    source.write_text(text.replace("0.2474", "0.2475"))
    with pytest.warns(UserWarning, match=r"run was trained on other data: mine\.csv has sha256"):
        evaluate_run(tmp_path / "run")
