"""Long multivariate series for forecasting: split, scaled on the training rows, cut into windows, batched.

The protocol of the Time-Series-Library: input 96, scaled with the population deviation of the training rows,
metrics on the scaled values. Knows nothing of models.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.data.dataset import Dataset, Fact
from aaren.data.files import folders
from aaren.data.forecasting.batch import ForecastBatch
from aaren.data.forecasting.seasonal import seasonal
from aaren.data.forecasting.series import Series, read_series
from aaren.data.forecasting.time_marks import time_marks
from aaren.data.forecasting.windows import Part, Split, Windows, split_rows
from aaren.data.loader import BatchLoader
from aaren.data.numbers import narrow
from aaren.data.registry import lookup
from aaren.errors import ConfigError, DataError

PAST_STEPS = 96
HORIZONS = (96, 192, 336, 720)
TARGET = "OT"

LastBatch: TypeAlias = Literal["protocol", "keep"]


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
    deviation: Tensor  # (series,) float64, population deviation of the training rows; 1 for a constant column
    split: Split

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
    series = _series(dataset)
    return prepare(series, name=dataset.name, split=_split(dataset, len(series)))


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
    )


def measure(dataset: Dataset) -> dict[str, Fact]:
    """Open a dataset's file and count what the registry claims to know."""
    series = _series(dataset)
    split = _split(dataset, len(series))
    return {
        "rows": len(series),
        "series": len(series.columns),
        "train": split.train,
        "validation": split.validation,
        "test": split.test,
    }


def _series(dataset: Dataset) -> Series:
    path = folders.find(dataset.setting, dataset.files[0])
    if path is None and dataset.is_generated:
        return seasonal(rows=int(dataset.facts["rows"]), num_series=int(dataset.facts["series"]))
    path = path or folders.require(
        dataset.setting, dataset.files[0], cure=f"Run: aaren data fetch {dataset.name}"
    )
    series = read_series(path, accepted=dataset.irregular)
    only = str(dataset.options.get("columns", ""))
    if only:
        return series.with_target(only, only=True)
    return series.with_target(TARGET) if TARGET in series.columns else series


def _split(dataset: Dataset, rows: int) -> Split:
    rule, rows_per_hour = str(dataset.options["split"]), int(dataset.options.get("rows_per_hour", 1))
    return split_rows(rows, rule, rows_per_hour=rows_per_hour)


def _statistics(train: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    return mean, np.where(deviation == 0.0, 1.0, deviation)
