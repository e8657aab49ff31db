"""The public names, pinned: widening the list is a decision."""

import importlib

import pytest

import aaren

PUBLIC = {
    "aaren": {
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
    },
    "aaren.ops": {"ScanState", "attend", "combine", "decay", "read", "scan_attention", "step", "update"},
    "aaren.nn": {
        "GRU",
        "LSTM",
        "WKV",
        "AarenAttention",
        "Block",
        "Conv",
        "Encoder",
        "EncoderConfig",
        "EncoderState",
        "FoldedAttention",
        "KVCache",
        "LinearAttention",
        "MinGRU",
        "Mixer",
        "Retention",
        "SoftmaxAttention",
        "TensorOnly",
    },
    "aaren.forecasting": {
        "SETTING",
        "AarenForecaster",
        "BankForecaster",
        "BankForecasterConfig",
        "BankState",
        "Forecaster",
        "ForecasterConfig",
        "LagForecaster",
        "LagForecasterConfig",
        "LagState",
        "LinearForecaster",
        "ReferenceConfig",
        "RepeatLast",
        "SeasonalNaive",
        "SeasonalNaiveConfig",
        "StreamingForecaster",
        "StreamingForecasterConfig",
        "StreamingState",
    },
    "aaren.classification": {
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
    },
    "aaren.events": {
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
    },
    "aaren.rl": {
        "SETTING",
        "AarenPolicy",
        "BehaviourPolicy",
        "ClonePolicy",
        "ClonePolicyConfig",
        "DecisionModel",
        "DecisionModelConfig",
        "DecisionState",
        "PolicyEvaluation",
        "PolicySession",
        "PolicyState",
        "RandomPolicy",
        "ReferencePolicyConfig",
        "Steps",
    },
}


@pytest.mark.parametrize("package", sorted(PUBLIC))
def test_public_names(package):
    module = importlib.import_module(package)
    assert set(module.__all__) == PUBLIC[package]
    assert all(hasattr(module, name) for name in module.__all__)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="module 'aaren' has no attribute 'Aaren'"):
        aaren.Aaren  # noqa: B018 - reading it is the test


def test_dir_lists_the_public_names():
    assert dir(aaren) == sorted(aaren.__all__)
