"""Rows of `aaren stream` for event models: the time and kind of an event in, when and what comes next out."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn

from aaren.engine.experiment import Json
from aaren.errors import DataError
from aaren.events.forecaster import EventForecaster, stack_events
from aaren.events.predict import QUANTILES
from aaren.stream.rows import RowPath, field, number

TIMES = ("mean", *(f"q{round(100 * level):02}" for level in QUANTILES))  # of the next event, in an answer


class EventRows(RowPath):
    """`{"time": 3.5, "mark": "buy"}` in; the next one's time (mean, quantiles) and likeliest mark out."""

    time = "time"

    def __init__(self, model: nn.Module, preprocessing: Mapping[str, Json]) -> None:
        assert isinstance(model, EventForecaster)
        super().__init__(model)
        known = tuple(str(name) for name in cast("Sequence[str]", preprocessing["mark_names"]))
        self.has_names = bool(known)
        self.names = known or tuple(str(kind) for kind in range(model.num_marks))
        self._places = {name: place for place, name in enumerate(self.names)}

    def read(self, row: Mapping[str, Any], time: str) -> tuple[Any, dict[str, Any]]:
        when = number(row, time)
        if len(self.names) == 1:
            return when, {"mark": 0}
        mark = str(field(row, "mark"))
        place = self._places.get(mark)
        if place is None:
            raise DataError(f"unknown mark {mark!r}; the run knows {', '.join(self.names[:12])}.")
        return when, {"mark": place}

    def answers(
        self, found: Sequence[Any], rows: Sequence[Mapping[str, Any]], time: str
    ) -> list[dict[str, Any]]:
        coming = stack_events(found)
        # A probability for each level and stream: all of them are bisected at once.
        levels = torch.tensor(QUANTILES, dtype=torch.float64).unsqueeze(-1).expand(-1, len(found))
        gaps = torch.cat([coming.mean().unsqueeze(0), coming.quantile(levels)]).T.tolist()
        chosen = coming.mark_probabilities.max(-1)
        marks = zip(chosen.indices.tolist(), chosen.values.tolist(), strict=True)
        answers = []
        for row, gap, (mark, probability) in zip(rows, gaps, marks, strict=True):
            when = number(row, time)
            times = {name: when + one for name, one in zip(TIMES, gap, strict=True)}
            answers.append({"next_time": times, "mark": self.names[mark], "probability": probability})
        return answers

    def choice(self, answer: Mapping[str, Any]) -> tuple[str, float]:
        return answer["mark"], answer["probability"]
