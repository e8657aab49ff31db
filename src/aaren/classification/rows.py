"""Rows of `aaren stream` for classifiers: the channels of a sample in, the probability of each class out."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from torch import nn

from aaren.engine.experiment import Json
from aaren.errors import ConfigError
from aaren.stream.pool import Streamable
from aaren.stream.rows import RowPath, numbers


class SampleRows(RowPath):
    """`{"values": [1.0, 2.5]}` in; `{"class": "walk", "probability": 0.8, "probabilities": {...}}` out."""

    def __init__(self, model: nn.Module, preprocessing: Mapping[str, Json]) -> None:
        if not hasattr(model, "stream") or preprocessing["is_normalised_across_channels"]:
            raise ConfigError(
                "this run has no stream: it reads whole series, or scales each by itself. Train --model "
                "aaren-causal or aaren-features."
            )
        super().__init__(cast("Streamable", model))
        self.names = tuple(str(name) for name in cast("Sequence[str]", preprocessing["classes"]))
        self.mean = np.array(cast("Sequence[float]", preprocessing["mean"]), dtype=np.float64)
        deviation = np.array(cast("Sequence[float]", preprocessing["deviation"]), dtype=np.float64)
        self.deviation = deviation + np.finfo(np.float64).eps  # as `aaren predict`

    def read(self, row: Mapping[str, Any], time: str) -> tuple[Any, dict[str, Any]]:
        del time
        raw = np.array(numbers(row, "values", len(self.mean)))
        return ((raw - self.mean) / self.deviation).tolist(), {}

    def answer(self, found: Any, row: Mapping[str, Any], time: str) -> dict[str, Any]:
        del row, time
        probabilities = found.tolist()
        best = int(np.argmax(probabilities))
        return {
            "class": self.names[best],
            "probability": probabilities[best],
            "probabilities": dict(zip(self.names, probabilities, strict=True)),
        }

    def choice(self, answer: Mapping[str, Any]) -> tuple[str, float]:
        return answer["class"], answer["probability"]
