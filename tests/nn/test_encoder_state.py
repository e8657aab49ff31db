import pytest
import torch

from aaren.errors import ConfigError
from aaren.nn import Encoder, EncoderConfig
from aaren.nn.block import MIXERS
from aaren.nn.blocks import state_to_bytes


@pytest.fixture(params=MIXERS)
def encoder(request: pytest.FixtureRequest) -> Encoder:
    config = EncoderConfig(width=8, num_heads=2, num_layers=2, mixer=request.param)
    return Encoder(config, dtype=torch.float64).eval()


def test_select_picks_streams_in_the_order_given(encoder: Encoder) -> None:
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    with torch.no_grad():
        _, state = encoder(x)
        y, _ = encoder.step(x[[2, 0, 2], 0], state.select([2, 0, 2]))
        expected, _ = encoder.step(x[:, 0], state)
    torch.testing.assert_close(y, expected[[2, 0, 2]])
    torch.testing.assert_close(encoder.step(x[1:2, 0], state.select(torch.tensor([1])))[0], expected[1:2])
    y, _ = encoder.step(x[:0, 0], state.select([]))
    assert y.shape == (0, 8)


def test_detach_stops_gradients(encoder: Encoder) -> None:
    x = torch.randn(1, 2, 8, dtype=torch.float64, requires_grad=True)
    _, state = encoder(x)
    y, _ = encoder(x.detach(), state.detach())
    y.sum().backward()
    assert x.grad is None


def test_clone_has_its_own_memory(encoder: Encoder) -> None:
    x = torch.randn(1, 2, 8, dtype=torch.float64)
    with torch.no_grad():
        _, state = encoder(x)
        cloned = state.clone()
        before, _ = encoder.step(x[:, 0], cloned)
        for layer in state.layers:
            first = layer[0][0] if isinstance(layer[0], tuple) else layer[0]
            first.fill_(7.0)
        after, _ = encoder.step(x[:, 0], cloned)
    assert torch.equal(before, after)


def test_to_changes_dtype_and_bytes(encoder: Encoder) -> None:
    x = torch.randn(1, 4, 8, dtype=torch.float64)
    with torch.no_grad():
        _, state = encoder(x)
        single = state.to(dtype=torch.float32, device="cpu")
        assert single.nbytes < state.nbytes
        y, gone_on = encoder.step(x[:, 0], single)
        expected, _ = encoder.step(x[:, 0], state)
        torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-5)
        assert gone_on.nbytes < state.nbytes or encoder.config.mixer == "softmax"
        # The empty state is the identity in every dtype, though its lowest number differs.
        empty = encoder.init_state(1).to(dtype=torch.float32)
        y, _ = encoder.step(x[:, 0], empty)
        torch.testing.assert_close(y, encoder(x)[0][:, 0], atol=1e-5, rtol=1e-5)


def test_to_takes_what_a_tensors_to_takes(encoder: Encoder) -> None:
    _, state = encoder(torch.randn(2, 3, 8, dtype=torch.float64))
    small = state_to_bytes(state.to(dtype=torch.float32))
    for converted in (
        state.to(torch.float32),
        state.to("cpu", torch.float32),
        state.to(torch.float32, device=torch.device("cpu")),
    ):
        assert state_to_bytes(converted) == small
    for same in (state.to("cpu"), state.to(torch.device("cpu")), state.to(device="cpu")):
        assert state_to_bytes(same) == state_to_bytes(state)
    with pytest.raises(ConfigError, match="each named once"):
        state.to("cpu", device="cpu")
    with pytest.raises(ConfigError, match="a state is floating point"):
        state.to(torch.int64)
