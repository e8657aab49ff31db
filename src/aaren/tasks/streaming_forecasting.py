"""Training and judging a streaming forecaster: on long windows, restarted at every window or carried along.

`restarted` is comparable with the window models: for every test window the state is empty and takes in the
same rows of past. `carried` is how a stream is used: one state goes along the whole part, beginning with the
same rows as the first window, and every window's forecast is read as it passes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.data.forecasting.batch import ForecastBatch
from aaren.data.forecasting.loading import ForecastingData
from aaren.data.loader import BatchLoader
from aaren.models import StreamingForecaster
from aaren.tasks.base import Json, Part
from aaren.tasks.forecasting import ForecastingExperiment
from aaren.tasks.forecasting_config import ForecastingConfig
from aaren.tasks.metrics import Mean
from aaren.tasks.plan import Moment

CARRIED_ROWS = 256  # rows of a stream taken in at once


class StreamingExperiment(ForecastingExperiment):
    """Long windows with several forecasts each to train on; two ways to be judged, one is reported."""

    def __init__(self, config: ForecastingConfig, data: ForecastingData, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        # Never more than the training rows hold, with a batch of windows beside each other.
        room = data.split.train - config.horizon - config.batch_size + 1
        self.train_steps = max(config.past_steps, min(config.streaming.train_steps, room))
        windows = data.windows("train", horizon_steps=config.horizon, past_steps=self.train_steps)
        self.long: BatchLoader[ForecastBatch] = replace(
            self.loaders.train, size=len(windows), take=windows.take
        )
        first, last = config.past_steps - 1, self.train_steps - 1
        count = config.streaming.num_targets
        self.targets = torch.linspace(first, last, count).long() if count > 1 else torch.tensor([last])
        self.plan = self.make_plan(len(self.long), metric="mse")

    def batches(self, epoch: int) -> Iterator[ForecastBatch]:
        """Walk through the long training windows in this epoch's order."""
        return self.long.epoch(epoch)

    def loss(self, model: nn.Module, batch: ForecastBatch) -> Tensor:
        """Return the mean squared error of the forecasts after the chosen rows of each window."""
        found, _ = model(batch.past, batch.past_marks, positions=self.targets.to(batch.past.device))
        rows = torch.cat([batch.past, batch.future], dim=1)
        truth = torch.stack(
            [rows[:, place + 1 : place + 1 + self.config.horizon] for place in self.targets.tolist()], dim=1
        )
        return F.mse_loss(found, truth)

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Give the reported errors as `mse` and `mae`; on test also those of the other way to be judged."""
        judged = self.config.streaming.judged
        ways = (judged, "carried" if judged == "restarted" else "restarted")
        found: dict[str, float] = {}
        for way in ways if part == "test" else ways[:1]:
            if way == "carried":
                scores = self.score_carried(model, part)
            else:
                scores = self.score_windows(model, part, moment)
            prefix = "" if way == judged else f"{way}_"
            found |= {f"{prefix}{name}": value for name, value in scores.items()}
        return found

    def facts(self) -> Mapping[str, Json]:
        """Return sizes, that of the training windows among them."""
        return {**super().facts(), "train_steps": self.train_steps}

    def forecast(self, model: nn.Module, batch: ForecastBatch) -> Tensor:
        """Take in each window from an empty state and return the forecast after its last row."""
        positions = torch.tensor([batch.past.shape[1] - 1], device=batch.past.device)
        found, _ = model(batch.past, batch.past_marks, positions=positions)
        return cast("Tensor", found.squeeze(1))

    def score_carried(self, model: nn.Module, part: Part) -> dict[str, float]:
        """Average both errors over all windows of a part, with one state carried along it."""
        assert isinstance(model, StreamingForecaster)
        windows = self.parts[part]
        device = model.value.weight.device
        squared, absolute = Mean(), Mean()
        lead = windows.past_steps - 1  # rows before the first forecast is due
        last = lead + len(windows)  # the row after which the last one is due, and one
        state = model.init_state(1)
        for start in range(0, last, CARRIED_ROWS):
            stop = min(start + CARRIED_ROWS, last)
            due = torch.arange(max(start, lead), stop, device=device) - start
            rows, marks = (
                rows[start:stop].unsqueeze(0).to(device) for rows in (windows.values, windows.marks)
            )
            found, state = model(rows, marks, state, positions=due)
            first = max(start, lead) - lead
            truth = windows.future[first : first + len(due)].to(device)
            difference = found.squeeze(0) - truth
            squared.add(difference.square())
            absolute.add(difference.abs())
        return {"mse": squared.value, "mae": absolute.value}
