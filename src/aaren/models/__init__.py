"""Models of whole tasks, each with its config beside it, and how they are kept on disk."""

from aaren.models.artifact import load_model, save_model
from aaren.models.forecaster import Forecaster, ForecasterConfig
from aaren.models.reference_forecasters import (
    LinearForecaster,
    ReferenceConfig,
    RepeatLast,
    SeasonalNaive,
    SeasonalNaiveConfig,
)
from aaren.models.session import Session
from aaren.models.streaming_forecaster import StreamingForecaster, StreamingForecasterConfig
from aaren.models.streaming_state import StreamingState

__all__ = [
    "Forecaster",
    "ForecasterConfig",
    "LinearForecaster",
    "ReferenceConfig",
    "RepeatLast",
    "SeasonalNaive",
    "SeasonalNaiveConfig",
    "Session",
    "StreamingForecaster",
    "StreamingForecasterConfig",
    "StreamingState",
    "load_model",
    "save_model",
]
