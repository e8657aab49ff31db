"""Attention as an RNN (Feng et al., 2024): parallel like a Transformer in training, recurrent in use.

The table of contents. Names are imported when first used, so that `import aaren` and the help are instant.
"""

import importlib

from aaren.version import __version__

_HOME = {
    "AarenAttention": "aaren.nn",
    "AarenClassifier": "aaren.classification.estimator",
    "AarenError": "aaren.errors",
    "AarenForecaster": "aaren.classification.estimator",
    "Block": "aaren.nn",
    "Classifier": "aaren.models_dropped",
    "DecisionModel": "aaren.models_dropped",
    "Encoder": "aaren.nn",
    "EncoderConfig": "aaren.nn",
    "EventModel": "aaren.models_dropped",
    "Forecaster": "aaren.models_dropped",
    "ScanState": "aaren.ops",
    "SoftmaxAttention": "aaren.nn",
    "attend": "aaren.ops",
    "load_model": "aaren.models_dropped",
    "save_model": "aaren.models_dropped",
    "scan_attention": "aaren.ops",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    """Import a public name from its home at first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'aaren' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
