"""Time series for forecasting: read, split, standardised and cut into windows."""

from aaren.forecasting.data import (
    HORIZONS,
    PAST_STEPS,
    TARGET,
    ForecastingData,
    Loaders,
    load,
    measure,
    open_file,
    prepare,
)

__all__ = [
    "HORIZONS",
    "PAST_STEPS",
    "TARGET",
    "ForecastingData",
    "Loaders",
    "load",
    "measure",
    "open_file",
    "prepare",
]
