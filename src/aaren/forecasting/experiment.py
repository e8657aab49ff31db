"""Train and judge forecasters of long multivariate series: a window of the past in, the whole horizon out.

Metrics are mean squared and mean absolute error on the scaled data, over every window, step and series of the
test part.

A streaming forecaster is trained on long windows and judged in one of two ways. `restarted` is comparable
with the window models: for every test window the state is empty and takes in the same rows of past. `carried`
is how a stream is used: one state goes along the whole part, beginning with the same rows as the first
window, and every window's forecast is read as it passes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.datasets.catalogue import lookup
from aaren.engine.batches import BatchLoader, Mean
from aaren.engine.experiment import Experiment, Json, Part
from aaren.engine.plan import Criterion, Moment, Plan, Schedule, halving
from aaren.errors import DataError
from aaren.forecasting.batches import ForecastBatch, ForecastingData, Windows, load, open_file
from aaren.forecasting.calendar import find_clock, find_slots
from aaren.forecasting.config import ForecastingConfig
from aaren.forecasting.data import Part as Rows
from aaren.forecasting.fitting import History, fit_base
from aaren.forecasting.intervals import judge_intervals
from aaren.forecasting.lagged import LagForecaster
from aaren.forecasting.references import LinearForecaster
from aaren.forecasting.streaming import StreamingForecaster

EVALUATION_BATCH = 128  # windows at once, without gradients
KEPT_FORECASTS = 256  # windows of the test part whose forecasts are kept, if asked
DRAWN_FORECASTS = 3  # windows of the test part that a report draws, of the last column alone


class ForecastingExperiment(Experiment[ForecastBatch]):
    """Windows of one series, and a model that maps each past to its future."""

    def __init__(self, config: ForecastingConfig, data: ForecastingData, *, seed: int) -> None:
        self.config = config
        self.data = data
        self.seed = seed
        self.parts = {part: self.windows(part) for part in ("train", "validation", "test")}
        self.loaders = data.loaders(
            horizon_steps=config.horizon,
            past_steps=config.window_steps,
            batch_size=config.batch_size,
            seed=seed,
            last_batch=config.last_batch,
        )
        self.plan = self.make_plan(len(self.loaders.train), metric="mse")

    def windows(self, part: Rows) -> Windows:
        """Cut one part into windows, or say that it is too short."""
        try:
            return self.data.windows(
                part, horizon_steps=self.config.horizon, past_steps=self.config.window_steps
            )
        except DataError as error:
            rows = {name: getattr(self.data.split, name) for name in ("train", "validation", "test")}
            raise DataError(
                f"{self.data.name}: its {part} part is too short ({sum(rows.values())} rows: {rows['train']} "
                f"train, {rows['validation']} validation, {rows['test']} test): {error}"
            ) from error

    def make_plan(self, updates_in_all_windows: int, *, metric: str) -> Plan:
        """Plan the run: an evaluation after every epoch, the rate halved again and again but at first."""
        config = self.config
        updates = min(updates_in_all_windows, config.updates_per_epoch or updates_in_all_windows)
        return Plan.in_epochs(
            0 if config.is_reference else config.epochs,
            updates_per_epoch=updates,
            selects=Criterion(metric=metric),
            patience=config.patience,
            schedule=halving() if config.halve_every is None else halving_by_updates(config.halve_every),
        )

    def build_model(self) -> nn.Module:
        """Build the model; a linear one is fitted at once, by least squares over all training windows."""
        model = self.config.build_model(len(self.data.columns))
        if isinstance(model, LinearForecaster):
            model.fit(_pairs(self.parts["train"]))
        return model

    def build_optimiser(self, model: nn.Module) -> Optimizer:
        """Build Adam."""
        return self.config.optimiser.build(model)

    def batches(self, epoch: int) -> Iterator[ForecastBatch]:
        """Walk through the training windows in this epoch's order."""
        return self.loaders.train.epoch(epoch)

    def loss(self, model: nn.Module, batch: ForecastBatch) -> Tensor:
        """Return the mean squared error over all windows, steps and series."""
        return F.mse_loss(self.forecast(model, batch), batch.future)

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Average both errors over a part's windows."""
        return self.score_windows(model, part, moment)

    def score_windows(self, model: nn.Module, part: Part, moment: Moment) -> dict[str, float]:
        """Average both errors over the windows that are chosen now."""
        squared, absolute = Mean(), Mean()
        for numbers in torch.split(self.chosen(part, moment), EVALUATION_BATCH):
            batch = _to_model(self.parts[part].take(numbers), model)
            difference = self.forecast(model, batch) - batch.future
            squared.add(difference.square())
            absolute.add(difference.abs())
        return {"mse": squared.value, "mae": absolute.value}

    def chosen(self, part: Part, moment: Moment) -> Tensor:
        """Return the numbers of the windows that an evaluation at this moment is over.

        All of test. Of validation, as published, what full batches hold this epoch; or a fixed number, evenly
        spaced and always the same: windows drawn anew would make the choice of an epoch a lottery.
        """
        count, wanted = len(self.parts[part]), self.config.validation_windows
        if part == "test":
            return torch.arange(count)
        if wanted is not None:
            return torch.linspace(0, count - 1, min(wanted, count), dtype=torch.float64).round().long()
        loader = self.loaders.validation
        # A mean over full batches of equal size does not depend on how they are cut.
        return loader.order(moment.epoch)[: min(loader.size, len(loader) * loader.batch_size)]

    def forecast(self, model: nn.Module, batch: ForecastBatch) -> Tensor:
        """Return the model's forecasts, (b, horizon, series)."""
        return cast("Tensor", model(batch.past, batch.past_marks, batch.future_marks))

    def predictions(self, model: nn.Module) -> Mapping[str, Tensor]:
        """Return past, forecast and truth of test windows, evenly spread, scaled as in training."""
        windows = self.parts["test"]
        numbers = torch.linspace(0, len(windows) - 1, min(KEPT_FORECASTS, len(windows))).long()
        kept: dict[str, list[Tensor]] = {"past": [], "forecast": [], "truth": []}
        for some in torch.split(numbers, EVALUATION_BATCH):
            batch = _to_model(windows.take(some), model)
            for name, tensor in (
                ("past", batch.past),
                ("forecast", self.forecast(model, batch)),
                ("truth", batch.future),
            ):
                kept[name].append(tensor.cpu())
        return {"window": numbers, **{name: torch.cat(parts) for name, parts in kept.items()}}

    def figures(self, model: nn.Module) -> Mapping[str, Json]:
        """Return past, truth and forecast of three test windows: the last column, scaled."""
        windows = self.parts["test"]
        numbers = torch.linspace(0, len(windows) - 1, DRAWN_FORECASTS + 2).long()[1:-1]
        batch = _to_model(windows.take(numbers), model)
        drawn = {"past": batch.past, "truth": batch.future, "forecast": self.forecast(model, batch)}
        return {
            "column": self.data.columns[-1],
            "windows": [
                {
                    "number": int(number),
                    **{name: _rounded(values[row, :, -1]) for name, values in drawn.items()},
                }
                for row, number in enumerate(numbers)
            ],
        }

    def preprocessing(self) -> Mapping[str, Json]:
        """Return names and scales of the columns, which new data is brought to."""
        return {
            "columns": list(self.data.columns),
            "mean": cast("list[Json]", self.data.mean.tolist()),
            "deviation": cast("list[Json]", self.data.deviation.tolist()),
        }

    def facts(self) -> Mapping[str, Json]:
        """Return sizes, and which columns never change in training."""
        spread = self.data.values[: self.data.split.train].std(dim=0)
        constant = [
            name for name, value in zip(self.data.columns, spread.tolist(), strict=True) if value == 0
        ]
        return {
            "series": len(self.data.columns),
            "train_windows": len(self.parts["train"]),
            "validation_windows": len(self.parts["validation"]),
            "test_windows": len(self.parts["test"]),
            "constant_columns": cast("list[Json]", constant),
            "stands_for": lookup(self.config.dataset).stands_for if self.config.dataset else "",
        }


def halving_by_updates(updates: int) -> Schedule:
    """Halve the rate after every so many updates but the first, as `halving` does after epochs.

    >>> [halving_by_updates(200)(Moment(update, 0)) for update in (0, 399, 400, 600)]
    [1.0, 1.0, 0.5, 0.25]
    """
    return lambda moment: 0.5 ** max(0, moment.update // updates - 1)


def open_data(config: ForecastingConfig) -> ForecastingData:
    """Read a registered dataset, or the user's own file."""
    if config.dataset:
        return load(config.dataset)
    return open_file(
        Path(config.data_file),
        target=config.target,
        only_target=config.only_target,
        allow_irregular=config.allow_irregular,
    )


def _pairs(windows: Windows) -> Iterator[tuple[Tensor, Tensor]]:
    for numbers in torch.split(torch.arange(len(windows)), 1024):
        batch = windows.take(numbers)
        yield batch.past, batch.future


def _rounded(values: Tensor) -> list[Json]:
    return [round(value, 3) for value in values.tolist()]


def _to_model(batch: ForecastBatch, model: nn.Module) -> ForecastBatch:
    """Move a batch to where the model is."""
    weight = next(model.parameters(), None)
    if weight is None or weight.device == batch.past.device:
        return batch
    held = {some.name: getattr(batch, some.name) for some in fields(batch)}
    moved: dict[str, Any] = {
        name: None if one is None else one.to(weight.device) for name, one in held.items()
    }
    return ForecastBatch(**moved)


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


class LagExperiment(ForecastingExperiment):
    """The estimator's model: fitted to the training rows when it is built, chosen by validation rows.

    On test also its intervals are judged, along one stream through validation and test.
    """

    def __init__(self, config: ForecastingConfig, data: ForecastingData, *, seed: int) -> None:
        clock, seconds = find_clock(data.dates)
        slots = find_slots(data.dates, clock, seconds)
        raw = (
            data.values.double() * data.deviation + data.mean
        )  # its model scales by itself, and streams raw rows
        columns = [np.ascontiguousarray(column) for column in raw.numpy().T]
        self.history = History(
            series=columns,
            slots=[slots] * len(columns),
            is_table=True,
            clock=clock,
            slot_seconds=seconds,
        )
        super().__init__(config, data, seed=seed)

    def windows(self, part: Rows) -> Windows:
        """Cut one part into windows that know their places in the calendar."""
        found = super().windows(part)
        begin, end = self.data.split.bounds(part, self.config.window_steps)
        return replace(found, slots=torch.from_numpy(self.history.slots[0][begin:end]))

    def build_model(self) -> nn.Module:
        """Solve the weights on training rows; validation rows choose among them."""
        config, split, size = self.config, self.data.split, len(self.data.columns)
        self.fitted = fit_base(
            self.history,
            horizon_steps=config.horizon,
            lag_steps=config.window_steps,
            fit_ends=[split.train] * size,
            judge_ends=[split.train + split.validation] * size,
        )
        return self.fitted.model

    def forecast(self, model: nn.Module, batch: ForecastBatch) -> Tensor:
        """Return the model's forecasts, (b, horizon, series)."""
        assert isinstance(model, LagForecaster)
        assert batch.past_slots is not None
        assert batch.future_slots is not None
        mean, deviation = self.data.mean.to(batch.past.device), self.data.deviation.to(batch.past.device)
        raw = batch.past.double() * deviation + mean
        found = model.forecast_windows(raw, batch.past_slots, batch.future_slots)
        return ((found - mean) / deviation).to(batch.past.dtype)

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Average both errors; on test also judge the intervals."""
        found = self.score_windows(model, part, moment)
        if part == "test":
            assert isinstance(model, LagForecaster)
            split = self.data.split
            test = split.train + split.validation
            found |= judge_intervals(
                model,
                self.history,
                begin=split.train - self.config.window_steps,
                first=test - 1,
                end=test + split.test,
            )
        return found

    def facts(self) -> Mapping[str, Json]:
        """Return sizes, what the rolling origins chose and its error there."""
        fitted = getattr(self, "fitted", None)
        if fitted is None:
            return super().facts()
        choice = fitted.choice
        chosen = {"profile": choice.profile, "weights": choice.weights, "origin_mse": round(choice.score, 5)}
        return {**super().facts(), **chosen}
