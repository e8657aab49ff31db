"""Attention as an RNN (Feng et al., 2024): parallel like a Transformer in training, recurrent in use.

Names are imported when first used, so that `import aaren` and the help are instant.
"""

from typing import TYPE_CHECKING

from aaren.lazy import lazy_names
from aaren.version import __version__

if TYPE_CHECKING:
    from aaren.classification import AarenClassifier, Classifier
    from aaren.errors import AarenError
    from aaren.events import AarenEventForecaster, EventModel
    from aaren.forecasting import AarenForecaster, Forecaster
    from aaren.nn import AarenAttention, Block, Encoder, EncoderConfig, SoftmaxAttention
    from aaren.ops import ScanState, attend, scan_attention
    from aaren.rl import AarenPolicy, DecisionModel
    from aaren.stream.pool import StreamPool
    from aaren.stream.saved import load_model, save_model

__all__ = [
    "AarenAttention",
    "AarenClassifier",
    "AarenError",
    "AarenEventForecaster",
    "AarenForecaster",
    "AarenPolicy",
    "Block",
    "Classifier",
    "DecisionModel",
    "Encoder",
    "EncoderConfig",
    "EventModel",
    "Forecaster",
    "ScanState",
    "SoftmaxAttention",
    "StreamPool",
    "__version__",
    "attend",
    "load_model",
    "save_model",
    "scan_attention",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "aaren.classification": (
            "AarenClassifier",
            "Classifier",
        ),
        "aaren.errors": ("AarenError",),
        "aaren.events": (
            "AarenEventForecaster",
            "EventModel",
        ),
        "aaren.forecasting": (
            "AarenForecaster",
            "Forecaster",
        ),
        "aaren.nn": (
            "AarenAttention",
            "Block",
            "Encoder",
            "EncoderConfig",
            "SoftmaxAttention",
        ),
        "aaren.ops": (
            "ScanState",
            "attend",
            "scan_attention",
        ),
        "aaren.rl": (
            "AarenPolicy",
            "DecisionModel",
        ),
        "aaren.stream.pool": ("StreamPool",),
        "aaren.stream.saved": (
            "load_model",
            "save_model",
        ),
    },
)
