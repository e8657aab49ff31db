"""What a model of forecasting or classification is fed: tensors that were checked to fit together.

Event batches live in `aaren.data.event_batches`, windows of trajectories in `aaren.data.trajectories`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aaren.data.time_marks import NUM_MARKS
from aaren.errors import ShapeError


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ForecastBatch:
    """Pairs of a known past and the future to be forecast, with the marks of their dates.

    A decoder that wants the end of the past as its label takes it from `past`.
    """

    past: Tensor  # (b, past steps, series)
    past_marks: Tensor  # (b, past steps, 4)
    future: Tensor  # (b, horizon steps, series)
    future_marks: Tensor  # (b, horizon steps, 4)

    def __post_init__(self) -> None:
        b, past_steps, num_series = self.past.shape
        horizon_steps = self.future.shape[1]
        _require("past_marks", self.past_marks, (b, past_steps, NUM_MARKS))
        _require("future", self.future, (b, horizon_steps, num_series))
        _require("future_marks", self.future_marks, (b, horizon_steps, NUM_MARKS))

    def __len__(self) -> int:
        return len(self.past)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LabelledBatch:
    """Series of one length, padded with zeros at the end, and the class of each."""

    values: Tensor  # (b, t, channels)
    mask: Tensor  # (b, t) bool, True = real
    labels: Tensor  # (b,) int64

    def __post_init__(self) -> None:
        b, t, _ = self.values.shape
        _require("mask", self.mask, (b, t))
        _require("labels", self.labels, (b,))
        if self.mask.dtype != torch.bool:
            raise ShapeError(f"mask must be bool, True = real; got {self.mask.dtype}.")

    def __len__(self) -> int:
        return len(self.values)


def _require(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise ShapeError(f"{name} must be {shape} to fit the rest of the batch; got {tuple(tensor.shape)}.")
