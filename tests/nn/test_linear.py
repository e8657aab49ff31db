"""Linear attention, retention and the minimal GRU against their definitions, item by item."""

import pytest
import torch
from torch import Tensor, nn

from aaren.errors import ConfigError, StateError
from aaren.nn import Encoder, LinearAttention, MinGRU, Retention, TensorOnly
from aaren.nn.linear import CHUNK

LENGTH = 2 * CHUNK + 5


def heads(layer: LinearAttention, x: Tensor) -> list[Tensor]:
    split = (*x.shape[:2], layer.num_heads, layer.head_width)
    return [project(x).view(split) for project in (layer.q_proj, layer.k_proj, layer.v_proj)]


def test_linear_attention_is_attention_with_features() -> None:
    layer, x = LinearAttention(6, 2).double(), torch.randn(2, LENGTH, 6, dtype=torch.float64)
    query, keys, values = heads(layer, x)
    weights = torch.einsum(
        "bihd,bjhd->bhij", nn.functional.elu(query) + 1, nn.functional.elu(keys) + 1
    ).tril()
    weights = weights / weights.sum(-1, keepdim=True)
    expected = layer.out_proj(torch.einsum("bhij,bjhd->bihd", weights, values).flatten(2))
    torch.testing.assert_close(layer(x)[0], expected, atol=1e-6, rtol=1e-6)  # 1e-6 stands beside the sums


def test_retention_forgets_at_a_fixed_rate_per_head() -> None:
    layer, x = Retention(6, 2).double(), torch.randn(2, LENGTH, 6, dtype=torch.float64)
    query, keys, values = heads(layer, x)
    distance = torch.arange(LENGTH).unsqueeze(1) - torch.arange(LENGTH)
    decay = torch.stack([torch.tensor(1 - 2.0 ** (-5 - head)).double() ** distance for head in range(2)])
    weights = torch.einsum("bihd,bjhd->bhij", query, keys) * (decay * 3**-0.5).tril()
    mixed = nn.functional.layer_norm(torch.einsum("bhij,bjhd->bihd", weights, values), (3,)).flatten(2)
    expected = layer.out_proj(nn.functional.silu(layer.gate_proj(x)) * mixed)
    torch.testing.assert_close(layer(x)[0], expected, atol=1e-7, rtol=1e-7)


def test_the_minimal_gru_is_a_gated_mean() -> None:
    layer, x = MinGRU(6).double(), torch.randn(2, LENGTH, 6, dtype=torch.float64)
    gates, inner = torch.sigmoid(layer.gate_proj(x)), layer.candidate_proj(x)
    candidates = torch.where(inner >= 0, inner + 0.5, torch.sigmoid(inner))
    hidden, expected = torch.zeros(2, 6, dtype=torch.float64), []
    for k in range(LENGTH):
        hidden = (1 - gates[:, k]) * hidden + gates[:, k] * candidates[:, k]
        expected.append(hidden)
    y, state = layer(x)
    torch.testing.assert_close(y, torch.stack(expected, 1))
    torch.testing.assert_close(state.hidden, hidden)


@pytest.mark.parametrize("size", [1e4, -1e4])
@pytest.mark.parametrize("layer", [LinearAttention(6, 2), Retention(6, 2), MinGRU(6)], ids=lambda m: m.name)
def test_large_inputs_give_finite_outputs_and_gradients(layer: nn.Module, size: float) -> None:
    layer.zero_grad()
    y, _ = layer(torch.full((1, 70, 6), size))
    y.sum().backward()
    assert y.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_bad_use() -> None:
    with pytest.raises(ConfigError, match="num_heads must divide width"):
        LinearAttention(6, 4)
    with pytest.raises(ConfigError, match="num_heads must divide width"):
        Encoder(width=6, num_heads=4, mixer="retnet")
    with pytest.raises(StateError, match="MatrixState of shape"):
        Retention(6, 2).step(torch.randn(1, 6), LinearAttention(6, 2).init_state(1))
    with pytest.raises(ConfigError, match="mixer='mingru' takes no log_decay"):
        MinGRU(6)(torch.randn(1, 2, 6), log_decay=torch.zeros(1, 2, 6))


def test_a_layer_for_sequential_returns_a_tensor() -> None:
    encoder = Encoder(width=8, num_heads=2, num_layers=1, dropout=0.0)
    model, x = nn.Sequential(nn.Linear(3, 8), TensorOnly(encoder), nn.Linear(8, 2)), torch.randn(2, 5, 3)
    torch.testing.assert_close(model(x), model[2](encoder(model[0](x))[0]))
