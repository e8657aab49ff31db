"""The setting as the engine sees it; everything heavy is imported when it is asked for."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from aaren.datasets.dataset import Dataset, Fact
from aaren.engine.setting import Setting

if TYPE_CHECKING:
    from torch import nn

    from aaren.engine.config import EngineConfig
    from aaren.engine.experiment import Experiment, Json
    from aaren.forecasting.batches import ForecastBatch
    from aaren.forecasting.config import ForecastingConfig
    from aaren.stream.rows import RowPath


class ForecastingSetting(Setting["ForecastingConfig", "ForecastBatch"]):
    """Forecasting as the paper's section 4.3 and the Time-Series-Library do it."""

    name = "forecasting"
    grid_place = 4
    suffixes = (".csv",)
    saved_models = (
        "Forecaster",
        "BankForecaster",
        "LagForecaster",
        "StreamingForecaster",
        "RepeatLast",
        "SeasonalNaive",
        "LinearForecaster",
    )
    reports = ("test.mse", "test.mae")
    protocols = MappingProxyType({"cpu": 2, "smoke": 2})  # docs/forecasting.md says what each number means

    @property
    def config_type(self) -> "type[ForecastingConfig]":
        from aaren.forecasting.config import ForecastingConfig

        return ForecastingConfig

    def engine(self, profile: str) -> "EngineConfig":
        from aaren.engine.config import EngineConfig

        return EngineConfig(threads=0 if profile == "paper" else 1)  # small models gain nothing from more

    def make_experiment(self, config: "ForecastingConfig", *, seed: int) -> "Experiment[ForecastBatch]":
        from aaren.forecasting import experiment

        kind = experiment.ForecastingExperiment
        if config.is_streaming:
            kind = experiment.StreamingExperiment
        elif config.model == "lagged-base":
            kind = experiment.LagExperiment
        return kind(config, experiment.open_data(config), seed=seed)

    def cell(self, config: "ForecastingConfig") -> Mapping[str, str | int]:
        dataset = config.dataset or Path(config.data_file).stem
        return {"dataset": dataset, "horizon": config.horizon, "model": config.model}

    def check_file(self, path: Path, *, allow_irregular: bool = False) -> Mapping[str, Fact]:
        from aaren.forecasting.data import read_series

        series = read_series(path, allow_irregular=allow_irregular)
        return {
            "rows": len(series),
            "series": len(series.columns),
            "first": str(series.dates[0]),
            "last": str(series.dates[-1]),
            **series.irregular,
        }

    def make(self, dataset: Dataset, *, seed: int) -> Path:
        from aaren.files import folders
        from aaren.forecasting.data import seasonal, write_series

        rows, num_series = int(dataset.facts["rows"]), int(dataset.facts["series"])
        target = folders.place(dataset.setting, dataset.files[0])
        return write_series(seasonal(rows=rows, num_series=num_series, seed=seed), target)

    def shape(self, fact: Callable[[str], str], facts: Mapping[str, Fact]) -> str:
        del facts
        return f"{fact('rows')} rows × {fact('series')}"

    def stream_rows(self, model: "nn.Module", preprocessing: "Mapping[str, Json]") -> "RowPath":
        from aaren.forecasting.predict import ForecastRows

        return ForecastRows(model, preprocessing)


SETTING = ForecastingSetting()
