"""LagForecaster: its base in closed form, its laws as a stream, its intervals."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from aaren.errors import ConfigError, ShapeError
from aaren.forecasting.fitting import History, fit_base, replay
from aaren.forecasting.lagged import LEAST_SPREAD, LagForecaster, LagForecasterConfig
from aaren.forecasting.residuals import Residuals, set_student_quantiles
from aaren.forecasting.ridge import (
    choose,
    fit_joint,
    fit_shared,
    fit_weights,
    joint_error,
    squared_error,
    window_moments,
)
from aaren.stream.saved import load_model, save_model

LAGS, HORIZON = 30, 7


def hours(rows: int, size: int = 2, *, seed: int = 0) -> list[np.ndarray]:
    noise = np.random.default_rng(seed)
    time = np.arange(rows)
    return [
        10.0**place * (5 + np.sin(2 * np.pi * (time + 3 * place) / 24) + 0.3 * noise.normal(size=rows))
        for place in range(size)
    ]


def history(rows: int, size: int = 2, *, seed: int = 0) -> History:
    slots = np.arange(rows) % 168
    return History(series=hours(rows, size, seed=seed), slots=[slots] * size, is_table=True, clock="week")


@pytest.fixture(scope="module")
def model() -> LagForecaster:
    known = history(900)
    fitted = fit_base(known, horizon_steps=HORIZON, lag_steps=LAGS, fit_ends=[600] * 2, judge_ends=[900] * 2)
    return fitted.model


@pytest.mark.parametrize("is_relative", [True, False])
def test_moments_by_recursion_equal_sums_over_windows(is_relative: bool) -> None:
    values = np.random.default_rng(1).normal(size=60).cumsum()
    windows = np.lib.stride_tricks.sliding_window_view(values, 12 + 5)
    last = windows[:, 11:12] if is_relative else 0.0
    lags = windows[:, :11] - last if is_relative else windows[:, :12]
    features = np.concatenate([lags, np.ones((len(windows), 1))], axis=1)
    targets = windows[:, 12:] - last
    found = window_moments([values], 12, 5, is_relative=is_relative)
    np.testing.assert_allclose(found.features[0], features.T @ features, atol=1e-8)
    np.testing.assert_allclose(found.cross[0], features.T @ targets, atol=1e-8)
    np.testing.assert_allclose(found.targets[0], (targets**2).sum(0), atol=1e-8)
    weights = fit_shared(found)
    np.testing.assert_allclose(
        squared_error(weights, found), ((features @ weights[0] - targets) ** 2).mean(), atol=1e-10
    )


def test_series_too_short_for_a_window_add_nothing() -> None:
    long, short = np.arange(50.0), np.arange(5.0)
    both, alone = window_moments([long, short], 8, 4), window_moments([long], 8, 4)
    np.testing.assert_array_equal(fit_shared(both), fit_shared(alone))
    assert both.num_windows.tolist() == [39, 0]


def test_rolling_origins_choose_the_last_value_for_a_random_walk_and_lags_for_a_season() -> None:
    noise = np.random.default_rng(0)
    none = [np.zeros(1200, dtype=np.int64)]
    cuts = [[400], [600], [800], [1200]]
    walk = choose([noise.normal(size=1200).cumsum()], {"none": none}, cuts, lag_steps=30, horizon_steps=5)
    wave = choose([hours(1200)[0]], {"none": none}, cuts, lag_steps=30, horizon_steps=5)
    assert walk.scores["none", "last"] < 1.05 * walk.scores["none", "shared"]
    assert wave.weights == "shared"


def test_the_last_season_is_a_base() -> None:
    noise = np.random.default_rng(0)
    cuts = [[30], [45], [60], [84]]
    year = np.tile(noise.normal(size=12), 7)
    slots = {"none": [np.zeros(84, dtype=np.int64)]}
    found = choose([year], slots, cuts, lag_steps=12, horizon_steps=20, seasons=[12, 13])
    assert (found.weights, found.score, found.is_fixed) == ("season-12", pytest.approx(1e-12), True)
    weights = fit_weights(window_moments([year], 12, 20), "season-12")
    assert squared_error(weights, window_moments([year], 12, 20)) == pytest.approx(0.0, abs=1e-12)
    # Before anything can be fitted, a fitted base is as good as the best of those that need no fit.
    noisy = year + 0.1 * noise.normal(size=84)
    alone = choose([noisy], slots, [[14], [60], [84]], lag_steps=12, horizon_steps=6, seasons=[12])
    assert alone.scores["none", "shared"] < alone.scores["none", "last"] / 2


def test_other_columns_are_inputs_where_they_help() -> None:
    noise = np.random.default_rng(0)
    leader = noise.normal(size=1500)
    follower = np.r_[0.0, 0.0, leader[:-2]] + 0.1 * noise.normal(size=1500)
    none = [np.zeros(1500, dtype=np.int64)] * 2
    cuts = [[500, 500], [800, 800], [1100, 1100], [1500, 1500]]
    found = choose([leader, follower], {"none": none}, cuts, lag_steps=12, horizon_steps=2, can_join=True)
    assert "+joint" in found.weights
    alone = choose(
        [leader, noise.normal(size=1500)], {"none": none}, cuts, lag_steps=12, horizon_steps=2, can_join=True
    )
    assert "+" not in alone.weights
    values = np.stack([leader, follower], axis=1)
    weights = fit_weights(window_moments([leader[:1100], follower[:1100]], 12, 2), "shared")
    joint = fit_joint(values[:1100], weights, 12)["joint-0.01"]
    zero = np.zeros_like(joint)
    assert joint_error(values[1000:], weights, joint, 12) < 0.8 * joint_error(
        values[1000:], weights, zero, 12
    )


def test_folding_step_equals_forward_and_splits_change_nothing(model: LagForecaster) -> None:
    rows = torch.from_numpy(np.stack(hours(80), axis=1)).unsqueeze(0).repeat(2, 1, 1)
    rows[1] += 0.5
    whole, final = model(rows)
    state, stepped = model.init_state(2), []
    for row in rows.unbind(1):
        forecast, state = model.step(row, state)
        stepped.append(forecast)
    torch.testing.assert_close(torch.stack(stepped, 1), whole, rtol=1e-6, atol=1e-8)
    for one, other in zip(state, final, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)
    first, kept = model(rows[:, :33])
    second, kept = model(rows[:, 33:], kept)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(model.predict(kept), whole[:, -1], rtol=1e-6, atol=1e-8)


def test_a_missing_row_or_value_leaves_no_trace(model: LagForecaster) -> None:
    rows = torch.from_numpy(np.stack(hours(60), axis=1)).unsqueeze(0)
    _, state = model(rows)
    forecast = model.predict(state)
    nothing = torch.full((1, 2), float("nan"))
    same, kept = model.step(nothing, state, mask=torch.tensor([False]))
    assert all(torch.equal(one, other) for one, other in zip(kept, state, strict=True))
    torch.testing.assert_close(same, forecast)
    half, kept = model.step(torch.tensor([[5.0, float("nan")]]), state, mask=torch.tensor([[True, False]]))
    torch.testing.assert_close(half[:, :, 1], forecast[:, :, 1])
    assert not torch.allclose(half[:, :, 0], forecast[:, :, 0])
    assert kept.num_rows.tolist() == [[61, 60]]


def test_memory_does_not_grow_and_the_past_beyond_the_lags_is_gone(model: LagForecaster) -> None:
    rows = torch.from_numpy(np.stack(hours(400), axis=1)).unsqueeze(0)
    _, early = model(rows[:, :40])
    _, late = model(rows)
    assert early.nbytes == late.nbytes
    again, _ = model(rows[:, -LAGS:], slots=(torch.arange(400)[None] + 1)[:, -LAGS:])
    torch.testing.assert_close(again[:, -1], model.predict(late))


def test_units_and_places_in_the_calendar(model: LagForecaster) -> None:
    rows = np.stack(hours(100), axis=1)
    session = model.stream()
    start = pd.Timestamp("2024-01-01")  # a Monday
    for place, row in enumerate(rows):
        forecast = session.push(row, when=start + pd.Timedelta(hours=place))
    assert session.state.slot.tolist() == [[99, 99]]
    assert forecast.shape == (HORIZON, 2)
    truth = torch.from_numpy(np.stack(hours(107), axis=1)[100:])
    assert (forecast - truth).abs()[:, 0].mean() < 0.6
    bands = session.quantiles([80, 95])
    assert bands.shape == (HORIZON, 2, 4)
    low80, low95, high80, high95 = bands.unbind(-1)
    assert bool(((low95 <= low80) & (low80 <= forecast) & (forecast <= high80) & (high80 <= high95)).all())
    kept = session.to_bytes()
    other = model.stream()
    other.restore(kept)
    torch.testing.assert_close(other.push(rows[0]), session.push(rows[0]))


def test_the_native_engine_agrees_with_torch_and_takes_over_its_states(model: LagForecaster) -> None:
    fast, slow = model.stream(), model.stream(engine="torch")
    start = pd.Timestamp("2024-01-01")
    for place, row in enumerate(np.stack(hours(90), axis=1)):
        extras = {} if place % 3 else {"when": start + pd.Timedelta(hours=place)}
        if place % 7 == 6:
            extras["mask"] = False
        found, wanted = fast.push(row, **extras), slow.push(row, **extras)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        if place in (30, 60):
            fast.state, slow.state = slow.state, fast.state
    assert (fast.engine, slow.engine) == ("native", "torch")
    torch.testing.assert_close(fast.quantiles([80]), slow.quantiles([80]), rtol=1e-5, atol=1e-5)
    slow.restore(fast.to_bytes())
    torch.testing.assert_close(fast.push(row), slow.push(row), rtol=1e-5, atol=1e-5)


def test_intervals_cover_what_comes(model: LagForecaster) -> None:
    new = history(2500, seed=9)
    rows = torch.from_numpy(np.stack(new.series, axis=1))
    along = model.along(rows[None], model.init_state(1), slots=torch.from_numpy(new.slots[0])[None])
    inside = []
    for row in range(100, 2400, 5):
        state = along.state._replace(
            lags=along.lags[:, :, row], slot=along.slots[:, row], log_scale=along.log_scale[:, row]
        )
        bounds = model.predict_quantiles(state, torch.tensor([0.1, 0.9]))[0]
        truth = rows[row + 1 : row + 1 + HORIZON]
        inside.append(float(((truth >= bounds[..., 0]) & (truth <= bounds[..., 1])).double().mean()))
    assert abs(np.mean(inside) - 0.8) < 0.05


def test_the_scale_of_intervals_follows_a_change_of_noise(model: LagForecaster) -> None:
    """Jumps make errors larger than the spread says: the scale grows until as many are inside as should."""
    calm = history(1500, seed=3)
    jumps = np.random.default_rng(5).random(1500) < 0.1
    wild = History(
        series=[v + 8 * v.std() * jumps for v in calm.series], slots=calm.slots, clock="week", is_table=True
    )
    quiet, loud = (replay(model, some, [0, 0], [1500, 1500]).log_scale for some in (calm, wild))
    assert quiet.abs().max() < 0.5  # nothing changed, nothing to follow
    assert loud[..., 1].mean() > quiet[..., 1].mean() + 0.3  # 5 % may be outside, 10 % are


def test_many_rows_at_once_are_as_one_by_one_with_gaps_of_some_series(model: LagForecaster) -> None:
    """Series that begin at different times go through the loop first, then all through one pass."""
    known = history(90)
    late = replay(model, known, [0, 25], [90, 90])
    state = model.init_state(1)
    for row in range(90):
        given = torch.tensor([[values[row] for values in known.series]])
        slot = torch.tensor([[int(some[row]) for some in known.slots]])
        state = model.advance(given, state, slot=slot, mask=torch.tensor([[True, row >= 25]]))
    for one, other in zip(late, state, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-5)


def test_saved_and_loaded_it_forecasts_raw_values(model: LagForecaster, tmp_path: Path) -> None:
    again = load_model(save_model(model, tmp_path / "model"))
    rows = torch.from_numpy(np.stack(hours(50), axis=1)).unsqueeze(0)
    torch.testing.assert_close(again(rows)[0], model(rows)[0])
    assert again.fingerprint() == model.fold().fingerprint()  # type: ignore[operator]


def test_the_step_can_be_traced(model: LagForecaster) -> None:
    folded = model.fold()

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = folded

        def forward(self, row: torch.Tensor, state: object) -> object:
            return self.inner.step(row, state)

    state = folded.init_state(1)
    row = torch.tensor([[5.0, 50.0]], dtype=torch.float64)
    traced = torch.export.export(Step(), (row, state)).module()
    for value in range(12):
        want, state_after = folded.step(row + value, state)
        found, found_state = traced(row + value, state)
        torch.testing.assert_close(found, want, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(found_state.log_scale, state_after.log_scale)
        state = state_after


def test_residuals_are_relative_to_the_root_of_a_spread() -> None:
    model = LagForecaster(LagForecasterConfig(num_series=1, horizon_steps=2, lag_steps=8))
    lags = torch.randn(5, 1, 8, dtype=torch.float64)
    torch.testing.assert_close(model.spread(lags).square(), lags.std(-1, correction=0))
    assert float(model.spread(torch.zeros(1, 1, 8, dtype=torch.float64))) == pytest.approx(LEAST_SPREAD)


def test_few_residuals_make_wide_intervals_that_grow_with_the_horizon() -> None:
    """Quantiles read from a handful, most of which overlap, would hold far less than they say."""
    model = LagForecaster(LagForecasterConfig(num_series=1, horizon_steps=6, lag_steps=4))
    noise, widths = np.random.default_rng(0), {}
    for count in (1, 12, 99):
        errors = np.sqrt(np.arange(1, 7)) * noise.choice([-1.0, 1.0], size=count)[:, None]  # a random walk
        set_student_quantiles(model, [Residuals(errors, np.ones(count))])
        widths[count] = (model.quantiles[0, :, -2] - model.quantiles[0, :, 1]).numpy()
    normal = 2 * 1.96 * np.sqrt(np.arange(1, 7))
    np.testing.assert_allclose(widths[99], normal, rtol=0.08)
    assert (widths[12] > 1.1 * normal).all()
    assert (widths[1] > 1.3 * normal).all()


def test_the_scale_of_a_series_with_few_residuals_lies_between_its_own_and_that_of_all() -> None:
    model = LagForecaster(LagForecasterConfig(num_series=3, horizon_steps=2, lag_steps=4))
    sizes, nothing = (np.full((10, 2), 0.5), np.full((10, 2), 2.0)), np.zeros((0, 2))
    given = [Residuals(some, np.ones(len(some))) for some in (*sizes, nothing)]
    set_student_quantiles(model, given)
    small, large, unknown = (model.quantiles[:, 0, -2] - model.quantiles[:, 0, 1]).tolist()
    assert 4 * 0.5 < small < large < 4 * 2.0 * 1.3
    assert unknown > 1.5 * small  # the scale of all, and wide, as nothing else is known


def test_a_row_that_stood_still_is_no_reason_for_huge_intervals() -> None:
    model = LagForecaster(LagForecasterConfig(num_series=1, horizon_steps=2, lag_steps=4))
    widths, noise = [], np.random.default_rng(0)
    for still in (0, 1):
        spreads = np.where(np.arange(30) < still, LEAST_SPREAD / 100, noise.uniform(0.5, 1.5, size=30))
        set_student_quantiles(model, [Residuals(noise.normal(size=(30, 2)), spreads)])
        widths.append(float(model.quantiles[0, 0, -2] - model.quantiles[0, 0, 1]))
    assert widths[1] < 3 * widths[0]


def test_covariates_are_taken_away_and_put_back() -> None:
    noise = np.random.default_rng(2)
    rows = 1200
    holiday = (noise.random(rows) < 0.1).astype(np.float64)[:, None]
    values = hours(rows)[0] + 4.0 * holiday[:, 0]
    known = History(
        series=[values[:1000]],
        slots=[np.arange(1000) % 168],
        covariates=[holiday[:1000]],
        clock="week",
    )
    fitted = fit_base(
        known, horizon_steps=12, lag_steps=48, fit_ends=[800], judge_ends=[1000], is_refitted=True
    )
    state = replay(fitted.model, known, [900], [1000])
    future = torch.from_numpy(holiday[1000:1012])[None]
    with_it = fitted.model.predict(state, covariates=future)[0, :, 0].numpy()
    assert np.abs(with_it - values[1000:1012]).mean() < 0.6
    assert np.allclose(
        (with_it - fitted.model.predict(state)[0, :, 0].numpy())[holiday[1000:1012, 0] == 1], 4.0, atol=0.5
    )


def test_wrong_shapes_and_settings_are_named(model: LagForecaster) -> None:
    with pytest.raises(ShapeError, match=r"a row must be \(b, 2\); got \(1, 3\)"):
        model.step(torch.zeros(1, 3), model.init_state(1))
    with pytest.raises(ShapeError, match="this model takes 0 covariates"):
        model.step(torch.zeros(1, 2), model.init_state(1), covariates=torch.zeros(1, 1))
    with pytest.raises(ConfigError, match="unknown clock 'moon'"):
        LagForecasterConfig(num_series=1, horizon_steps=1, clock="moon")
    with pytest.raises(ConfigError, match="joint_steps must be at most lag_steps"):
        LagForecasterConfig(num_series=1, horizon_steps=1, lag_steps=4, joint_steps=5)


def test_few_and_many_lags_are_judged_by_the_same_rows() -> None:
    """With 24 lags nothing can be fitted before the first origin: an error there counts all the same."""
    noise = np.random.default_rng(3)
    values, scores = np.zeros(84), {}
    for row in range(2, 84):
        values[row] = 1.5 * values[row - 1] - 0.9 * values[row - 2] + noise.normal()
    cuts = [[33], [50], [67], [84]]
    for lags in (6, 24):
        slots = {"none": [np.zeros(84, dtype=np.int64)]}
        scores[lags] = choose([values], slots, cuts, lag_steps=lags, horizon_steps=10)
    assert scores[6].scores["none", "last"] == pytest.approx(scores[24].scores["none", "last"])


def test_no_rows_change_nothing(model: LagForecaster) -> None:
    state = model.init_state(1)
    forecasts, same = model(torch.zeros(1, 0, 2), state)
    assert forecasts.shape == (1, 0, HORIZON, 2)
    assert same is state
