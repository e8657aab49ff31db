"""Time series for forecasting: read, split, standardised and cut into windows."""

from aaren.data.forecasting.loading import (
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
