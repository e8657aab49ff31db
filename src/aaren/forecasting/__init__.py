"""Forecast a multivariate series: data, models, streams, training, estimator."""

from typing import TYPE_CHECKING

from aaren.lazy import lazy_names

if TYPE_CHECKING:
    from aaren.forecasting.bank_forecaster import BankForecaster, BankForecasterConfig, BankState
    from aaren.forecasting.estimator import AarenForecaster
    from aaren.forecasting.lagged import LagForecaster, LagForecasterConfig, LagState
    from aaren.forecasting.model import Forecaster, ForecasterConfig
    from aaren.forecasting.references import (
        LinearForecaster,
        ReferenceConfig,
        RepeatLast,
        SeasonalNaive,
        SeasonalNaiveConfig,
    )
    from aaren.forecasting.setting import SETTING
    from aaren.forecasting.streaming import StreamingForecaster, StreamingForecasterConfig, StreamingState

__all__ = [
    "SETTING",
    "AarenForecaster",
    "BankForecaster",
    "BankForecasterConfig",
    "BankState",
    "Forecaster",
    "ForecasterConfig",
    "LagForecaster",
    "LagForecasterConfig",
    "LagState",
    "LinearForecaster",
    "ReferenceConfig",
    "RepeatLast",
    "SeasonalNaive",
    "SeasonalNaiveConfig",
    "StreamingForecaster",
    "StreamingForecasterConfig",
    "StreamingState",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "aaren.forecasting.bank_forecaster": ("BankForecaster", "BankForecasterConfig", "BankState"),
        "aaren.forecasting.estimator": ("AarenForecaster",),
        "aaren.forecasting.lagged": (
            "LagForecaster",
            "LagForecasterConfig",
            "LagState",
        ),
        "aaren.forecasting.model": (
            "Forecaster",
            "ForecasterConfig",
        ),
        "aaren.forecasting.references": (
            "LinearForecaster",
            "ReferenceConfig",
            "RepeatLast",
            "SeasonalNaive",
            "SeasonalNaiveConfig",
        ),
        "aaren.forecasting.setting": ("SETTING",),
        "aaren.forecasting.streaming": (
            "StreamingForecaster",
            "StreamingForecasterConfig",
            "StreamingState",
        ),
    },
)
