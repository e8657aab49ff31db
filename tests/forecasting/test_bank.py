"""The bank: its recurrences, its combination, its laws as a stream."""

from pathlib import Path

import numpy as np
import pytest
import torch

from aaren.errors import ShapeError
from aaren.forecasting.autoregressions import Plan, fit_direct, fit_recursive
from aaren.forecasting.bank_fitting import choose_origins, fit_bank
from aaren.forecasting.bank_forecaster import BankForecaster, BankState
from aaren.forecasting.smoothing_bank import make_grid, smooth
from aaren.stream.saved import load_model, save_model

HORIZON, SEASON = 6, 12


def seasonal(rows: int, *, seed: int = 0) -> np.ndarray:
    time, noise = np.arange(rows), np.random.default_rng(seed)
    return np.exp(0.01 * time + 0.2 * np.sin(2 * np.pi * time / SEASON) + 0.03 * noise.normal(size=rows))


@pytest.fixture(scope="module")
def model() -> BankForecaster:
    rows = [100 * seasonal(90), seasonal(90, seed=1) - 1.5]  # in logarithms, and with negative values
    return BankForecaster.from_fits(fit_bank(rows, horizon=HORIZON, season=SEASON), horizon=HORIZON)


def new_rows(count: int = 30) -> torch.Tensor:
    later = [100 * seasonal(90 + count)[90:], seasonal(90 + count, seed=1)[90:] - 1.5]
    return torch.from_numpy(np.stack(later, axis=1))


def test_series_side_by_side_are_as_one_by_one() -> None:
    rows = [seasonal(60), 3 * seasonal(60, seed=1), seasonal(47, seed=2), np.arange(5.0)]
    together = fit_bank(rows, horizon=HORIZON, season=SEASON)
    for series, fit in zip(rows, together, strict=True):
        alone = fit_bank([series], horizon=HORIZON, season=SEASON)[0]
        assert alone.weights == pytest.approx(fit.weights, rel=1e-6)
        np.testing.assert_allclose(alone.intervals.widths, fit.intervals.widths, rtol=1e-6)


def test_smoothers_know_nothing_of_later_rows_but_their_start() -> None:
    values = seasonal(80)[None]
    grid, origins = make_grid(1), choose_origins(80, 1)
    before = smooth(values, grid, 1, HORIZON, origins)
    changed = values.copy()
    changed[0, 60:] *= 3.0
    after = smooth(changed, grid, 1, HORIZON, origins)
    known, has_no_drift = origins <= 60, grid.drift == 0
    np.testing.assert_allclose(
        after.forecasts[known][..., has_no_drift], before.forecasts[known][..., has_no_drift]
    )


def test_regressions_know_nothing_of_later_rows() -> None:
    values, origins = seasonal(400), choose_origins(400, 1)
    changed = values.copy()
    changed[300:] += 1.0
    known = origins <= 300
    one, other = (fit_recursive(rows, Plan((1,), (1, 2)), HORIZON, origins) for rows in (values, changed))
    assert one is not None
    assert other is not None
    places = np.flatnonzero(known)[:5]  # fitted before
    np.testing.assert_allclose(one.forecasts[places], other.forecasts[places])
    direct = [fit_direct(rows, HORIZON, origins, 24)["direct"] for rows in (values, changed)]
    np.testing.assert_allclose(direct[0].forecasts[places], direct[1].forecasts[places])


def test_a_recursion_is_a_map_of_the_last_rows() -> None:
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0])
    regression = fit_recursive(values, Plan((1,), (1,)), 2, np.array([len(values)]))
    assert regression is not None
    assert regression.forecasts[-1] == pytest.approx([2048.0, 4096.0], rel=0.2)


def test_a_line_a_season_and_growth_go_on() -> None:
    time = np.arange(60)
    for values, season in (
        (3.0 + 0.5 * time, 1),
        (np.tile([1.0, 5.0, 2.0, 9.0], 15), 4),
        (10 * 1.05**time, 1),
    ):
        fitted = BankForecaster.from_fits(fit_bank([values[:54]], horizon=6, season=season), horizon=6)
        forecast = fitted.predict(fitted.init_state(1))[0, :, 0].numpy()
        np.testing.assert_allclose(forecast, values[54:], rtol=0.05)


def test_rows_one_by_one_in_numpy_are_as_traced_in_torch(model: BankForecaster) -> None:
    state = model.init_state(1)
    for row in new_rows():
        given = row[None]
        effect = None
        constants = (model.alpha, model.beta, model.gamma, model.phi)
        join = lambda one, other: torch.cat([one, other], dim=-1)  # noqa: E731
        wanted = BankState(*model._follow(given, state, effect, constants, torch.where, join, torch.log))
        state = model.advance(given, state)
        for one, other in zip(state, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_folding_step_equals_forward_and_splits_change_nothing(model: BankForecaster) -> None:
    rows = new_rows()[None]
    whole, final = model(rows)
    first, state = model(rows[:, :11])
    second, state = model(rows[:, 11:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    for one, other in zip(state, final, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(model.predict(final), whole[:, -1])


def test_a_missing_row_or_value_leaves_no_trace(model: BankForecaster) -> None:
    _, state = model(new_rows()[None])
    nothing = torch.full((1, 2), float("nan"), dtype=torch.float64)
    _, same = model.step(nothing, state, mask=torch.tensor([False]))
    assert all(torch.equal(one, other) for one, other in zip(same, state, strict=True))
    half = torch.tensor([[400.0, float("nan")]], dtype=torch.float64)
    _, after = model.step(half, state, mask=torch.tensor([[True, False]]))
    assert after.num_rows.tolist() == [[121, 120]]
    torch.testing.assert_close(after.level[:, 1], state.level[:, 1], rtol=0, atol=0)


def test_native_sessions_agree_and_memory_does_not_grow(model: BankForecaster) -> None:
    fast, slow = model.stream(), model.stream(engine="torch")
    size = slow.state.nbytes
    for row in new_rows():
        torch.testing.assert_close(fast.push(row), slow.push(row), rtol=1e-9, atol=1e-9)
    assert (fast.engine, slow.engine) == ("native", "torch")
    torch.testing.assert_close(fast.quantiles([80, 95]), slow.quantiles([80, 95]), rtol=1e-9, atol=1e-9)
    assert slow.state.nbytes == size
    slow.restore(fast.to_bytes())


def test_saved_and_loaded_it_forecasts_the_same(model: BankForecaster, tmp_path: Path) -> None:
    again = load_model(save_model(model, tmp_path / "model"))
    rows = new_rows()[None]
    torch.testing.assert_close(again(rows)[0], model(rows)[0], rtol=0, atol=0)
    assert again.fingerprint() == model.fold().fingerprint()  # type: ignore[operator]


def test_covariates_earn_their_place() -> None:
    noise = np.random.default_rng(0)
    holiday = (noise.random((130, 1)) < 0.2).astype(np.float64)
    values = 20 + noise.normal(size=130).cumsum() * 0.2 + 6 * holiday[:, 0]
    useful = fit_bank([values[:120]], horizon=10, season=1, covariates=[holiday[:120]])[0]
    assert useful.spaces["covariates"].weight > 0.5
    model = BankForecaster.from_fits([useful], horizon=10, covariates=[holiday[:120]])
    future = torch.from_numpy(holiday[None, 120:])
    forecast = model.predict(model.init_state(1), covariates=future)[0, :, 0].numpy()
    assert np.abs(forecast - values[120:]).mean() < 1.5
    useless = fit_bank(
        [values[:120] - 6 * holiday[:120, 0]], horizon=10, season=1, covariates=[holiday[:120]]
    )
    assert "covariates" not in useless[0].spaces or useless[0].spaces["covariates"].weight < 0.7
    with pytest.raises(ShapeError, match="this model takes 1 covariates"):
        model.step(torch.zeros(1, 1), model.init_state(1))
    with pytest.raises(ShapeError, match=r"a row must be \(b, 1\); got \(1, 3\)"):
        model.step(torch.zeros(1, 3), model.init_state(1))


def test_a_single_jump_moves_a_forecast_little_and_a_second_is_believed() -> None:
    values = 10 + np.random.default_rng(0).normal(size=60)
    model = BankForecaster.from_fits(fit_bank([values], horizon=1, season=1), horizon=1)
    state, forecasts = model.init_state(1), []
    for value in (10.0, 1000.0, 1000.0, 1000.0):
        forecast, state = model.step(torch.tensor([[value]], dtype=torch.float64), state)
        forecasts.append(float(forecast))
    assert forecasts[-1] > forecasts[1]
