"""Classify labelled series, whole or while they arrive: data, models, streams, training, estimator."""

from typing import TYPE_CHECKING

from aaren.lazy import lazy_names

if TYPE_CHECKING:
    from aaren.classification.baselines import ReferenceClassifier, ReferenceClassifierConfig
    from aaren.classification.estimator import AarenClassifier
    from aaren.classification.model import Classifier, ClassifierConfig, ClassifierState
    from aaren.classification.random_convolutions import (
        FeatureClassifier,
        FeatureClassifierConfig,
        FeatureClassifierState,
    )
    from aaren.classification.setting import SETTING

__all__ = [
    "SETTING",
    "AarenClassifier",
    "Classifier",
    "ClassifierConfig",
    "ClassifierState",
    "FeatureClassifier",
    "FeatureClassifierConfig",
    "FeatureClassifierState",
    "ReferenceClassifier",
    "ReferenceClassifierConfig",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "aaren.classification.estimator": ("AarenClassifier",),
        "aaren.classification.random_convolutions": (
            "FeatureClassifier",
            "FeatureClassifierConfig",
            "FeatureClassifierState",
        ),
        "aaren.classification.model": (
            "Classifier",
            "ClassifierConfig",
            "ClassifierState",
        ),
        "aaren.classification.baselines": (
            "ReferenceClassifier",
            "ReferenceClassifierConfig",
        ),
        "aaren.classification.setting": ("SETTING",),
    },
)
