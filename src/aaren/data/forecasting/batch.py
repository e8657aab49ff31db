"""What a forecasting model is fed: tensors that were checked to fit together."""

from dataclasses import dataclass

from torch import Tensor

from aaren.data.batch import require_shape
from aaren.data.forecasting.time_marks import NUM_MARKS


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
        require_shape("past_marks", self.past_marks, (b, past_steps, NUM_MARKS))
        require_shape("future", self.future, (b, horizon_steps, num_series))
        require_shape("future_marks", self.future_marks, (b, horizon_steps, NUM_MARKS))

    def __len__(self) -> int:
        return len(self.past)
