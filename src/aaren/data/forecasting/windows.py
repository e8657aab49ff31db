"""Splits of a long series and its sliding windows, which are views: all of them cost no more than the series.

Validation and test begin one input length before their border, so that their first forecast begins exactly at
it. Knows nothing of files, scaling or training.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from aaren.data.forecasting.batch import ForecastBatch
from aaren.errors import ConfigError, DataError, unknown_name

Part: TypeAlias = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """How many rows train, validation and test have; they follow each other."""

    train: int
    validation: int
    test: int

    def bounds(self, part: Part, past_steps: int) -> tuple[int, int]:
        """Give the first row that a part's windows may use, and the row after the last."""
        if part == "train":
            return 0, self.train
        if part == "validation":
            return self.train - past_steps, self.train + self.validation
        if part == "test":
            begin = self.train + self.validation
            return begin - past_steps, begin + self.test
        raise unknown_name("part", part, PARTS)


def split_rows(rows: int, rule: str = "ratio", *, rows_per_hour: int = 1) -> Split:
    """Split by `ratio` (70 % train, 20 % test, the rest validation) or by `months` (12, 4, 4 of 30 days).

    >>> split_rows(7588)
    Split(train=5311, validation=760, test=1517)
    """
    if rule == "ratio":
        train, test = int(0.7 * rows), int(0.2 * rows)
        return Split(train=train, validation=rows - train - test, test=test)
    if rule == "months":
        month = 30 * 24 * rows_per_hour
        if rows < 20 * month:
            raise DataError(f"a split by months needs 20 months, {20 * month} rows; got {rows}.")
        return Split(train=12 * month, validation=4 * month, test=4 * month)
    raise unknown_name("split rule", rule, ("ratio", "months"))


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Windows:
    """Every window of a stretch of rows, stride 1: `past_steps` rows in, the next `horizon_steps` out."""

    values: Tensor  # (rows, series), only the rows of this part
    marks: Tensor  # (rows, 4)
    past_steps: int
    horizon_steps: int

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
        )

    def _view(self, rows: Tensor, first: int, steps: int) -> Tensor:
        width = rows.shape[1]
        # Windows overlap in memory: one step further along the first or the second axis is one row further.
        return torch.as_strided(
            rows, (len(self), steps, width), (width, width, 1), rows.storage_offset() + first * width
        )
