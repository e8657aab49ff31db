import pytest
import torch

from aaren.nn import AarenAttention


@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize("out_bias", [True, False])
def test_folding_keeps_outputs_and_states(qkv_bias: bool, out_bias: bool) -> None:
    layer = AarenAttention(12, 3, qkv_bias=qkv_bias, out_bias=out_bias, dtype=torch.float64).eval()
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
