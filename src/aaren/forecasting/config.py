"""ForecastingConfig: which series, model and horizon, trained how. The defaults are the published ones."""

from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from aaren.engine.optimiser import OptimiserConfig
from aaren.errors import ConfigError, too_small
from aaren.forecasting.data import PAST_STEPS
from aaren.forecasting.lagged import LagForecaster, LagForecasterConfig
from aaren.forecasting.model import Forecaster, ForecasterConfig
from aaren.forecasting.references import (
    LinearForecaster,
    ReferenceConfig,
    RepeatLast,
    SeasonalNaive,
    SeasonalNaiveConfig,
)
from aaren.forecasting.ridge import LAG_STEPS
from aaren.forecasting.streaming import StreamingForecaster, StreamingForecasterConfig

ModelName: TypeAlias = Literal[
    "aaren",
    "transformer",
    "streaming",
    "streaming-carried",
    "naive-last",
    "naive-seasonal",
    "linear",
    "linear-336",
    "lagged-base",
]
WindowModel: TypeAlias = Forecaster | RepeatLast | SeasonalNaive | LinearForecaster
REFERENCES = (
    "naive-last",
    "naive-seasonal",
    "linear",
    "linear-336",
    "lagged-base",
)  # fitted when they are built, not by the training loop


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkConfig:
    """The sizes that all trained models share, and where Aaren goes (see `ForecasterConfig`)."""

    width: int = 512
    num_heads: int = 8
    ff_width: int = 2048
    num_encoder_layers: int = 2
    num_decoder_layers: int = 1
    dropout: float = 0.1
    cross_attention: Literal["softmax", "aaren", "none"] = "softmax"


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamingConfig:
    """What concerns only the streaming models."""

    half_life_steps: float = 96.0  # of the running mean and variance
    decay: Literal["learned"] | None = None
    train_steps: int = PAST_STEPS  # rows of a training window, fewer where the series is short
    num_targets: int = 1  # rows of it after which the forecast is scored, from past_steps on, evenly spread
    judged: Literal["restarted", "carried"] = "restarted"  # at every window, or once for a whole part

    def __post_init__(self) -> None:
        """Report numbers that cannot be."""
        if self.train_steps < 1 or self.num_targets < 1:
            raise ConfigError(
                f"train_steps and num_targets must be at least 1; got {self.train_steps} and "
                f"{self.num_targets}."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastingConfig:
    """One forecasting experiment: a dataset (or a file), a model, a horizon."""

    dataset: str = ""  # a name of the catalogue
    data_file: str = ""  # or the user's own CSV file, first column a date
    target: str = ""  # own file: the column to put last
    only_target: bool = False  # own file: forecast that column alone
    allow_irregular: bool = False  # own file: accept gaps, repeated dates and sentinel codes
    model: ModelName = "aaren"
    horizon: int = 96  # rows to forecast
    past_steps: int = PAST_STEPS  # rows to forecast from
    label_steps: int = 48  # the last of them, which the decoder starts with
    season_steps: int = 24  # naive-seasonal: rows in a season
    network: NetworkConfig = field(default_factory=NetworkConfig)
    streaming: StreamingConfig = field(default_factory=StreamingConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    batch_size: int = 32
    epochs: int = 10  # at most
    updates_per_epoch: int | None = None  # at most; an epoch is then a random part of the windows
    halve_every: int | None = None  # updates between two halvings of the rate; none: an epoch's, as published
    validation_windows: int | None = None  # at most, evenly spaced, always the same; none: as published
    patience: int = 3  # epochs without improvement on the validation part; a tie is an improvement
    last_batch: Literal["protocol", "keep"] = "protocol"  # drop the last partial batch, or keep it

    def __post_init__(self) -> None:
        """Report every fault of these settings together."""
        faults = []
        if bool(self.dataset) == bool(self.data_file):
            faults.append("name either a dataset or a data_file")
        if self.only_target and not self.target:
            faults.append("only_target needs a target column")
        faults += too_small(self, horizon=1, past_steps=1, batch_size=1, epochs=1, patience=1)
        faults += [
            f"{name} must be at least 1 or none; got {getattr(self, name)}"
            for name in ("updates_per_epoch", "halve_every", "validation_windows")
            if getattr(self, name) is not None and getattr(self, name) < 1
        ]
        if self.is_streaming and self.streaming.train_steps < self.past_steps:
            faults.append(
                f"streaming.train_steps must be at least past_steps, {self.past_steps}; got "
                f"{self.streaming.train_steps}"
            )
        if faults:
            raise ConfigError("; ".join(faults) + ".")
        self.model_config(num_series=1)  # its own checks

    @property
    def is_streaming(self) -> bool:
        """Tell whether the model is trained to go along a stream."""
        return self.model in ("streaming", "streaming-carried")

    @property
    def is_reference(self) -> bool:
        """Tell whether it is fitted at once, or not at all."""
        return self.model in REFERENCES

    @property
    def window_steps(self) -> int:
        """Return the rows of past that the model is given; some references need more than the others."""
        longer = {"naive-seasonal": self.season_steps} | dict.fromkeys(
            ("linear-336", "lagged-base"), LAG_STEPS
        )
        return max(self.past_steps, longer.get(self.model, 0))

    def model_config(
        self, num_series: int
    ) -> (
        ForecasterConfig
        | StreamingForecasterConfig
        | LagForecasterConfig
        | ReferenceConfig
        | SeasonalNaiveConfig
    ):
        """Return the config of the model for so many series; of a lagged one what is known before its fit."""
        network = self.network
        if self.model == "lagged-base":
            return LagForecasterConfig(
                num_series=num_series, horizon_steps=self.horizon, lag_steps=self.window_steps
            )
        if self.is_streaming:
            return StreamingForecasterConfig(
                num_series=num_series,
                horizon_steps=self.horizon,
                half_life_steps=self.streaming.half_life_steps,
                width=network.width,
                num_heads=network.num_heads,
                ff_width=network.ff_width,
                num_layers=network.num_encoder_layers,
                dropout=network.dropout,
                decay=self.streaming.decay,
            )
        if self.model == "naive-seasonal":
            return SeasonalNaiveConfig(
                num_series=num_series,
                horizon_steps=self.horizon,
                past_steps=self.window_steps,
                season_steps=self.season_steps,
            )
        if self.model in REFERENCES:
            return ReferenceConfig(
                num_series=num_series, horizon_steps=self.horizon, past_steps=self.window_steps
            )
        return ForecasterConfig(
            num_series=num_series,
            horizon_steps=self.horizon,
            past_steps=self.past_steps,
            label_steps=self.label_steps,
            mixer="softmax" if self.model == "transformer" else "aaren",
            **asdict(network),
        )

    def build_model(self, num_series: int) -> WindowModel | StreamingForecaster | LagForecaster:
        """Build the untrained model for so many series."""
        config = self.model_config(num_series)
        if isinstance(config, LagForecasterConfig):
            return LagForecaster(config)
        if isinstance(config, StreamingForecasterConfig):
            return StreamingForecaster(config)
        if isinstance(config, ForecasterConfig):
            return Forecaster(config)
        if isinstance(config, SeasonalNaiveConfig):
            return SeasonalNaive(config)
        return RepeatLast(config) if self.model == "naive-last" else LinearForecaster(config)
