"""Act from recorded episodes (offline reinforcement learning): data, models, sessions, training."""

from typing import TYPE_CHECKING

from aaren.lazy import lazy_names

if TYPE_CHECKING:
    from aaren.rl.estimator import AarenPolicy, PolicyEvaluation
    from aaren.rl.model import DecisionModel, DecisionModelConfig, DecisionState, PolicyState, Steps
    from aaren.rl.references import (
        BehaviourPolicy,
        ClonePolicy,
        ClonePolicyConfig,
        RandomPolicy,
        ReferencePolicyConfig,
    )
    from aaren.rl.session import PolicySession
    from aaren.rl.setting import SETTING

__all__ = [
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
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "aaren.rl.estimator": ("AarenPolicy", "PolicyEvaluation"),
        "aaren.rl.model": (
            "DecisionModel",
            "DecisionModelConfig",
            "DecisionState",
            "PolicyState",
            "Steps",
        ),
        "aaren.rl.references": (
            "BehaviourPolicy",
            "ClonePolicy",
            "ClonePolicyConfig",
            "RandomPolicy",
            "ReferencePolicyConfig",
        ),
        "aaren.rl.session": ("PolicySession",),
        "aaren.rl.setting": ("SETTING",),
    },
)
