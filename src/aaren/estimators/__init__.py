"""Estimators: fit and predict on the data frames that people have."""

from aaren.estimators.forecaster import AarenForecaster

__all__ = ["AarenForecaster"]
