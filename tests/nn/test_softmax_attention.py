import math

import pytest
import torch
from torch import Tensor

from aaren.errors import ConfigError, StateError
from aaren.nn import AarenAttention, SoftmaxAttention


def the_long_way(layer: SoftmaxAttention, x: Tensor, window: int | None = None) -> Tensor:
    split = (layer.num_heads, layer.head_width)
    query, keys, values = (p(x).unflatten(-1, split) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    scores = torch.einsum("bqhd,bkhd->bhqk", query, keys) / math.sqrt(layer.head_width)
    age = torch.arange(x.shape[1]).unsqueeze(1) - torch.arange(x.shape[1])
    hidden = (age < 0) | (age >= (window or x.shape[1]))
    weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
    return layer.out_proj(torch.einsum("bhqk,bkhd->bqhd", weights, values).flatten(-2))


@pytest.mark.parametrize("window", [None, 1, 3, 20])
def test_outputs_equal_the_definition(window: int | None) -> None:
    layer = SoftmaxAttention(12, 3, window=window, dtype=torch.float64)
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    torch.testing.assert_close(layer(x)[0], the_long_way(layer, x, window))


def test_a_long_windowed_stream_equals_the_definition_in_bounded_memory() -> None:
    layer = SoftmaxAttention(4, 1, window=5, dtype=torch.float64)
    x = torch.randn(2, 100, 4, dtype=torch.float64)
    expected = the_long_way(layer, x, 5)
    state, sizes = layer.init_state(2), set()
    with torch.no_grad():
        for k in range(100):
            y, state = layer.step(x[:, k], state)
            torch.testing.assert_close(y, expected[:, k])
            sizes.add(state.keys.shape[2])
    assert max(sizes) <= 16


def test_padding_asks_with_a_zero_input() -> None:
    layer = SoftmaxAttention(8, 2, dtype=torch.float64)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False, False], [False] * 5])
    y, state = layer(x, mask=mask)
    zeroed = torch.cat([x[:1, :3], torch.zeros(1, 1, 8, dtype=torch.float64)], dim=1)
    query = layer.q_proj(zeroed[:, 3:]).unflatten(-1, (2, 4))
    keys, values = (p(x[:1, :3]).unflatten(-1, (2, 4)) for p in (layer.k_proj, layer.v_proj))
    weights = torch.einsum("bqhd,bkhd->bhqk", query, keys).div(2.0).softmax(-1)
    expected = layer.out_proj(torch.einsum("bhqk,bkhd->bqhd", weights, values).flatten(-2))
    torch.testing.assert_close(y[:1, 3:], expected.expand(1, 2, 8))
    torch.testing.assert_close(y[1], layer.out_proj.bias.expand(5, 8))  # nothing seen: attention outputs 0
    assert state.ends.tolist() == [3, 0]
    # The same with a hole instead of right padding goes another way and must agree.
    y_hole, _ = layer(x, mask=torch.tensor([[False, True, True, True, False], [False] * 5]))
    y_right, _ = layer(x[:, 1:], mask=torch.tensor([[True, True, True, False], [False] * 4]))
    torch.testing.assert_close(y_hole[:, 1:], y_right)


@pytest.mark.parametrize("kind", [AarenAttention, SoftmaxAttention])
@pytest.mark.parametrize("dropout_on", ["weights", "output"])
def test_both_twins_are_regularised(kind: type[torch.nn.Module], dropout_on: str) -> None:
    layer = kind(16, 2, dropout=0.5, dropout_on=dropout_on)
    x = torch.randn(4, 6, 16)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])


@pytest.mark.parametrize("masked", [False, True])
def test_steps_with_frozen_keys_and_values_can_be_differentiated(masked: bool) -> None:
    """The query's gradient needs the cache as it was, though nothing in the cache has a gradient itself."""
    layer = SoftmaxAttention(8, 2)
    layer.k_proj.requires_grad_(False)
    layer.v_proj.requires_grad_(False)
    x, state = torch.randn(2, 5, 8), layer.init_state(2)
    real = torch.ones(2, 5, dtype=torch.bool)
    real[1, 2] = not masked
    outputs = []
    for k in range(5):
        y, state = layer.step(x[:, k], state, mask=real[:, k])
        outputs.append(y)
    found = torch.autograd.grad(torch.stack(outputs, 1).square().sum(), layer.q_proj.weight)
    want = torch.autograd.grad(layer(x, mask=real)[0].square().sum(), layer.q_proj.weight)
    torch.testing.assert_close(found, want)


def test_streaming_on_leaves_what_autograd_needs_alone() -> None:
    layer = SoftmaxAttention(8, 2)
    x = torch.randn(2, 5, 8)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    y, state = layer(x[:, :3], mask=mask)
    y_next, branch = layer.step(x[:, 3], state, mask=torch.tensor([True, False]))
    with torch.no_grad():
        layer.step(x[:, 4], state)
        layer.step(x[:, 4], branch)
    (y.sum() + y_next.sum()).backward()
    assert layer.k_proj.weight.grad.any()


def test_training_on_nothing() -> None:
    layer = SoftmaxAttention(8, 2, dropout=0.5)
    for shape in ((2, 0, 8), (0, 3, 8)):
        y, _ = layer(torch.randn(shape))
        y.sum().backward()
        assert y.shape == shape


def test_bad_input() -> None:
    with pytest.raises(ConfigError, match="window must be at least 1, the item itself; got 0"):
        SoftmaxAttention(8, 2, window=0)
    layer = SoftmaxAttention(8, 2)
    with pytest.raises(ConfigError, match="mixer='softmax' takes no log_decay"):
        layer(torch.randn(1, 2, 8), log_decay=torch.zeros(1, 2, 2))
    with pytest.raises(StateError, match=r"a cache of 3 streams, 2 heads of width 4; got 2, 2 and 4"):
        layer.step(torch.randn(3, 8), layer.init_state(2))
    with pytest.raises(StateError, match="needs a state of kind KVCache; got ScanState"):
        layer.step(torch.randn(3, 8), AarenAttention(8, 2).init_state(3))
    assert "window=3" in repr(SoftmaxAttention(8, 2, window=3))


def test_reset_parameters_draws_anew() -> None:
    layer = SoftmaxAttention(8, 2)
    before = layer.k_proj.weight.clone()
    layer.reset_parameters()
    assert not torch.equal(before, layer.k_proj.weight)
