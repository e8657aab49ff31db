import copy
import math

import pytest
import torch
from torch import Tensor

from aaren.errors import ConfigError, ShapeError, StateError
from aaren.nn import GRU, AarenAttention, Encoder, EncoderConfig, SoftmaxAttention
from aaren.nn.block import MIXERS


def the_long_way(layer: AarenAttention, x: Tensor) -> Tensor:
    """The definition: keys of every item, a softmax over every prefix."""
    split = (layer.num_heads, layer.head_width)
    query = layer.q_proj(layer.query).view(split)
    keys, values = layer.k_proj(x).unflatten(-1, split), layer.v_proj(x).unflatten(-1, split)
    scores = torch.einsum("hd,bthd->bth", query, keys) / math.sqrt(layer.head_width)
    outputs = [
        torch.einsum("bth,bthd->bhd", scores[:, : k + 1].softmax(dim=1), values[:, : k + 1])
        for k in range(x.shape[1])
    ]
    return layer.out_proj(torch.stack(outputs, dim=1).flatten(-2))


@pytest.mark.parametrize("qkv_bias", [True, False])
def test_outputs_and_gradients_equal_the_definition(qkv_bias: bool, rng: torch.Generator) -> None:
    layer = AarenAttention(12, 3, qkv_bias=qkv_bias, dtype=torch.float64)
    x = torch.randn(2, 9, 12, generator=rng, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 9, 12, generator=rng, dtype=torch.float64)
    inputs = {"x": x, **dict(layer.named_parameters())}
    expected, found = the_long_way(layer, x), layer(x)[0]
    torch.testing.assert_close(found, expected)
    expected_grads = torch.autograd.grad((expected * weights).sum(), list(inputs.values()))
    found_grads = torch.autograd.grad((found * weights).sum(), list(inputs.values()))
    for name, a, b in zip(inputs, found_grads, expected_grads, strict=True):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}", atol=1e-12, rtol=1e-9)


def test_the_first_output_is_the_first_value_whatever_the_query() -> None:
    layer = AarenAttention(8, 2)
    x = torch.randn(3, 1, 8)
    torch.testing.assert_close(layer(x)[0], layer.out_proj(layer.v_proj(x)))


def test_the_query_adds_width_parameters_to_the_twin() -> None:
    aaren, softmax = AarenAttention(64, 4), SoftmaxAttention(64, 4)
    assert sum(p.numel() for p in aaren.parameters()) == sum(p.numel() for p in softmax.parameters()) + 64


@torch.no_grad()
def test_the_scores_of_both_twins_start_with_the_same_spread() -> None:
    x = torch.nn.functional.layer_norm(torch.randn(64, 64, 256), (256,))
    spreads = []
    for _ in range(8):
        layer = AarenAttention(256, 4)
        weight, _ = layer.folded_keys()
        constant = (x @ weight.T).std()
        keys, queries = layer.k_proj(x).unflatten(-1, (4, 64)), layer.q_proj(x).unflatten(-1, (4, 64))
        own = (keys * queries.roll(1, dims=0)).sum(-1).div(8.0).std()
        spreads.append(float(constant / own))
    assert sum(spreads) / len(spreads) == pytest.approx(1.0, abs=0.15)


def test_the_state_is_float64_by_default_and_keeps_the_dtype_it_came_with() -> None:
    layer = AarenAttention(8, 2)
    x = torch.randn(2, 5, 8)
    assert layer(x)[1].w.dtype == torch.float64
    assert layer.init_state(2).w.dtype == torch.float64
    single = layer.init_state(2, dtype=torch.float32)
    y, state = layer(x, single)
    assert (y.dtype, state.w.dtype) == (torch.float32, torch.float32)
    y, state = layer.step(x[:, 0], state)
    assert (y.dtype, state.w.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(layer(x)[0], layer(x, single)[0])


def test_one_stream_costs_the_bytes_it_should() -> None:
    assert AarenAttention(512, 4).init_state(1).nbytes == (512 + 2 * 4) * 8


def test_weight_dropout_drops_values_and_keeps_the_normaliser() -> None:
    layer = AarenAttention(8, 2, dropout=0.4, qkv_bias=False)
    torch.nn.init.eye_(layer.v_proj.weight)
    torch.nn.init.eye_(layer.out_proj.weight)
    torch.nn.init.zeros_(layer.out_proj.bias)
    x = torch.ones(500, 3, 8)
    y, state = layer(x)
    torch.testing.assert_close(
        state.u[..., 0], torch.full_like(state.u[..., 0], 3.0)
    )  # equal items: weight 1 each
    first = y[:, 0].unflatten(-1, (2, 4))
    assert first.detach().unique().tolist() == [0.0, pytest.approx(1 / 0.6)]
    assert torch.equal(first, first[..., :1].expand_as(first))  # one choice per sequence, head and item
    assert float(y.detach().mean()) == pytest.approx(1.0, abs=0.05)
    torch.testing.assert_close(layer.eval()(x)[0], x)


def test_output_dropout_acts_before_the_output_projection() -> None:
    layer = AarenAttention(8, 2, dropout=0.4, dropout_on="output")
    torch.nn.init.eye_(layer.out_proj.weight)
    torch.nn.init.zeros_(layer.out_proj.bias)
    y, state = layer(torch.randn(50, 4, 8))
    share = float((y == 0).float().mean())
    assert share == pytest.approx(0.4, abs=0.06)
    y, _ = layer.step(torch.randn(50, 8), state)
    assert float((y == 0).float().mean()) == pytest.approx(0.4, abs=0.12)


def test_an_empty_prefix_outputs_zero_attention() -> None:
    layer = AarenAttention(8, 2)
    mask = torch.tensor([[False, False, True]])
    x = torch.randn(1, 3, 8)
    y, _ = layer(x, mask=mask)
    torch.testing.assert_close(y[0, :2], layer.out_proj.bias.expand(2, 8))
    y, _ = layer.step(x[:, 0], layer.init_state(1), mask=torch.tensor([False]))
    torch.testing.assert_close(y[0], layer.out_proj.bias)


def test_a_masked_position_repeats_the_output_of_the_prefix() -> None:
    layer = AarenAttention(8, 2)
    x = torch.randn(1, 4, 8)
    y, _ = layer(x, mask=torch.tensor([[True, True, False, True]]))
    torch.testing.assert_close(y[:, 2], y[:, 1])


def test_decay_forgets_and_step_agrees() -> None:
    layer = AarenAttention(8, 2, dtype=torch.float64)
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    decay = -torch.rand(2, 6, 2, dtype=torch.float64)
    decay[:, 3] = -torch.inf
    y, _ = layer(x, log_decay=decay)
    torch.testing.assert_close(y[:, 3:], layer(x[:, 3:], log_decay=decay[:, 3:])[0])
    state = layer.init_state(2)
    for k in range(6):
        y_k, state = layer.step(x[:, k], state, log_decay=decay[:, k])
        torch.testing.assert_close(y_k, y[:, k])


def test_padding_does_not_decay() -> None:
    layer = AarenAttention(8, 2)
    x, decay = torch.randn(1, 3, 8), torch.full((1, 3, 2), -1.0)
    mask = torch.tensor([[True, False, True]])
    with_padding, _ = layer(x, mask=mask, log_decay=decay)
    without, _ = layer(x[:, [0, 2]], log_decay=decay[:, [0, 2]])
    torch.testing.assert_close(with_padding[:, [0, 2]], without)


def test_made_like_pytorchs_own_modules() -> None:
    layer = AarenAttention(8, 2, dtype=torch.float64, device="cpu", dropout=0.1)
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    assert "width=8, num_heads=2, dropout=0.1, dropout_on='weights'" in repr(layer)
    twin = copy.deepcopy(layer)
    assert all(torch.equal(a, b) for a, b in zip(twin.parameters(), layer.parameters(), strict=True))
    twin.reset_parameters()
    assert not any(torch.equal(a, b) for a, b in zip(twin.parameters(), layer.parameters(), strict=True))
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin.query, layer.query)
    assert AarenAttention(8, 2, device="meta").query.is_meta


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"width": 10, "num_heads": 4},
            "num_heads must divide width: 10 is not a multiple of 4. Nearest that do: 2, 5.",
        ),
        ({"width": 8, "num_heads": 0}, "num_heads must be an integer of at least 1; got 0"),
        ({"width": 8, "num_heads": 2, "dropout": 1.0}, "dropout must be at least 0 and below 1; got 1.0"),
        ({"width": 8, "num_heads": 2, "dropout_on": "keys"}, "must be 'weights' or 'output'; got 'keys'"),
    ],
)
def test_bad_settings(arguments: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        AarenAttention(**arguments)


def test_bad_inputs_name_what_was_expected() -> None:
    layer = AarenAttention(8, 2)
    with pytest.raises(
        ShapeError, match=r"x must be \(b, t, c\) with c = 8; got \(2, 8\). For one item.*call step"
    ):
        layer(torch.randn(2, 8))
    with pytest.raises(
        ShapeError, match=r"x must be \(b, c\) with c = 8.*got \(2, 3, 8\). For a whole seq.*forward"
    ):
        layer.step(torch.randn(2, 3, 8), layer.init_state(2))
    with pytest.raises(ShapeError, match="mask must be bool"):
        layer(torch.randn(2, 3, 8), mask=torch.ones(2, 3))
    with pytest.raises(ShapeError, match=r"mask must be \(b, t\) = \(2, 3\); got \(2, 4\)"):
        layer(torch.randn(2, 3, 8), mask=torch.ones(2, 4, dtype=torch.bool))


@pytest.mark.parametrize("is_folded", [False, True])
def test_a_decay_of_another_shape_is_refused_everywhere(is_folded: bool) -> None:
    layer = AarenAttention(8, 2)
    layer = layer.fold() if is_folded else layer
    x, mask = torch.randn(3, 4, 8), torch.ones(3, 4, dtype=torch.bool)
    with pytest.raises(ShapeError, match=r"log_decay must be \(b, t, h\) = \(3, 4, 2\).*got \(3, 4\)"):
        layer(x, mask=mask, log_decay=torch.zeros(3, 4))
    for decay in (torch.zeros(3, 1), torch.zeros(2), torch.zeros(3, 2, dtype=torch.int64)):
        with pytest.raises(ShapeError, match=r"log_decay must be \(b, h\) = \(3, 2\), floating point; got"):
            layer.step(x[:, 0], layer.init_state(3), log_decay=decay)


def test_masked_content_reaches_no_weight_in_a_step() -> None:
    layer = AarenAttention(8, 2)
    x = torch.randn(2, 8)
    x[1] = torch.nan
    y, _ = layer.step(x, layer.init_state(2), mask=torch.tensor([True, False]))
    y.sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_a_foreign_state_is_refused_and_left_alone() -> None:
    layer = AarenAttention(8, 2)
    x = torch.randn(3, 8)
    with pytest.raises(StateError, match=r"needs a state of 3 streams, 2 heads of width 4.*init_state\(3\)"):
        layer.step(x, layer.init_state(2))
    with pytest.raises(StateError, match="2 heads of width 4"):
        layer(x.unsqueeze(1), AarenAttention(8, 4).init_state(3))
    with pytest.raises(StateError, match=r"float64 or float32 throughout.*state\.to\(torch\.float32\)"):
        layer.step(x, layer.init_state(3, dtype=torch.bfloat16))
    with pytest.raises(StateError, match="needs a state of kind ScanState; got GRUState"):
        layer.step(x, GRU(8).init_state(3))
    state = layer.init_state(2)
    before = [part.clone() for part in state]
    with pytest.raises(StateError):
        layer.step(x, state)
    assert all(torch.equal(a, b) for a, b in zip(state, before, strict=True))


@pytest.mark.parametrize("qkv_bias", [True, False])
def test_folding_keeps_outputs_and_states(qkv_bias: bool) -> None:
    layer = AarenAttention(12, 3, qkv_bias=qkv_bias, dtype=torch.float64).eval()
    folded = layer.fold()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    (y, state), (folded_y, folded_state) = layer(x), folded(x)
    torch.testing.assert_close(folded_y, y)
    for a, b in zip(folded_state, state, strict=True):
        torch.testing.assert_close(a, b)


def test_folding_leaves_the_original_untouched_and_independent() -> None:
    layer = AarenAttention(8, 2)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    folded = layer.fold()
    x = torch.randn(1, 3, 8)
    y, _ = folded(x)
    with torch.no_grad():
        layer.v_proj.weight.zero_()
    assert torch.equal(folded(x)[0], y)
    layer.load_state_dict(before)
    torch.testing.assert_close(layer(x)[0], y)
    assert folded.fold() is folded


def test_folded_has_fewer_parameters_and_trains_none() -> None:
    folded = AarenAttention(512, 8).fold()
    # Values and output keep their matrices; per head, one vector and one number stand for query, W_q and W_k.
    assert sum(p.numel() for p in folded.parameters()) == 2 * (512 * 512 + 512) + 8 * (512 + 1)
    assert not any(p.requires_grad for p in folded.parameters())
    assert "width=512, num_heads=8" in repr(folded)


def test_half_precision_keeps_scores_precise() -> None:
    layer = AarenAttention(16, 2)
    with torch.no_grad():
        layer.query.mul_(50.0)  # large scores, where eight bits would be far off
    folded = layer.fold()
    x = torch.randn(2, 16)
    exact, _ = folded.step(x, folded.init_state(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, state = folded.step(x, folded.init_state(2))
        y2, state2 = layer.step(x, layer.init_state(2))
    expected = layer.init_state(2)
    _, expected = layer.step(x, expected)
    torch.testing.assert_close(state.m, expected.m)
    torch.testing.assert_close(state2.m, expected.m)
    assert y.dtype == y2.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), exact, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("mixer", MIXERS)
def test_shapes_can_be_asked_of_the_meta_device(mixer: str) -> None:
    encoder = Encoder(EncoderConfig(width=8, num_heads=2, mixer=mixer), device="meta").eval()
    x = torch.empty(3, 5, 8, device="meta")
    y, state = encoder(x)
    y_next, _ = encoder.step(x[:, 0], state)
    assert (y.shape, y_next.shape) == (x.shape, (3, 8))
    assert y.is_meta
