"""Forecasts for a user's new data: a CSV file in and one out, or row by row.

Columns are found by name and brought to the scale of training; dates continue at the step of the file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aaren.datasets.dates import read_date
from aaren.datasets.numbers import narrow
from aaren.engine.experiment import Json
from aaren.errors import ConfigError, DataError
from aaren.files.atomic import write_text
from aaren.forecasting.calendar import LOOKED_AT, continue_dates, find_slots
from aaren.forecasting.config import ForecastingConfig
from aaren.forecasting.data import Series, read_series, time_marks
from aaren.forecasting.lagged import LagForecaster
from aaren.forecasting.streaming import StreamingForecaster
from aaren.stream.rows import RowPath, field, number


def predict_file(
    model: nn.Module,
    config: ForecastingConfig,
    preprocessing: Mapping[str, Json],
    *,
    source: Path,
    target: Path,
) -> None:
    """Forecast what follows the last row of `source` and write it to `target`.

    Args:
        model: a trained forecaster.
        config: of its run.
        preprocessing: its run's columns, means and standard deviations.
        source: a CSV file with the columns of training, in any order.
        target: where the forecast goes: a date and the same columns, in the units of `source`.
    """
    columns = [str(name) for name in cast("Sequence[str]", preprocessing["columns"])]
    # A forecast can be made after a gap as well, and rows that it does not use may hold anything.
    used = None if _is_carried(config) else max(config.window_steps, LOOKED_AT)
    series = read_series(source, allow_irregular=True, last=used, only=columns)
    values = pick_columns(series, columns)
    mean, deviation = (
        np.array(cast("Sequence[float]", preprocessing[name]), dtype=np.float64)
        for name in ("mean", "deviation")
    )
    if isinstance(model, LagForecaster):  # scales by itself
        mean, deviation = np.zeros_like(mean), np.ones_like(deviation)
    dates = continue_dates(series.dates, config.horizon)
    scaled = narrow(
        (values - mean) / deviation,
        name=f"{source}, scaled as in training (row, column)",
        cure="It is too far from what the model was trained on: correct or drop it.",
    )
    forecast = forecast_next(model, config, scaled, dates=series.dates, future_dates=dates, name=source.name)
    write_table(target, columns, dates, forecast * deviation + mean)


def _is_carried(config: ForecastingConfig) -> bool:
    return config.is_streaming and config.streaming.judged == "carried"


def pick_columns(series: Series, columns: Sequence[str]) -> NDArray[np.float64]:
    """Return the named columns in their order, or say which are missing."""
    missing = [name for name in columns if name not in series.columns]
    if missing:
        raise DataError(
            f"{series.name}: no column {', '.join(map(repr, missing))}; the model was trained on "
            f"{', '.join(columns[:12])}{' ...' if len(columns) > 12 else ''}, the file has "
            f"{', '.join(series.columns[:12])}{' ...' if len(series.columns) > 12 else ''}."
        )
    return series.values[:, [series.columns.index(name) for name in columns]]


@torch.no_grad()
def forecast_next(
    model: nn.Module,
    config: ForecastingConfig,
    scaled: NDArray[np.floating],
    *,
    dates: NDArray[np.datetime64],
    future_dates: NDArray[np.datetime64],
    name: str,
) -> NDArray[np.float64]:
    """Return the forecast after the last of the scaled rows, (horizon, series), scaled too.

    A stream that is carried along takes in every row; all others the last `past_steps`.
    """
    is_carried = _is_carried(config)
    if len(scaled) < config.window_steps and not is_carried:
        raise DataError(
            f"{name}: {len(scaled)} rows are too few: the model forecasts from the last "
            f"{config.window_steps}. Bring at least {config.window_steps} rows."
        )
    first = 0 if is_carried else len(scaled) - config.window_steps
    rows = torch.from_numpy(scaled[first:]).float().unsqueeze(0)
    marks = torch.from_numpy(time_marks(dates[first:])).unsqueeze(0)
    model.eval()
    found: Tensor
    if isinstance(model, LagForecaster):
        known, ahead = (
            torch.from_numpy(find_slots(some, model.config.clock, model.config.slot_seconds)).unsqueeze(0)
            for some in (dates[first:], future_dates)
        )
        found = model.forecast_windows(rows, known, ahead)
    elif isinstance(model, StreamingForecaster):
        found, _ = model(rows, marks, positions=torch.tensor([rows.shape[1] - 1]))
        found = found[:, 0]
    else:
        found = model(rows, marks, torch.from_numpy(time_marks(future_dates)).unsqueeze(0))
    forecast: NDArray[np.float64] = found.squeeze(0).double().numpy()
    return forecast


def write_table(
    target: Path, columns: Sequence[str], dates: NDArray[np.datetime64], values: NDArray[np.float64]
) -> None:
    """Write dates and values as a CSV file, whole or not at all."""
    stamps = np.char.replace(np.datetime_as_string(dates.astype("datetime64[s]")), "T", " ").tolist()
    lines = [",".join(("date", *columns))]
    lines += [
        ",".join((stamp, *(f"{value:.6g}" for value in row)))
        for stamp, row in zip(stamps, values.tolist(), strict=True)
    ]
    write_text(target, "\n".join(lines) + "\n")


class ForecastRows(RowPath):
    """`{"date": "2026-01-31 07:00", "load": 3.5}` in; `{"forecast": {"load": [...]}}` out, in its units."""

    time = "date"

    def __init__(self, model: nn.Module, preprocessing: Mapping[str, Json]) -> None:
        if not isinstance(model, StreamingForecaster | LagForecaster):
            raise ConfigError(
                f"a {type(model).__name__} reads whole windows and has no stream: train --model "
                f"lagged-base or streaming-carried."
            )
        super().__init__(model)
        if not isinstance(model, LagForecaster):  # which scales by itself
            model.preprocessing = preprocessing  # its stream scales
        self.columns = [str(name) for name in cast("Sequence[str]", preprocessing["columns"])]
        self.lagged = model.config if isinstance(model, LagForecaster) else None
        self.has_dates = (
            model.config.clock != "none" if isinstance(model, LagForecaster) else model.config.num_marks > 0
        )

    def example(self, time: str) -> dict[str, Any]:
        return {**({time: "2026-01-31 07:00"} if self.has_dates else {}), **dict.fromkeys(self.columns, 0.0)}

    def read(self, row: Mapping[str, Any], time: str) -> tuple[Any, dict[str, Any]]:
        raw = [number(row, name) for name in self.columns]
        if not self.has_dates:
            return raw, {}
        date = read_date(field(row, time), name=time)
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
