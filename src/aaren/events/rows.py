"""Rows of `aaren stream` for event models: the time and kind of an event in, when and what comes next out."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import nn

from aaren.engine.experiment import Json
from aaren.errors import DataError
from aaren.events.forecaster import EventForecaster
from aaren.events.predict import QUANTILES
from aaren.stream.rows import RowPath, field, number


class EventRows(RowPath):
    """`{"time": 3.5, "mark": "buy"}` in; the next one's time (mean, quantiles) and likeliest mark out."""

    time = "time"

    def __init__(self, model: nn.Module, preprocessing: Mapping[str, Json]) -> None:
        assert isinstance(model, EventForecaster)
        super().__init__(model)
        known = tuple(str(name) for name in cast("Sequence[str]", preprocessing["mark_names"]))
        self.has_names = bool(known)
        self.names = known or tuple(str(kind) for kind in range(model.num_marks))

    def read(self, row: Mapping[str, Any], time: str) -> tuple[Any, dict[str, Any]]:
        when = number(row, time)
        if len(self.names) == 1:
            return when, {"mark": 0}
        mark = str(field(row, "mark"))
        if mark not in self.names:
            raise DataError(f"unknown mark {mark!r}; the run knows {', '.join(self.names[:12])}.")
        return when, {"mark": self.names.index(mark)}

    def answer(self, found: Any, row: Mapping[str, Any], time: str) -> dict[str, Any]:
        when = number(row, time)
        levels = {f"q{round(100 * level):02}": float(found.quantile(level)) for level in QUANTILES}
        gaps = {"mean": float(found.mean()), **levels}
        chosen = found.mark_probabilities.max(-1)
        return {
            "next_time": {name: when + gap for name, gap in gaps.items()},
            "mark": self.names[int(chosen.indices)],
            "probability": float(chosen.values),
        }

    def choice(self, answer: Mapping[str, Any]) -> tuple[str, float]:
        return answer["mark"], answer["probability"]
