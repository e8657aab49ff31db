from typing import Any

import pytest
import torch
from torch import Tensor

from aaren.errors import ConfigError, DataError, ShapeError, StateError
from aaren.forecasting.streaming import StreamingForecaster, StreamingForecasterConfig, StreamingState
from aaren.nn.blocks import state_from_bytes, state_to_bytes

EXACT = {"rtol": 0.0, "atol": 1e-10}
ROWS = 15


def build(**options: Any) -> StreamingForecaster:
    config = {"num_series": 3, "horizon_steps": 4, "width": 16, "num_heads": 4, "half_life_steps": 8.0}
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return StreamingForecaster(StreamingForecasterConfig(**{**config, **options})).double().eval()


@pytest.fixture(params=["aaren", "aaren learned", "softmax", "gru", "folded"])
def model(request: pytest.FixtureRequest) -> StreamingForecaster:
    name = request.param
    if name == "folded":
        return build(decay="learned").fold()
    mixer, _, decay = name.partition(" ")
    return build(mixer=mixer, decay=decay or None)


@pytest.fixture
def rows(rng: torch.Generator) -> Tensor:
    return 5.0 + torch.randn(2, ROWS, 3, generator=rng, dtype=torch.float64)


@pytest.fixture
def marks(rng: torch.Generator) -> Tensor:
    return torch.rand(2, ROWS, 4, generator=rng, dtype=torch.float64) - 0.5


def fold_steps(
    model: StreamingForecaster, rows: Tensor, marks: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, StreamingState]:
    state, forecasts = model.init_state(len(rows)), []
    for place in range(rows.shape[1]):
        forecast, state = model.step(
            rows[:, place], state, marks=marks[:, place], mask=None if mask is None else mask[:, place]
        )
        forecasts.append(forecast)
    return torch.stack(forecasts, dim=1), state


def test_folding_step_equals_forward(model: StreamingForecaster, rows: Tensor, marks: Tensor) -> None:
    whole, final = model(rows, marks)
    stepped, last = fold_steps(model, rows, marks)
    torch.testing.assert_close(stepped, whole, **EXACT)
    torch.testing.assert_close(model(rows, marks, last)[0], model(rows, marks, final)[0], **EXACT)
    torch.testing.assert_close(model.predict(final), whole[:, -1], **EXACT)


@pytest.mark.parametrize("cut", [1, 2, 7, ROWS - 1])
def test_any_split_with_carried_state_equals_the_whole(
    model: StreamingForecaster, rows: Tensor, marks: Tensor, cut: int
) -> None:
    whole, _ = model(rows, marks)
    first, state = model(rows[:, :cut], marks[:, :cut])
    second, _ = model(rows[:, cut:], marks[:, cut:], state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, **EXACT)


def test_it_is_strictly_causal(model: StreamingForecaster, rows: Tensor, marks: Tensor) -> None:
    before, _ = model(rows, marks)
    rows[:, 9:] += 100.0
    after, _ = model(rows, marks)
    torch.testing.assert_close(after[:, :9], before[:, :9], **EXACT)
    assert not torch.allclose(after[:, 9], before[:, 9])


def test_a_masked_row_is_no_row(model: StreamingForecaster, rows: Tensor, marks: Tensor) -> None:
    mask = torch.ones(2, ROWS, dtype=torch.bool)
    mask[0, [0, 3, 4, ROWS - 1]] = False
    mask[1] = False
    rows[~mask] = torch.nan
    forecasts, state = model(rows, marks, mask=mask)
    alone, alone_state = model(rows[:1][:, mask[0]], marks[:1][:, mask[0]])
    torch.testing.assert_close(forecasts[:1, mask[0]], alone, **EXACT)
    torch.testing.assert_close(forecasts[0, 3:5], forecasts[0, [2, 2]], **EXACT)
    torch.testing.assert_close(model.predict(state)[:1], model.predict(alone_state), **EXACT)
    assert (forecasts[1] == 0).all()  # nothing seen, nothing said
    with torch.no_grad():
        stepped, last = fold_steps(model, rows, marks, mask)
    torch.testing.assert_close(stepped, forecasts, **EXACT)
    torch.testing.assert_close(model.predict(last), model.predict(state), **EXACT)


def test_a_stream_without_a_new_row_keeps_its_state_bit_for_bit(rows: Tensor, marks: Tensor) -> None:
    model = build(decay="learned")
    _, state = model(rows, marks)
    mask = torch.tensor([True, False])
    with torch.no_grad():
        _, after = model.step(rows[:, 0], state, marks=marks[:, 0], mask=mask)
    assert state_to_bytes(after.select([1])) == state_to_bytes(state.select([1]))
    assert state_to_bytes(after.select([0])) != state_to_bytes(state.select([0]))


def test_the_state_does_not_grow(rows: Tensor, marks: Tensor) -> None:
    model = build(decay="learned")
    _, state = model(rows, marks)
    _, later = model(rows.repeat(1, 100, 1), marks.repeat(1, 100, 1), state, positions=torch.tensor([-1]))
    assert state.nbytes == later.nbytes == model.init_state(2).nbytes


def test_the_statistics_have_the_stated_half_life(rows: Tensor, marks: Tensor) -> None:
    _, state = build(half_life_steps=4.0)(rows, marks)
    mean, deviation = build(half_life_steps=4.0).statistics.read(state.statistics, torch.float64)
    weights = 0.5 ** (torch.arange(ROWS - 1, -1, -1, dtype=torch.float64) / 4.0)
    weights = (weights / weights.sum()).unsqueeze(-1)
    expected = (rows * weights).sum(1)
    variance = ((rows - expected.unsqueeze(1)).square() * weights).sum(1)
    torch.testing.assert_close(mean, expected)
    torch.testing.assert_close(deviation, (variance + 1e-5).sqrt())


def test_positions_choose_forecasts(rows: Tensor, marks: Tensor) -> None:
    model = build()
    chosen, _ = model(rows, marks, positions=torch.tensor([3, 8]))
    torch.testing.assert_close(chosen, model(rows, marks)[0][:, [3, 8]])


def test_every_weight_learns(rows: Tensor, marks: Tensor) -> None:
    model = build(decay="learned")
    model(rows, marks)[0].square().sum().backward()
    assert {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()} <= {
        f"encoder.layers.{layer}.mixer.k_proj.bias" for layer in range(2)
    }


def test_constant_rows_and_very_long_streams_stay_finite(marks: Tensor) -> None:
    model = build(decay="learned")
    rows = torch.full((2, ROWS, 3), 7.0, dtype=torch.float64)
    forecasts, _ = model(rows, marks)
    forecasts.sum().backward()
    assert forecasts.isfinite().all()
    assert (forecasts[:, -1] - 7.0).abs().max() < 0.1


def test_a_session_pushes_rows_and_can_be_put_away_and_taken_up(rows: Tensor, marks: Tensor) -> None:
    model = build()
    whole, _ = model(rows, marks)
    session = model.stream()
    for place in range(6):
        forecast = session.push(rows[0, place], marks=marks[0, place])
    torch.testing.assert_close(forecast, whole[0, 5], **EXACT)
    kept, before = session.to_bytes(), session.state
    later = session.push(rows[0, 6].tolist(), marks=marks[0, 6].numpy())
    torch.testing.assert_close(later, whole[0, 6], **EXACT)
    session.state = before
    torch.testing.assert_close(session.push(rows[0, 6], marks=marks[0, 6]), later, rtol=0, atol=0)
    other = model.stream()
    other.restore(kept)
    torch.testing.assert_close(other.push(rows[0, 6], marks=marks[0, 6]), later, rtol=0, atol=0)
    with pytest.raises(StateError, match="saved by other weights"):
        build(num_layers=1).stream().restore(kept)


def test_a_session_of_many_streams(rows: Tensor, marks: Tensor) -> None:
    model = build()
    session = model.stream(batch_size=2)
    first = session.push(rows[:, 0], marks=marks[:, 0])
    row = rows[:, 1].clone()
    row[1, 2] = torch.nan
    second = session.push(row, marks=marks[:, 1], mask=[True, False])
    torch.testing.assert_close(second[1], first[1], rtol=0, atol=0)
    with pytest.raises(DataError, match=r"item 2 of this session holds nan at \(1, 2\).*mask=False"):
        session.push(row, marks=marks[:, 1])
    session.reset()
    torch.testing.assert_close(session.push(rows[:, 0], marks=marks[:, 0]), first, rtol=0, atol=0)


def test_a_state_survives_conversion(rows: Tensor, marks: Tensor) -> None:
    model = build()
    _, state = model(rows, marks)
    again = state_from_bytes(
        state_to_bytes(state, fingerprint=model.fingerprint()),
        like=model.init_state(1),
        fingerprint=model.fold().fingerprint(),
    )
    torch.testing.assert_close(model.predict(again), model.predict(state), rtol=0, atol=0)
    small = state.to(dtype=torch.float32)
    assert small.encoder.nbytes < state.encoder.nbytes
    assert small.statistics.w.dtype == torch.float64
    assert not state.clone().detach().output.requires_grad


def test_dates_may_be_left_out_of_the_model(rows: Tensor) -> None:
    forecasts, _ = build(num_marks=0)(rows)
    assert forecasts.shape == (2, ROWS, 4, 3)


def test_every_stream_takes_one_row(model: StreamingForecaster, rows: Tensor, marks: Tensor) -> None:
    state = model.init_state(3)
    for count in (1, 2):
        words = rf"state is of 3 streams; items for {count} came.*init_state\({count}\).*select"
        with pytest.raises(StateError, match=words):
            model.step(rows[:count, 0], state, marks=marks[:count, 0])
        with pytest.raises(StateError, match=words):
            model(rows[:count], marks[:count], state)


@pytest.mark.parametrize(
    ("mask", "step_words", "words"),
    [
        (
            torch.ones(2),
            "bool, True = real item; got torch.float32",
            "bool, True = real item; got torch.float32",
        ),
        (
            torch.ones(2, 1, dtype=torch.bool),
            r"\(b,\) = \(2,\); got \(2, 1\)",
            r"\(b, t\) = \(2, 15\); got \(2, 1\)",
        ),
        (
            torch.ones(3, dtype=torch.bool),
            r"\(b,\) = \(2,\); got \(3,\)",
            r"\(b, t\) = \(2, 15\); got \(3,\)",
        ),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(
    rows: Tensor, marks: Tensor, mask: Tensor, step_words: str, words: str
) -> None:
    model = build()
    with pytest.raises(ShapeError, match=f"mask must be {step_words}"):
        model.step(rows[:, 0], model.init_state(2), marks=marks[:, 0], mask=mask)
    with pytest.raises(ShapeError, match=f"mask must be {words}"):
        model(rows, marks, mask=mask)


def test_what_does_not_fit_is_said(rows: Tensor, marks: Tensor) -> None:
    model = build()
    with pytest.raises(ShapeError, match=r"looks at dates: give marks \(b, t, 4\)"):
        model(rows)
    with pytest.raises(ShapeError, match=r"rows must be \(b, t, 3\).*got \(2, 15, 2\)"):
        model(rows[:, :, :2], marks)
    with pytest.raises(ShapeError, match=r"rows must be \(b, 3\)"):
        model.step(rows, model.init_state(2), marks=marks)
    with pytest.raises(StateError, match="StreamingState; got EncoderState"):
        model(rows, marks, model.init_state(2).encoder)
    with pytest.raises(ConfigError, match="half_life_steps must be positive; got 0"):
        build(half_life_steps=0)
    with pytest.raises(ConfigError, match="does not take decay='learned'"):
        build(mixer="softmax", decay="learned")
