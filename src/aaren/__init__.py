"""Attention as an RNN (Feng et al., 2024): parallel like a Transformer in training, recurrent in use.

The table of contents. Names are imported when first used, so that `import aaren` and the help are instant.
"""

import importlib

from aaren.version import __version__

_HOME = {
    "AarenAttention": "aaren.nn",
    "AarenClassifier": "aaren.estimators",
    "AarenError": "aaren.errors",
    "AarenForecaster": "aaren.estimators",
    "Block": "aaren.nn",
    "Classifier": "aaren.models",
    "DecisionModel": "aaren.models",
    "Encoder": "aaren.nn",
    "EncoderConfig": "aaren.nn",
    "EventModel": "aaren.models",
    "Forecaster": "aaren.models",
    "ScanState": "aaren.ops",
    "SoftmaxAttention": "aaren.nn",
    "attend": "aaren.ops",
    "load_model": "aaren.models",
    "save_model": "aaren.models",
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
