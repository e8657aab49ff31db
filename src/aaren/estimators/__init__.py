"""Estimators: fit and predict on the data frames and panels that people have.

Imported when first used: the classifier needs scikit-learn, the forecaster does not.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aaren.estimators.classifier import AarenClassifier
    from aaren.estimators.forecaster import AarenForecaster

__all__ = ["AarenClassifier", "AarenForecaster"]

_HOME = {"AarenClassifier": "classifier", "AarenForecaster": "forecaster"}


def __getattr__(name: str) -> object:
    """Import an estimator from its module at first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'aaren.estimators' has no attribute {name!r}")
    return getattr(importlib.import_module(f"aaren.estimators.{_HOME[name]}"), name)
