import pytest
import torch

from aaren.errors import ConfigError, ShapeError
from aaren.forecasting.references import (
    LinearForecaster,
    ReferenceConfig,
    RepeatLast,
    SeasonalNaive,
    SeasonalNaiveConfig,
)

SIZES = {"num_series": 2, "past_steps": 6, "horizon_steps": 8}


def test_the_last_value_is_repeated(rng: torch.Generator) -> None:
    past = torch.randn(3, 6, 2, generator=rng)
    forecast = RepeatLast(ReferenceConfig(**SIZES))(past)
    assert torch.equal(forecast, past[:, -1:].expand(3, 8, 2))


@pytest.mark.parametrize(("season", "repeated"), [(4, 4), (24, 6)])
def test_the_last_season_is_repeated(season: int, repeated: int, rng: torch.Generator) -> None:
    past = torch.randn(3, 6, 2, generator=rng)
    forecast = SeasonalNaive(SeasonalNaiveConfig(**SIZES, season_steps=season))(past)
    expected = torch.cat([past[:, -repeated:]] * 2, dim=1)[:, :8]
    assert torch.equal(forecast, expected)


def test_least_squares_finds_an_exact_linear_rule(rng: torch.Generator) -> None:
    past = torch.randn(200, 6, 2, generator=rng)
    weight, bias = torch.randn(8, 6, generator=rng), torch.randn(8, generator=rng)
    future = (past.transpose(1, 2) @ weight.T + bias).transpose(1, 2)
    model = LinearForecaster(ReferenceConfig(**SIZES))
    model.fit([(past[:90], future[:90]), (past[90:], future[90:])])
    torch.testing.assert_close(model.weight.data, weight, rtol=0, atol=1e-4)
    torch.testing.assert_close(model.bias.data, bias, rtol=0, atol=1e-4)


def test_constant_columns_can_be_fitted() -> None:
    model = LinearForecaster(ReferenceConfig(**SIZES))
    model.fit([(torch.full((20, 6, 2), 3.0), torch.full((20, 8, 2), 3.0))])
    torch.testing.assert_close(
        model(torch.full((1, 6, 2), 3.0)), torch.full((1, 8, 2), 3.0), rtol=0, atol=1e-3
    )
    zeros = LinearForecaster(ReferenceConfig(**SIZES))
    zeros.fit([(torch.zeros(20, 6, 2), torch.zeros(20, 8, 2))])
    assert zeros.weight.isfinite().all()


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ShapeError, match=r"past must be \(b, 6, 2\).*got \(1, 5, 2\)"):
        RepeatLast(ReferenceConfig(**SIZES))(torch.zeros(1, 5, 2))
    with pytest.raises(ConfigError, match="past_steps must be at least 1; got 0"):
        ReferenceConfig(num_series=2, past_steps=0)
    with pytest.raises(ConfigError, match="season_steps must be at least 1; got 0"):
        SeasonalNaiveConfig(num_series=2, season_steps=0)
