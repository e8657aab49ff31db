"""Classes for a user's new data: a `.ts` file in and a CSV file out, or row by row.

New cases are brought to the scale of TRAIN, also where training let each part have its own: one case has no
statistics.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aaren.classification.baselines import ReferenceClassifier
from aaren.classification.config import ClassificationConfig
from aaren.classification.data import complete, normalise_across_channels, read_ts, require_steps
from aaren.classification.model import Classifier, ClassifierConfig
from aaren.datasets.numbers import narrow
from aaren.engine.experiment import Json
from aaren.errors import ConfigError, DataError, ShapeError
from aaren.files.atomic import write_text
from aaren.stream.pool import Streamable
from aaren.stream.rows import RowPath, numbers


def predict_file(
    model: nn.Module,
    config: ClassificationConfig,
    preprocessing: Mapping[str, Json],
    *,
    source: Path,
    target: Path,
) -> None:
    """Classify every case of `source` and write class and probabilities to `target`.

    Args:
        model: a trained classifier.
        config: of its run.
        preprocessing: its run's classes, means and standard deviations.
        source: a `.ts` file; the labels in it are ignored.
        target: where the rows go: number of the case, class, probability of every class.
    """
    allow_irregular = bool(config.dataset) or config.allow_irregular
    cases = complete(read_ts(source), name=str(source), allow_irregular=allow_irregular)
    require_steps([len(case) for case in cases], where=str(source))
    classes = [str(name) for name in cast("Sequence[str]", preprocessing["classes"])]
    rows = []
    for number, case in enumerate(cases):
        where = f"{source}, case {number}"
        if isinstance(model, Classifier):
            require_room(model.config, len(case), where=where)
        ready = scaled(case, preprocessing, where=where)
        try:
            probabilities = classify(model, ready)
        except ShapeError as error:
            raise ShapeError(f"{where}: {error}") from error
        shown = (f"{value:.6g}" for value in probabilities)
        rows.append([str(number), classes[int(np.argmax(probabilities))], *shown])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["case", "class", *(f"probability of {name}" for name in classes)])
    writer.writerows(rows)
    write_text(target, text.getvalue())


def scaled(
    case: NDArray[np.float64], preprocessing: Mapping[str, Json], *, where: str
) -> NDArray[np.float64]:
    """Bring a case (t, channels) to the scale of TRAIN."""
    mean, deviation = (
        np.array(cast("Sequence[float]", preprocessing[name]), dtype=np.float64)
        for name in ("mean", "deviation")
    )
    if case.shape[1] != len(mean):
        raise DataError(
            f"{where}: {case.shape[1]} channel(s); the model was trained on {len(mean)}. Give the same "
            f"channels in the same order."
        )
    found: NDArray[np.float64] = (case - mean) / (deviation + np.finfo(np.float64).eps)
    if preprocessing["is_normalised_across_channels"]:
        found = normalise_across_channels(found)
    narrow(
        found, name=f"{where}, scaled as in training (step, channel)", cure="Correct or leave out the case."
    )
    return found


def require_room(config: ClassifierConfig, steps: int, *, where: str) -> None:
    """Raise if a series is longer than the model has weights for."""
    if config.head == "flattened" and steps > config.length:
        raise ShapeError(
            f"{where}: the flattened head has weights for {config.length} steps, the length it was built "
            f"for; this series has {steps}. Cut it, or train with head='pooled' (--set head=pooled), which "
            f"takes any length."
        )


@torch.no_grad()
def classify(model: nn.Module, case: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability of every class for one scaled case (t, channels)."""
    scores = model(torch.from_numpy(case).float().unsqueeze(0)).squeeze(0).double()
    probabilities = scores if isinstance(model, ReferenceClassifier) else scores.softmax(-1)
    return cast("NDArray[np.float64]", probabilities.numpy())


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

    def example(self, time: str) -> dict[str, Any]:
        del time
        return {"values": [0.0] * self.num_channels}

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
