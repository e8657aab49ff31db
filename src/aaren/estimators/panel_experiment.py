"""Many series, one model: windows of all series, forecasts after several rows of each window.

The last rows of every series are held out for validation. Series are seen one by one and scaled one by one,
so that what is learned on one serves the others. Knows nothing of frames.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.data.loader import BatchLoader
from aaren.errors import DataError
from aaren.models import StreamingForecaster, StreamingForecasterConfig
from aaren.tasks.base import Experiment, Part
from aaren.tasks.metrics import Mean
from aaren.tasks.optimiser import OptimiserConfig
from aaren.tasks.plan import Criterion, Moment, Plan, halving

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
