"""Long series for forecasting as tensors: scaled on the training rows, cut into windows, batched.

The protocol of the Time-Series-Library: input 96, scaled with the population standard deviation of the
training rows, metrics on the scaled values. Windows are views: all of them cost no more than the series.
Validation and test begin one input length before their border, so that their first forecast begins exactly at
it.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.datasets.catalogue import lookup
from aaren.datasets.dataset import Dataset
from aaren.datasets.numbers import narrow
from aaren.engine.batches import BatchLoader, require_shape
from aaren.errors import ConfigError, DataError
from aaren.forecasting.data import (
    NUM_MARKS,
    PAST_STEPS,
    Part,
    Series,
    Split,
    load_series,
    read_series,
    split_of,
    split_rows,
    time_marks,
)

LastBatch: TypeAlias = Literal["protocol", "keep"]


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ForecastBatch:
    """Pairs of a known past and the future to be forecast, with the marks of their dates.

    A decoder that wants the end of the past as its label takes it from `past`.
    """

    past: Tensor  # (b, past steps, series)
    past_marks: Tensor  # (b, past steps, 4)
    future: Tensor  # (b, horizon steps, series)
    future_marks: Tensor  # (b, horizon steps, 4)
    past_slots: Tensor | None = None  # (b, past steps) int64, places in the calendar, for the model that asks
    future_slots: Tensor | None = None  # (b, horizon steps)

    def __post_init__(self) -> None:
        b, past_steps, num_series = self.past.shape
        horizon_steps = self.future.shape[1]
        require_shape("past_marks", self.past_marks, (b, past_steps, NUM_MARKS))
        require_shape("future", self.future, (b, horizon_steps, num_series))
        require_shape("future_marks", self.future_marks, (b, horizon_steps, NUM_MARKS))

    def __len__(self) -> int:
        return len(self.past)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Windows:
    """Every window of a stretch of rows, stride 1: `past_steps` rows in, the next `horizon_steps` out."""

    values: Tensor  # (rows, series), only the rows of this part
    marks: Tensor  # (rows, 4)
    past_steps: int
    horizon_steps: int
    slots: Tensor | None = None  # (rows,) int64, places in the calendar

    def __post_init__(self) -> None:
        if self.past_steps < 1 or self.horizon_steps < 1:
            raise ConfigError(
                f"a window needs at least 1 row of past and of future; got past_steps = {self.past_steps}, "
                f"horizon_steps = {self.horizon_steps}."
            )
        needed = self.past_steps + self.horizon_steps
        if len(self.values) < needed:
            raise DataError(
                f"{len(self.values)} rows are too few for one window of {self.past_steps} + "
                f"{self.horizon_steps} = {needed} rows: bring more rows or choose a shorter horizon."
            )

    def __len__(self) -> int:
        return len(self.values) - self.past_steps - self.horizon_steps + 1

    @property
    def past(self) -> Tensor:
        """All inputs as a view, (windows, past steps, series)."""
        return self._view(self.values, 0, self.past_steps)

    @property
    def future(self) -> Tensor:
        """All targets as a view, (windows, horizon steps, series)."""
        return self._view(self.values, self.past_steps, self.horizon_steps)

    def take(self, numbers: Tensor) -> ForecastBatch:
        """Copy the windows with these numbers into a batch."""
        # index_select copies the chosen windows row by row; it does not make the view contiguous first.
        return ForecastBatch(
            past=self.past.index_select(0, numbers),
            past_marks=self._view(self.marks, 0, self.past_steps).index_select(0, numbers),
            future=self.future.index_select(0, numbers),
            future_marks=self._view(self.marks, self.past_steps, self.horizon_steps).index_select(0, numbers),
            **self._slots(numbers),
        )

    def _slots(self, numbers: Tensor) -> dict[str, Tensor]:
        if self.slots is None:
            return {}
        rows = self.slots.unsqueeze(-1)
        parts = {"past_slots": (0, self.past_steps), "future_slots": (self.past_steps, self.horizon_steps)}
        return {
            name: self._view(rows, *part).index_select(0, numbers).squeeze(-1) for name, part in parts.items()
        }

    def _view(self, rows: Tensor, first: int, steps: int) -> Tensor:
        width = rows.shape[1]
        # Windows overlap in memory: one step further along the first or the second axis is one row further.
        return torch.as_strided(
            rows, (len(self), steps, width), (width, width, 1), rows.storage_offset() + first * width
        )


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Loaders:
    """Batches of the three parts."""

    train: BatchLoader[ForecastBatch]
    validation: BatchLoader[ForecastBatch]
    test: BatchLoader[ForecastBatch]


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ForecastingData:
    """A series ready for forecasting."""

    name: str
    columns: tuple[str, ...]
    values: Tensor  # (rows, series) float32, scaled
    marks: Tensor  # (rows, 4) float32
    mean: Tensor  # (series,) float64, of the training rows
    deviation: Tensor  # (series,) float64, population standard deviations likewise; 1 if constant
    split: Split
    dates: NDArray[np.datetime64]  # (rows,)

    def windows(self, part: Part, *, horizon_steps: int, past_steps: int = PAST_STEPS) -> Windows:
        """Cut one part into windows; they are views of `values`."""
        begin, end = self.split.bounds(part, past_steps)
        if begin < 0:
            raise ConfigError(
                f"past_steps = {past_steps} is longer than the {self.split.train} training rows."
            )
        return Windows(
            values=self.values[begin:end],
            marks=self.marks[begin:end],
            past_steps=past_steps,
            horizon_steps=horizon_steps,
        )

    def loaders(
        self,
        *,
        horizon_steps: int,
        past_steps: int = PAST_STEPS,
        batch_size: int = 32,
        seed: int = 0,
        last_batch: LastBatch = "protocol",
    ) -> Loaders:
        """Build the loaders: train and validation shuffled by `seed`, test in order and complete.

        Args:
            horizon_steps: Rows to forecast.
            past_steps: Rows to forecast from.
            batch_size: Windows per batch.
            seed: Of the order of train and validation.
            last_batch: `protocol` drops a last partial batch of train and validation, as the Time-Series-
            Library did at the paper's time (so a random handful is left out each epoch); `keep` drops none.
        """
        if last_batch not in ("protocol", "keep"):
            raise ConfigError(f"last_batch must be 'protocol' or 'keep'; got {last_batch!r}.")
        drops = last_batch == "protocol"
        loaders = {}
        for part in ("train", "validation", "test"):
            windows = self.windows(part, horizon_steps=horizon_steps, past_steps=past_steps)
            if drops and part != "test" and len(windows) < batch_size:
                raise ConfigError(
                    f"the {part} part makes {len(windows)} windows, no full batch of {batch_size}, and the "
                    f"protocol drops what is not full: give more rows, --set last_batch=keep, or a smaller "
                    f"batch_size."
                )
            loaders[part] = BatchLoader(
                size=len(windows), take=windows.take, batch_size=batch_size, seed=seed
            )
        return Loaders(
            train=replace(loaders["train"], is_shuffled=True, drops_last=drops),
            validation=replace(loaders["validation"], is_shuffled=True, drops_last=drops),
            test=loaders["test"],
        )


def load(name: str | Dataset) -> ForecastingData:
    """Load a registered dataset from disk, or make it if it is a generated one."""
    dataset = lookup(name) if isinstance(name, str) else name
    series = load_series(dataset)
    return prepare(series, name=dataset.name, split=split_of(dataset, len(series)))


def open_file(
    path: Path, *, target: str = "", only_target: bool = False, allow_irregular: bool = False
) -> ForecastingData:
    """Read a user's own CSV file (first column a date), split 70/10/20 by rows."""
    series = read_series(path, allow_irregular=allow_irregular)
    if target:
        series = series.with_target(target, only=only_target)
    return prepare(series, name=path.name, split=split_rows(len(series)))


def prepare(series: Series, *, name: str, split: Split) -> ForecastingData:
    """Scale a series on its training rows and compute its marks."""
    if not split.train:
        raise DataError(f"{name}: {len(series)} row(s) are too few to train on. Bring more rows.")
    mean, deviation = _statistics(series.values[: split.train])
    scaled = narrow(
        (series.values - mean) / deviation,
        name=f"{name}, scaled (row, column)",
        cure="It is too far from the training rows of its column: correct or drop it.",
    )
    return ForecastingData(
        name=name,
        columns=series.columns,
        values=torch.from_numpy(np.ascontiguousarray(scaled)),
        marks=torch.from_numpy(time_marks(series.dates)),
        mean=torch.from_numpy(mean),
        deviation=torch.from_numpy(deviation),
        split=split,
        dates=series.dates,
    )


def _statistics(train: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    return mean, np.where(deviation == 0.0, 1.0, deviation)
