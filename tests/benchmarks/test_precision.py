import pytest
import torch

from precision import PrecisionSettings, averaging_layer, measure_precision


def test_a_short_run_is_exact_to_rounding() -> None:
    row = measure_precision(PrecisionSettings(tokens=10_000, chunk_tokens=777, raised_tokens=50))
    assert 0.0 <= float(row["forward_error"] or 0.0) < 1e-14
    assert 0.0 <= float(row["step_error"] or 0.0) < 1e-14


def test_the_layers_scores_are_equal_and_not_zero() -> None:
    layer = averaging_layer(8, 2)
    _, state = layer(torch.randn(1, 5, 8, dtype=torch.float64))
    assert (state.m != 0).all()
    torch.testing.assert_close(state.u, torch.full_like(state.u, 5.0))


def test_a_loss_of_digits_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = averaging_layer(8, 2)
    exact_step = layer.step

    def coarse_step(x: torch.Tensor, state: object) -> tuple[torch.Tensor, object]:
        output, state = exact_step(x, state)  # type: ignore[arg-type]  # what the layer returned
        return output.float().double(), state

    monkeypatch.setattr(layer, "step", coarse_step)
    monkeypatch.setattr("precision.averaging_layer", lambda *_: layer)
    row = measure_precision(PrecisionSettings(tokens=1000, chunk_tokens=500, raised_tokens=10))
    assert float(row["step_error"] or 0.0) > 1e-9


@pytest.mark.long
def test_thirty_million_equal_scores_stay_an_exact_mean() -> None:
    row = measure_precision(PrecisionSettings())
    assert row["tokens"] == 30_000_000
    assert float(row["forward_error"] or 0.0) <= 1e-9
    assert float(row["step_error"] or 0.0) <= 1e-9
