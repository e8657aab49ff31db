"""Models of whole tasks, each with its config beside it, and how they are kept on disk."""

from aaren.models.artifact import load_model, save_model
from aaren.models.classifier import Classifier
from aaren.models.classifier_config import ClassifierConfig
from aaren.models.classifier_state import ClassifierState
from aaren.models.decision_config import DecisionModelConfig
from aaren.models.decision_model import DecisionModel
from aaren.models.decision_state import DecisionState, PolicyState, Steps
from aaren.models.event_distribution import Events, NextEvent
from aaren.models.event_model import EventModel, EventModelConfig
from aaren.models.event_references import EventReference, EventReferenceConfig
from aaren.models.event_state import EventState
from aaren.models.event_stream import EventStream
from aaren.models.forecaster import Forecaster, ForecasterConfig
from aaren.models.policy_session import PolicySession
from aaren.models.reference_classifiers import ReferenceClassifier, ReferenceClassifierConfig
from aaren.models.reference_forecasters import (
    LinearForecaster,
    ReferenceConfig,
    RepeatLast,
    SeasonalNaive,
    SeasonalNaiveConfig,
)
from aaren.models.reference_policies import BehaviourPolicy, RandomPolicy, ReferencePolicyConfig
from aaren.models.session import Session
from aaren.models.streaming_forecaster import StreamingForecaster, StreamingForecasterConfig
from aaren.models.streaming_state import StreamingState

__all__ = [
    "BehaviourPolicy",
    "Classifier",
    "ClassifierConfig",
    "ClassifierState",
    "DecisionModel",
    "DecisionModelConfig",
    "DecisionState",
    "EventModel",
    "EventModelConfig",
    "EventReference",
    "EventReferenceConfig",
    "EventState",
    "EventStream",
    "Events",
    "Forecaster",
    "ForecasterConfig",
    "LinearForecaster",
    "NextEvent",
    "PolicySession",
    "PolicyState",
    "RandomPolicy",
    "ReferenceClassifier",
    "ReferenceClassifierConfig",
    "ReferenceConfig",
    "ReferencePolicyConfig",
    "RepeatLast",
    "SeasonalNaive",
    "SeasonalNaiveConfig",
    "Session",
    "Steps",
    "StreamingForecaster",
    "StreamingForecasterConfig",
    "StreamingState",
    "load_model",
    "save_model",
]
