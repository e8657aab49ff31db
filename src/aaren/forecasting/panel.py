"""Many series, one streaming model: how `AarenForecaster` trains it, and the streams that take in new rows.

The last rows of every series are held out for validation. Series are seen one by one and scaled one by one,
so that what is learned on one serves the others.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Optimizer

from aaren.engine.batches import BatchLoader
from aaren.engine.experiment import Experiment, Part
from aaren.engine.metrics import Mean
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.plan import Criterion, Moment, Plan, halving
from aaren.errors import DataError
from aaren.forecasting.data import time_marks
from aaren.forecasting.frames import (
    SeriesRows,
    show_time,
)
from aaren.forecasting.streaming import StreamingForecaster, StreamingForecasterConfig, StreamingState
from aaren.stream.session import largest

if TYPE_CHECKING:
    pass  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package


HELD_OUT = 0.1  # of each series, at least one horizon
SHORTEST_PAST = 8  # rows that a window must have before its first forecast
VALIDATION_WINDOWS = 512


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class PanelBatch:
    """Windows of some series, past and future in one piece."""

    rows: Tensor  # (b, past + horizon, 1)
    marks: Tensor  # (b, past + horizon, marks)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class PanelTraining:
    """How a panel is trained on."""

    window_steps: int = 256  # past of a training window, at most
    batch_size: int = 32
    epochs: int = 10
    updates_per_epoch: int = 100
    patience: int = 3
    learning_rate: float = 1e-3


class PanelExperiment(Experiment[PanelBatch]):
    """Train a `StreamingForecaster` of one column on every series of a panel."""

    def __init__(
        self,
        names: Sequence[object],
        rows: Sequence[Tensor],  # (rows,) each, scaled
        marks: Sequence[Tensor],  # (rows, marks) each
        *,
        model: StreamingForecasterConfig,
        training: PanelTraining,
        seed: int,
    ) -> None:
        self.model_config, self.training = model, training
        self.values = torch.cat(list(rows)).unsqueeze(-1)
        self.marks = torch.cat(list(marks))
        horizon = model.horizon_steps
        lengths = [len(some) for some in rows]
        held_out = [max(horizon, int(HELD_OUT * length)) for length in lengths]
        longest_past = max(length - held - horizon for length, held in zip(lengths, held_out, strict=True))
        if longest_past < SHORTEST_PAST:
            longest = max(range(len(lengths)), key=lengths.__getitem__)
            raise DataError(
                f"no series is long enough for a horizon of {horizon}: the longest, {names[longest]!r}, has "
                f"{lengths[longest]} rows and needs {2 * horizon + SHORTEST_PAST} (a window, a horizon to "
                f"learn from and one to validate on). Bring more rows or choose a shorter horizon."
            )
        self.past_steps = min(training.window_steps, longest_past)
        self.train, self.validation = self._starts(lengths, held_out)
        count = min(16, self.past_steps - self.past_steps // 2)
        self.targets = torch.linspace(self.past_steps // 2, self.past_steps - 1, count).long()
        self.loader = BatchLoader(
            size=len(self.train),
            take=lambda numbers: self._take(self.train[numbers]),
            batch_size=min(training.batch_size, len(self.train)),
            is_shuffled=True,
            seed=seed,
        )
        self.plan = Plan.in_epochs(
            training.epochs,
            updates_per_epoch=min(training.updates_per_epoch, len(self.loader)),
            selects=Criterion(metric="mse"),
            patience=training.patience,
            schedule=halving(),
            clip_norm=1.0,
        )

    def build_model(self) -> nn.Module:
        """Build the streaming forecaster."""
        return StreamingForecaster(self.model_config)

    def build_optimiser(self, model: nn.Module) -> Optimizer:
        """Build Adam."""
        return OptimiserConfig(learning_rate=self.training.learning_rate).build(model)

    def batches(self, epoch: int) -> Iterator[PanelBatch]:
        """Walk through the training windows in this epoch's order."""
        return self.loader.epoch(epoch)

    def loss(self, model: nn.Module, batch: PanelBatch) -> Tensor:
        """Return the mean squared error of the forecasts after the chosen rows of each window."""
        return F.mse_loss(*self._compare(model, batch, self.targets))

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Average the squared error over windows that forecast what was held out."""
        del part, moment
        squared = Mean()
        for starts in torch.split(self.validation, 128):
            found, truth = self._compare(model, self._take(starts), self.targets[-1:])
            squared.add((found - truth).square())
        return {"mse": squared.value}

    def _compare(self, model: nn.Module, batch: PanelBatch, targets: Tensor) -> tuple[Tensor, Tensor]:
        past = self.past_steps
        marks = batch.marks[:, :past] if batch.marks.shape[-1] else None
        found, _ = model(batch.rows[:, :past], marks, positions=targets)
        horizon = self.model_config.horizon_steps
        truth = [batch.rows[:, place + 1 : place + 1 + horizon] for place in targets.tolist()]
        return found, torch.stack(truth, dim=1)

    def _starts(self, lengths: Sequence[int], held_out: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return where windows begin: those before what is held out, and those that forecast it."""
        size, offset = self.past_steps + self.model_config.horizon_steps, 0
        train, validation = [], []
        for length, held in zip(lengths, held_out, strict=True):
            train.append(torch.arange(offset, max(offset, offset + length - held - size + 1)))
            first = max(0, length - held - self.past_steps)
            validation.append(torch.arange(offset + first, max(offset + first, offset + length - size + 1)))
            offset += length
        held_windows = torch.cat(validation)
        spread = torch.linspace(0, len(held_windows) - 1, min(VALIDATION_WINDOWS, len(held_windows))).long()
        return torch.cat(train), held_windows[spread]

    def _take(self, starts: Tensor) -> PanelBatch:
        steps = torch.arange(self.past_steps + self.model_config.horizon_steps)
        places = starts.unsqueeze(1) + steps
        return PanelBatch(rows=self.values[places], marks=self.marks[places])


def find_scale(name: object, values: NDArray[np.float64]) -> tuple[float, float]:
    """Return mean and standard deviation of a series; 1 for the latter of a constant one."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(values.mean()), float(values.std())
    if not math.isfinite(mean + deviation):
        raise DataError(
            f"series {name!r} reaches from {values.min():g} to {values.max():g}: the squares of such numbers "
            f"are too large for float64. Divide them first, or look for a wrong value."
        )
    return mean, deviation if deviation > 0.0 else 1.0


def scale_rows(name: object, rows: SeriesRows, scale: tuple[float, float]) -> Tensor:
    """Return the values as a model wants them, (rows, 1); what it cannot hold is refused."""
    with np.errstate(over="ignore"):
        scaled = (rows.values - scale[0]) / scale[1]
    wrong = np.flatnonzero(~(np.abs(scaled) <= largest(torch.float32)))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"series {name!r}: {rows.values[row]:g} at {show_time(rows.times[row])} is too far from what was "
            f"fitted, mean {scale[0]:g} and standard deviation {scale[1]:g}, to be computed with. "
            f"Leave it out, or correct it."
        )
    return torch.from_numpy(scaled).float().unsqueeze(-1)


def date_marks(rows: SeriesRows) -> Tensor:
    """Return the marks of the dates, (rows, 4); of whole numbers there are none, (rows, 0)."""
    if rows.times.dtype.kind != "M":
        return torch.zeros(len(rows.times), 0)
    return torch.from_numpy(time_marks(cast("NDArray[np.datetime64]", rows.times)))


@torch.no_grad()
def take_in(
    model: StreamingForecaster, state: StreamingState, rows: Mapping[int, Tensor], marks: Mapping[int, Tensor]
) -> None:
    """Run new rows through the model and write the new states over the old ones, in place.

    Args:
        model: a trained forecaster of one column.
        state: of all streams.
        rows: (rows, 1) by the number of the stream; streams with about equally many go together.
        marks: (rows, marks), likewise.
    """
    groups: dict[int, list[int]] = {}
    for stream, new in rows.items():
        groups.setdefault(len(new).bit_length(), []).append(stream)  # at most half of a group is padding
    changed = []
    for members in groups.values():
        streams = torch.tensor(members)
        lengths = torch.tensor([len(rows[stream]) for stream in members])
        padded = pad_sequence([rows[stream] for stream in members], batch_first=True)
        dates = pad_sequence([marks[stream] for stream in members], batch_first=True)
        mask = torch.arange(padded.shape[1]) < lengths.unsqueeze(1)
        _, new_state = model(
            padded,
            dates if dates.shape[-1] else None,
            state.select(streams),
            mask=None if bool(mask.all()) else mask,
            positions=torch.tensor([padded.shape[1] - 1]),
        )
        if not bool(new_state.output.isfinite().all()):
            raise DataError("the model cannot compute with these rows: its answer would not be finite.")
        changed.append((streams, new_state))
    for streams, new_state in changed:  # only now, so that all rows are taken in or none
        _put(state, streams, new_state)


def _put(state: object, streams: Tensor, new: object) -> None:
    """Write the new states of some streams over their old ones; the others are not touched."""
    if isinstance(state, Tensor) and isinstance(new, Tensor):
        state[streams] = new.to(state.dtype)
    elif isinstance(state, tuple) and isinstance(new, tuple):
        for old_part, new_part in zip(state, new, strict=True):
            _put(old_part, streams, new_part)
