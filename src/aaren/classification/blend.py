"""BlendedClassifier: the mean of the probabilities of a FeatureClassifier and of a network, as one model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from aaren.classification.features import FeatureClassifier, FeatureClassifierConfig, FeatureClassifierState
from aaren.classification.model import (
    Classifier,
    ClassifierConfig,
    ClassifierSession,
    ClassifierState,
    classify_raw,
)
from aaren.errors import ConfigError
from aaren.nn.mixer import frozen_copy
from aaren.nn.state import State, fingerprint_around
from aaren.shapes import Mask, TokenMask
from aaren.stream.whole import WholeStep, scaled_by


@dataclass(frozen=True, kw_only=True, slots=True)
class BlendedClassifierConfig:
    """The configs of both parts, for the same channels and classes."""

    features: FeatureClassifierConfig
    network: ClassifierConfig

    def __post_init__(self) -> None:
        """Report parts that do not fit together."""
        if not self.network.is_causal or self.network.head != "pooled":
            raise ConfigError("a blend needs a network that streams: embedding='causal', head='pooled'.")
        for name in ("num_channels", "num_classes"):
            if getattr(self.features, name) != getattr(self.network, name):
                raise ConfigError(f"both parts of a blend must have the same {name}.")

    @property
    def num_channels(self) -> int:
        """Return the numbers in a step."""
        return self.features.num_channels

    @property
    def length(self) -> int:
        """Return the steps of the longest series of training."""
        return self.features.length


class _BlendedParts(NamedTuple):
    features: FeatureClassifierState
    network: ClassifierState


class BlendedClassifierState(_BlendedParts, State):
    """The states of both parts."""

    __slots__ = ()

    @property
    def position(self) -> Tensor:
        """Return the steps so far, (b,)."""
        return self.features.position


class BlendedClassifier(nn.Module):
    """Average two classifiers; the scores are logarithms of the mean probabilities."""

    config_type: ClassVar[type[BlendedClassifierConfig]] = BlendedClassifierConfig
    preprocessing: Mapping[str, Any] | None = None  # of its run: classes and scales, which `stream` applies
    is_causal = True

    def __init__(self, config: BlendedClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.features = FeatureClassifier(config.features)
        self.network = Classifier(config.network)

    def forward(self, values: Tensor, *, mask: Mask | None = None) -> Tensor:
        """Score complete series (b, t, channels), padding at the end."""
        return _mean(self.features(values, mask=mask), self.network(values, mask=mask))

    def score_prefixes(self, values: Tensor, steps: Tensor, *, mask: Mask | None = None) -> Tensor:
        """Score prefixes of so many steps (b, n), (b, n, classes)."""
        parts = (self.features, self.network)
        return _mean(*(part.score_prefixes(values, steps, mask=mask) for part in parts))

    def score_steps(
        self, values: Tensor, state: BlendedClassifierState | None = None, *, mask: Mask | None = None
    ) -> tuple[Tensor, BlendedClassifierState]:
        """Take in many samples at once and score the classes after every one of them."""
        before = state or self.init_state(values.shape[0], device=values.device)
        features, one = self.features.score_steps(values, before.features, mask=mask)
        network, two = self.network.score_steps(values, before.network, mask=mask)
        return _mean(features, network), BlendedClassifierState(one, two)

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> BlendedClassifierState:
        """Return the state before the first sample."""
        return BlendedClassifierState(
            self.features.init_state(batch_size, dtype=dtype, device=device),
            self.network.init_state(batch_size, dtype=dtype, device=device),
        )

    def step(
        self, row: Tensor, state: BlendedClassifierState, *, mask: TokenMask | None = None
    ) -> tuple[Tensor, BlendedClassifierState]:
        """Take in one sample per stream, (b, channels), and return the scores after it, (b, classes)."""
        features, one = self.features.step(row, state.features, mask=mask)
        network, two = self.network.step(row, state.network, mask=mask)
        return _mean(features, network), BlendedClassifierState(one, two)

    def read(self, state: BlendedClassifierState) -> Tensor:
        """Return the scores of each stream as it stands, (b, classes)."""
        return _mean(self.features.read(state.features), self.network.read(state.network))

    def finish(self, state: BlendedClassifierState) -> Tensor:
        """Return the scores (b, classes) of series that end here."""
        return _mean(self.features.finish(state.features), self.network.finish(state.network))

    def stream(
        self, batch_size: int | None = None, *, engine: str = "auto"
    ) -> "ClassifierSession[BlendedClassifierState]":
        """Open a session that holds the state: push samples, read class probabilities."""
        raw = scaled_by(self.fold(), self.preprocessing, self.config.features.num_channels)
        return ClassifierSession(raw, batch_size=batch_size, engine=engine)

    def whole_step(self) -> WholeStep:
        """Return the step from a raw sample to class probabilities."""
        return classify_raw(self, self.config.features.num_channels)

    def fold(self) -> "BlendedClassifier":
        """Return a frozen copy for inference; states pass between it and the original."""
        folded = frozen_copy(self)
        folded.network = self.network.fold()
        return folded

    def fingerprint(self) -> str:
        """Return a short name of these weights, to be kept with saved states."""
        return fingerprint_around(self.network, self)


def blend(features: FeatureClassifier, network: Classifier) -> BlendedClassifier:
    """Make one model of two fitted ones."""
    model = BlendedClassifier(BlendedClassifierConfig(features=features.config, network=network.config))
    model.features, model.network = features, network
    return model.eval()


def _mean(one: Tensor, other: Tensor) -> Tensor:
    """Return the logarithm of the mean of two predictions' probabilities."""
    both = torch.stack([one.log_softmax(-1), other.log_softmax(-1)])
    return both.logsumexp(0) - torch.log(torch.tensor(2.0, dtype=both.dtype, device=both.device))
