import pytest
import torch

from aaren.errors import ConfigError, StateError
from aaren.nn import GRU, LSTM, WKV


@pytest.mark.parametrize(("kind", "reference"), [(GRU, torch.nn.GRU), (LSTM, torch.nn.LSTM)])
def test_equals_pytorchs_own_module(kind: type[GRU | LSTM], reference: type[torch.nn.RNNBase]) -> None:
    mixer, own = kind(6, dtype=torch.float64), reference(6, 6, batch_first=True, dtype=torch.float64)
    own.load_state_dict(
        {
            "weight_ih_l0": mixer.weight_input,
            "weight_hh_l0": mixer.weight_hidden,
            "bias_ih_l0": mixer.bias_input,
            "bias_hh_l0": mixer.bias_hidden,
        }
    )
    x = torch.randn(3, 7, 6, dtype=torch.float64)
    y, state = mixer(x)
    expected, final = own(x)
    torch.testing.assert_close(y, expected)
    final = final if isinstance(final, tuple) else (final,)
    for part, expected_part in zip(state, final, strict=True):
        torch.testing.assert_close(part, expected_part[0])


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_a_masked_position_repeats_the_output_of_the_prefix(kind: type[GRU | LSTM]) -> None:
    mixer = kind(6, dtype=torch.float64)
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    y, _ = mixer(x, mask=torch.tensor([[False, True, False, True]]))
    assert torch.equal(y[:, 0], torch.zeros(1, 6, dtype=torch.float64))
    assert torch.equal(y[:, 2], y[:, 1])
    torch.testing.assert_close(y[:, [1, 3]], mixer(x[:, [1, 3]])[0])


def test_states_keep_their_dtype() -> None:
    mixer = LSTM(6)
    y, state = mixer(torch.randn(2, 3, 6), mixer.init_state(2, dtype=torch.float64))
    assert (y.dtype, state.hidden.dtype, state.cell.dtype) == (torch.float32, torch.float64, torch.float64)
    y, state = mixer.step(torch.randn(2, 6), state)
    assert (y.dtype, state.cell.dtype) == (torch.float32, torch.float64)


def test_dropout_acts_on_outputs_only() -> None:
    mixer = GRU(64, dropout=0.5)
    x = torch.randn(4, 5, 64)
    y, state = mixer(x)
    assert float((y == 0).float().mean()) == pytest.approx(0.5, abs=0.06)
    assert not (state.hidden == 0).any()
    y, _ = mixer.step(x[:, 0], state)
    assert (y == 0).any()


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_masked_content_reaches_no_weight_in_a_step(kind: type[GRU | LSTM]) -> None:
    mixer, x = kind(6), torch.randn(2, 6)
    x[1] = torch.nan
    y, _ = mixer.step(x, mixer.init_state(2), mask=torch.tensor([True, False]))
    y.sum().backward()
    assert all(p.grad.isfinite().all() for p in mixer.parameters())


@pytest.mark.parametrize("kind", [GRU, LSTM])
@pytest.mark.parametrize("shape", [(0, 3, 6), (2, 0, 6)])
def test_nothing_in_gives_nothing_out(kind: type[GRU | LSTM], shape: tuple[int, ...]) -> None:
    mixer, x = kind(6), torch.randn(shape)
    y, state = mixer(x, mask=torch.ones(shape[:2], dtype=torch.bool))
    assert (y.shape, state.hidden.shape) == (shape, (shape[0], 6))


@pytest.mark.parametrize("kind", [GRU, LSTM, WKV])
def test_bad_settings(kind: type[GRU | LSTM | WKV]) -> None:
    with pytest.raises(ConfigError, match="width must be an integer of at least 1; got 0"):
        kind(0)
    for dropout in (1.5, -1.0):
        with pytest.raises(ConfigError, match=f"dropout must be at least 0 and below 1; got {dropout}"):
            kind(6, dropout=dropout)


def test_bad_input() -> None:
    mixer = GRU(6)
    with pytest.raises(ConfigError, match="mixer='gru' takes no log_decay"):
        mixer(torch.randn(1, 2, 6), log_decay=torch.zeros(1, 2, 1))
    with pytest.raises(StateError, match=r"a GRUState of shape \(3, 6\); got \(2, 6\)"):
        mixer.step(torch.randn(3, 6), mixer.init_state(2))
    with pytest.raises(StateError, match="needs a state of kind GRUState; got LSTMState"):
        mixer.step(torch.randn(3, 6), LSTM(6).init_state(3))
    assert "width=6, dropout=0.0" in repr(mixer)
