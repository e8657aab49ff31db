"""Predict the next event of a sequence at irregular times: data, models, streams, training."""

from typing import TYPE_CHECKING

from aaren.lazy import lazy_names

if TYPE_CHECKING:
    from aaren.events.distribution import Events, NextEvent
    from aaren.events.estimator import AarenEventForecaster
    from aaren.events.forecaster import EventState, EventStream
    from aaren.events.live import EventSession
    from aaren.events.model import EventModel, EventModelConfig
    from aaren.events.references import EventReference, EventReferenceConfig
    from aaren.events.setting import SETTING

__all__ = [
    "SETTING",
    "AarenEventForecaster",
    "EventModel",
    "EventModelConfig",
    "EventReference",
    "EventReferenceConfig",
    "EventSession",
    "EventState",
    "EventStream",
    "Events",
    "NextEvent",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "aaren.events.distribution": (
            "Events",
            "NextEvent",
        ),
        "aaren.events.estimator": ("AarenEventForecaster",),
        "aaren.events.live": ("EventSession",),
        "aaren.events.forecaster": (
            "EventState",
            "EventStream",
        ),
        "aaren.events.model": (
            "EventModel",
            "EventModelConfig",
        ),
        "aaren.events.references": (
            "EventReference",
            "EventReferenceConfig",
        ),
        "aaren.events.setting": ("SETTING",),
    },
)
