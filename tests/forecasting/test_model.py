from typing import Any

import pytest
import torch
from torch import Tensor

from aaren.errors import ConfigError, ShapeError
from aaren.forecasting.model import CrossAttention, Forecaster, ForecasterConfig, normalise

SMALL: dict[str, Any] = {
    "num_series": 3,
    "past_steps": 12,
    "label_steps": 5,
    "horizon_steps": 7,
    "width": 16,
    "num_heads": 4,
    "ff_width": 32,
}


def small(**options: Any) -> Forecaster:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Forecaster(ForecasterConfig(**{**SMALL, **options})).double().eval()


def windows(rng: torch.Generator, b: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    past = torch.randn(b, 12, 3, generator=rng, dtype=torch.float64)
    past_marks, future_marks = (
        torch.rand(b, steps, 4, generator=rng, dtype=torch.float64) - 0.5 for steps in (12, 7)
    )
    return past, past_marks, future_marks


def count(**options: Any) -> int:
    with torch.device("meta"):
        model = Forecaster(ForecasterConfig(**options))
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("num_series", "expected"),
    [(7, 10_540_039), (21, 10_590_229), (8, 10_543_624), (862, 13_605_214), (1, 10_518_529)],
    ids=["ETT", "Weather", "Exchange", "Traffic", "ECL"],
)
def test_parameter_totals_are_the_published_ones(num_series: int, expected: int) -> None:
    assert count(num_series=num_series, mixer="softmax") == expected
    assert count(num_series=num_series, mixer="aaren") == expected + 1_536


def test_the_readings_add_and_remove_what_they_say() -> None:
    published = count(num_series=7)
    assert count(num_series=7, cross_attention="aaren") == published + 512  # the summary's query
    assert count(num_series=7, cross_attention="aaren", mixer="softmax") == count(
        num_series=7, mixer="softmax"
    )
    encoder = 12_800 + 2 * 3_152_896 + 1_024
    assert count(num_series=7, cross_attention="none") == encoder + 513 * 96 * 7


@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
@pytest.mark.parametrize("cross_attention", ["softmax", "aaren", "none"])
def test_every_reading_forecasts_and_every_weight_learns(
    cross_attention: str, mixer: str, rng: torch.Generator
) -> None:
    model = small(cross_attention=cross_attention, mixer=mixer)
    forecast = model(*windows(rng))
    assert forecast.shape == (2, 7, 3)
    forecast.square().sum().backward()
    silent = {
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None or not parameter.grad.any()
    }
    assert {name for name in silent if "k_proj.bias" not in name} == set()


@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
@pytest.mark.parametrize("cross_attention", ["softmax", "aaren", "none"])
def test_a_folded_copy_says_the_same(cross_attention: str, mixer: str, rng: torch.Generator) -> None:
    model = small(cross_attention=cross_attention, mixer=mixer)
    given = windows(rng)
    torch.testing.assert_close(model.fold()(*given), model(*given), rtol=0, atol=1e-12)


def test_windows_are_normalised_with_the_population_deviation(rng: torch.Generator) -> None:
    past, _, _ = windows(rng)
    normalised, mean, deviation = normalise(past)
    expected = (past.var(dim=1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(deviation, expected)
    torch.testing.assert_close(normalised * deviation + mean, past)


def test_a_shift_and_a_scale_of_a_window_pass_through(rng: torch.Generator) -> None:
    model = small()
    past, past_marks, future_marks = windows(rng)
    past = 1_000.0 * past  # so that the small number under the root does not matter
    once = model(past, past_marks, future_marks)
    torch.testing.assert_close(
        model(3.0 * past + 50.0, past_marks, future_marks), 3.0 * once + 50.0, rtol=1e-7, atol=1e-4
    )


def test_a_constant_column_gives_finite_forecasts_and_gradients(rng: torch.Generator) -> None:
    model = small()
    past, past_marks, future_marks = windows(rng)
    past[:, :, 1] = 4.0
    forecast = model(past, past_marks, future_marks)
    forecast.sum().backward()
    assert forecast.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert (forecast[:, :, 1] - 4.0).abs().max() < 0.1


@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
def test_the_decoder_sees_only_earlier_dates(mixer: str, rng: torch.Generator) -> None:
    model = small(mixer=mixer)
    past, past_marks, future_marks = windows(rng)
    before = model(past, past_marks, future_marks)
    future_marks[:, 4] += 1.0
    after = model(past, past_marks, future_marks)
    torch.testing.assert_close(after[:, :4], before[:, :4])
    assert not torch.allclose(after[:, 4], before[:, 4])


def test_leaving_out_the_label_after_mixing_changes_nothing(rng: torch.Generator) -> None:
    model = small()
    layer = model.decoder[0]
    x, memory = torch.randn(2, 2, 9, 16, generator=rng, dtype=torch.float64)
    torch.testing.assert_close(layer(x, memory, last=4), layer(x, memory)[:, -4:])


def test_cross_attention_is_plain_softmax_attention(rng: torch.Generator) -> None:
    cross = CrossAttention(8, 2).double().eval()
    x, memory = torch.randn(2, 1, 5, 8, generator=rng, dtype=torch.float64)
    query, keys, values = cross.q_proj(x), cross.k_proj(memory), cross.v_proj(memory)
    heads = []
    for part in (slice(0, 4), slice(4, 8)):
        weights = (query[..., part] @ keys[..., part].transpose(1, 2) / 2.0).softmax(-1)
        heads.append(weights @ values[..., part])
    torch.testing.assert_close(cross(x, memory), cross.out_proj(torch.cat(heads, dim=-1)))


@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
@pytest.mark.parametrize("cross_attention", ["softmax", "aaren", "none"])
def test_no_windows_give_no_forecasts(cross_attention: str, mixer: str, rng: torch.Generator) -> None:
    for model in (
        small(cross_attention=cross_attention, mixer=mixer),
        small(cross_attention=cross_attention, mixer=mixer).train(),
    ):
        assert model(*windows(rng, b=0)).shape == (0, 7, 3)


def test_what_does_not_fit_is_said(rng: torch.Generator) -> None:
    past, past_marks, future_marks = windows(rng)
    with pytest.raises(ShapeError, match=r"past must be \(b, 12, 3\).*got \(2, 11, 3\)"):
        small()(past[:, 1:], past_marks, future_marks)
    with pytest.raises(ShapeError, match=r"future_marks must be \(b, 7, 4\)"):
        small()(past, past_marks, past_marks)
    with pytest.raises(ConfigError, match="label_steps are the last of the past_steps, so 0 to 12; got 13"):
        ForecasterConfig(**{**SMALL, "label_steps": 13})
    with pytest.raises(ConfigError, match="horizon_steps must be at least 1; got 0"):
        ForecasterConfig(**{**SMALL, "horizon_steps": 0})
    with pytest.raises(ConfigError, match="unknown mixer 'aren'; did you mean 'aaren'"):
        ForecasterConfig(**{**SMALL, "mixer": "aren"})
    with pytest.raises(ConfigError, match="num_heads must divide width"):
        ForecasterConfig(**{**SMALL, "num_heads": 5})


def test_a_stream_names_the_model_that_has_one() -> None:
    model = Forecaster(ForecasterConfig(**SMALL))
    with pytest.raises(ConfigError, match="use StreamingForecaster"):
        model.stream()
