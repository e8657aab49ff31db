"""Rows of `aaren stream` for forecasters: columns by name and a date in, the forecast of every column out."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from aaren.engine.experiment import Json
from aaren.errors import ConfigError, DataError
from aaren.forecasting.calendar import find_slots
from aaren.forecasting.data import time_marks
from aaren.forecasting.lagged import LagForecaster
from aaren.forecasting.streaming import StreamingForecaster
from aaren.stream.rows import RowPath, field, number


class ForecastRows(RowPath):
    """`{"date": "2026-01-31 07:00", "load": 3.5}` in; `{"forecast": {"load": [...]}}` out, in its units."""

    time = "date"

    def __init__(self, model: nn.Module, preprocessing: Mapping[str, Json]) -> None:
        if not isinstance(model, StreamingForecaster | LagForecaster):
            raise ConfigError(
                f"a {type(model).__name__} reads whole windows and has no stream: train --model lagged or "
                f"streaming-carried."
            )
        super().__init__(model)
        if not isinstance(model, LagForecaster):  # which scales by itself
            model.preprocessing = preprocessing  # its stream scales
        self.columns = [str(name) for name in cast("Sequence[str]", preprocessing["columns"])]
        self.lagged = model.config if isinstance(model, LagForecaster) else None
        self.has_dates = (
            model.config.clock != "none" if isinstance(model, LagForecaster) else model.config.num_marks > 0
        )

    def read(self, row: Mapping[str, Any], time: str) -> tuple[Any, dict[str, Any]]:
        raw = [number(row, name) for name in self.columns]
        if not self.has_dates:
            return raw, {}
        text = field(row, time)
        try:
            date = np.datetime64(text, "s")
        except (ValueError, TypeError) as error:
            raise DataError(
                f"the field {time!r} must be a date like 2026-01-31 07:00; got {text!r}."
            ) from error
        if np.isnat(date):
            raise DataError(f"the field {time!r} must be a date; got {text!r}.")
        dates = np.array([date])
        if self.lagged is not None:
            return raw, {"slot": int(find_slots(dates, self.lagged.clock, self.lagged.slot_seconds)[0])}
        return raw, {"marks": time_marks(dates)[0].tolist()}

    def answers(
        self, found: Sequence[Any], rows: Sequence[Mapping[str, Any]], time: str
    ) -> list[dict[str, Any]]:
        del rows, time
        every = torch.stack(list(found)).double().transpose(1, 2).tolist()
        return [{"forecast": dict(zip(self.columns, forecast, strict=True))} for forecast in every]
