"""The gated layer: what it adds to the laws that every mixer obeys."""

import math

import pytest
import torch
import torch.nn.functional as F

from aaren.errors import ConfigError
from aaren.nn import AarenAttention, Encoder, EncoderConfig
from aaren.ops import combine, read, scan_attention
from support.mixers import fold_steps

GATES = ["forget", "output", "both"]
X = torch.randn(2, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def make(gates: str, num_heads: int = 2) -> AarenAttention:
    return AarenAttention(8, num_heads, gates=gates, dtype=torch.float64).eval()


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("num_heads", [2, 8])
def test_outputs_equal_the_definition(gates: str, num_heads: int) -> None:
    layer = make(gates, num_heads)
    scores, offset = layer._score(X)
    values = layer.v_proj(X).unflatten(-1, (num_heads, -1))
    rates = torch.zeros_like(scores)
    if layer.forget_proj is not None:
        rates = F.logsigmoid(layer.forget_proj(X))
    averages, _ = scan_attention(scores + offset, values, log_decay=rates, backend="naive")
    averages = averages.flatten(-2)
    if layer.gate_proj is not None:
        averages = 2 * layer.gate_proj(X).sigmoid() * averages
    torch.testing.assert_close(layer(X)[0], layer.out_proj(averages))


@pytest.mark.parametrize("gates", GATES)
def test_folding_halves_and_names_agree(gates: str) -> None:
    layer = make(gates)
    folded = layer.fold()
    assert folded.fingerprint() == layer.fingerprint() != make("none").fingerprint()
    torch.testing.assert_close(folded(X)[0], layer(X)[0])
    half, _ = fold_steps(layer.bfloat16().fold(), X.bfloat16(), layer.init_state(2))
    torch.testing.assert_close(half.double(), folded(X)[0], atol=0.1, rtol=0.1)


def test_gates_of_one_shape_have_names_of_their_own() -> None:
    forget, output = make("forget", 8), make("output", 8)
    with torch.no_grad():
        output.gate_proj.weight.copy_(forget.forget_proj.weight)
        output.gate_proj.bias.copy_(forget.forget_proj.bias)
    shared = {name: part for name, part in forget.state_dict().items() if "forget" not in name}
    output.load_state_dict(shared, strict=False)
    assert output.fingerprint() != forget.fingerprint()


def test_half_lives_start_from_2_to_1024_items_and_output_gates_near_1() -> None:
    layer = AarenAttention(64, 4, gates="both")
    layer.reset_parameters()
    rates = layer.total_decay(torch.zeros(1, 64))[0]
    torch.testing.assert_close(
        -math.log(2) / rates, torch.tensor([2.0, 16.0, 128.0, 1024.0]), rtol=1e-3, atol=0
    )
    gates = 2 * torch.sigmoid(layer.gate_proj(torch.zeros(64)).detach())
    assert float(gates.mean()) == pytest.approx(1.0, abs=0.05)
    assert "gates='both'" in repr(layer)


def test_decays_add_up() -> None:
    layer = make("forget")
    given = -torch.rand(2, 9, 2, dtype=torch.float64)
    torch.testing.assert_close(layer.total_decay(X, given), layer.total_decay(X) + given)
    assert make("output").total_decay(X) is None
    given[:, 4] = -math.inf  # a reset from outside
    y, _ = layer(X, log_decay=given)
    torch.testing.assert_close(y[:, 4:], layer(X[:, 4:], log_decay=given[:, 4:].clamp(min=-1e9))[0])
    y.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("cut", [1, 5])
def test_pieces_merge_by_the_later_ones_decay(cut: int) -> None:
    layer = make("both")
    _, whole = layer(X)
    (_, first), (_, second) = layer(X[:, :cut]), layer(X[:, cut:])
    total = layer.total_decay(X[:, cut:]).sum(1)
    torch.testing.assert_close(read(combine(first, second, log_decay=total)), read(whole))
    assert not torch.allclose(read(combine(first, second)), read(whole))


def test_a_million_items_with_gates_of_every_size() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.rand(1, 1_000_000, 1, generator=generator) * 16.0  # gates from 0.5 to 1 - 1e-7
    scores, values = torch.randn(2, 1, 1_000_000, 1, generator=generator)
    rates = -F.softplus(-logits)
    outputs, _ = scan_attention(scores, values.unsqueeze(-1), log_decay=rates)
    exact, _ = scan_attention(
        scores.double(), values.double().unsqueeze(-1), log_decay=-F.softplus(-logits.double())
    )
    torch.testing.assert_close(outputs.double(), exact, atol=2e-6, rtol=2e-6)


def test_only_aaren_takes_gates() -> None:
    with pytest.raises(ConfigError, match=r"mixer='gru' does not take gates='both' \(of aaren\)"):
        EncoderConfig(mixer="gru", gates="both")
    for build in (
        lambda: AarenAttention(8, 2, gates="bot"),
        lambda: Encoder(width=8, num_heads=2, gates="bot"),
    ):
        with pytest.raises(ConfigError, match="unknown gates 'bot'; did you mean 'both'"):
            build()
