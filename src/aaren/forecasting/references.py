"""What every forecast must be measured against: the last value, the last season, one linear layer.

The first two have nothing to learn; the third is fitted in one go, by least squares over all training
windows. The same call as `Forecaster`, so that they take its place in every experiment.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import ShapeError, require_at_least


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceConfig:
    """What all reference forecasters need to know."""

    num_series: int
    horizon_steps: int = 96
    past_steps: int = 96

    def __post_init__(self) -> None:
        require_at_least(self, num_series=1, horizon_steps=1, past_steps=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeasonalNaiveConfig(ReferenceConfig):
    """The season's length in rows; if the past is shorter, the whole past is repeated."""

    season_steps: int = 24

    def __post_init__(self) -> None:
        ReferenceConfig.__post_init__(self)
        require_at_least(self, season_steps=1)


class ReferenceForecaster(nn.Module):
    """A baseline with the call of `Forecaster`."""

    config_type: ClassVar[type[ReferenceConfig]] = ReferenceConfig

    def __init__(self, config: ReferenceConfig) -> None:
        super().__init__()
        self.config = config

    def forward(
        self, past: Tensor, past_marks: Tensor | None = None, future_marks: Tensor | None = None
    ) -> Tensor:
        """Forecast (b, horizon steps, series) from past (b, past steps, series); dates are not looked at."""
        del past_marks, future_marks
        check_past(self.config, past)
        return self.forecast(past)

    def forecast(self, past: Tensor) -> Tensor:
        """Forecast (b, horizon steps, series) from past that has been checked."""
        raise NotImplementedError


class RepeatLast(ReferenceForecaster):
    """Forecast the last known value of each series, for ever.

    >>> model = RepeatLast(ReferenceConfig(num_series=1, horizon_steps=2, past_steps=3))
    >>> model(torch.tensor([[[1.0], [2.0], [5.0]]])).flatten()
    tensor([5., 5.])
    """

    def forecast(self, past: Tensor) -> Tensor:
        return past[:, -1:].expand(-1, self.config.horizon_steps, -1)


class SeasonalNaive(ReferenceForecaster):
    """Forecast what was one season ago.

    >>> config = SeasonalNaiveConfig(num_series=1, horizon_steps=3, past_steps=4, season_steps=2)
    >>> SeasonalNaive(config)(torch.tensor([[[0.0], [0.0], [1.0], [2.0]]])).flatten()
    tensor([1., 2., 1.])
    """

    config_type: ClassVar[type[SeasonalNaiveConfig]] = SeasonalNaiveConfig
    config: SeasonalNaiveConfig

    def forecast(self, past: Tensor) -> Tensor:
        season = min(self.config.season_steps, self.config.past_steps)
        places = torch.arange(self.config.horizon_steps, device=past.device) % season - season
        return past[:, places]


class LinearForecaster(ReferenceForecaster):
    """One linear layer from a series' past to its future, the same for every series."""

    def __init__(self, config: ReferenceConfig) -> None:
        super().__init__(config)
        self.weight = nn.Parameter(torch.zeros(config.horizon_steps, config.past_steps))
        self.bias = nn.Parameter(torch.zeros(config.horizon_steps))

    def forecast(self, past: Tensor) -> Tensor:
        return F.linear(past.transpose(1, 2), self.weight, self.bias).transpose(1, 2)

    @torch.no_grad()
    def fit(self, windows: Iterable[tuple[Tensor, Tensor]], *, ridge: float = 1e-6) -> None:
        """Set the weights that minimise the squared error over all windows, exactly.

        Args:
            windows: pairs of past (b, past steps, series) and future (b, horizon steps, series).
            ridge: relative to the inputs' mean square; keeps constant columns from making it unsolvable.
        """
        size = self.config.past_steps + 1
        gram = torch.zeros(size, size, dtype=torch.float64)
        cross = torch.zeros(size, self.config.horizon_steps, dtype=torch.float64)
        for past, future in windows:
            check_past(self.config, past)
            inputs = F.pad(past.transpose(1, 2).flatten(0, 1), (0, 1), value=1.0).double()
            targets = future.transpose(1, 2).flatten(0, 1).double()
            gram += inputs.T @ inputs
            cross += inputs.T @ targets
        gram.diagonal().add_(ridge * gram.diagonal().mean().clamp(min=1e-12))
        solved = torch.linalg.solve(gram, cross)  # (past steps + 1, horizon steps)
        self.weight.copy_(solved[:-1].T)
        self.bias.copy_(solved[-1])


def check_past(config: ReferenceConfig, past: Tensor) -> None:
    """Raise unless past is (b, past steps, series) of this config."""
    if past.ndim != 3 or past.shape[1:] != (config.past_steps, config.num_series):
        raise ShapeError(
            f"past must be (b, {config.past_steps}, {config.num_series}), as this model was built for; got "
            f"{tuple(past.shape)}."
        )
