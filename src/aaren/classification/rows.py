"""Rows of `aaren stream` for classifiers: the channels of a sample in, the probability of each class out."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
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
        model.preprocessing = preprocessing  # type: ignore[assignment]  # its stream scales
        super().__init__(cast("Streamable", model))
        self.num_channels = len(cast("Sequence[float]", preprocessing["mean"]))
        self.names = tuple(str(name) for name in cast("Sequence[str]", preprocessing["classes"]))

    def read(self, row: Mapping[str, Any], time: str) -> tuple[Any, dict[str, Any]]:
        del time
        return numbers(row, "values", self.num_channels), {}

    def answers(
        self, found: Sequence[Any], rows: Sequence[Mapping[str, Any]], time: str
    ) -> list[dict[str, Any]]:
        del rows, time
        every = torch.stack(list(found))
        best = every.argmax(-1).tolist()
        return [
            {
                "class": self.names[place],
                "probability": probabilities[place],
                "probabilities": dict(zip(self.names, probabilities, strict=True)),
            }
            for place, probabilities in zip(best, every.tolist(), strict=True)
        ]

    def choice(self, answer: Mapping[str, Any]) -> tuple[str, float]:
        return answer["class"], answer["probability"]
