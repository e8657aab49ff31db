import pytest
import torch
from torch import Tensor

from aaren.errors import ConfigError, StateError
from aaren.nn import WKV, AarenAttention


def time_mixing(layer: WKV, x: Tensor) -> Tensor:
    """RWKV-4's time mixing as a loop over time, sums kept as they stand (small inputs only)."""
    before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
    for_keys, for_values, for_gates = (x * share + before * (1 - share) for share in layer.blend)
    keys, values = layer.k_proj(for_keys), layer.v_proj(for_values)
    gates = torch.sigmoid(layer.gate_proj(for_gates))
    numerator, denominator = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    outputs = []
    for k in range(x.shape[1]):
        now = torch.exp(keys[:, k] + layer.bonus)
        outputs.append((numerator + now * values[:, k]) / (denominator + now))
        decay = torch.exp(-layer.log_rate.exp())
        numerator = decay * numerator + keys[:, k].exp() * values[:, k]
        denominator = decay * denominator + keys[:, k].exp()
    return layer.out_proj(gates * torch.stack(outputs, dim=1))


@pytest.mark.parametrize("t", [1, 2, 63, 64, 65, 130])
def test_outputs_and_gradients_equal_the_loop(t: int) -> None:
    layer = WKV(6, dtype=torch.float64)
    x = torch.randn(2, t, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, t, 6, dtype=torch.float64)
    expected, found = time_mixing(layer, x), layer(x)[0]
    torch.testing.assert_close(found, expected)
    inputs = {"x": x, **dict(layer.named_parameters())}
    grads = [
        torch.autograd.grad((y * weights).sum(), list(inputs.values()), materialize_grads=True)
        for y in (found, expected)
    ]
    for name, a, b in zip(inputs, *grads, strict=True):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}", atol=1e-11, rtol=1e-8)


def test_large_keys_stay_finite() -> None:
    layer = WKV(6)
    with torch.no_grad():
        layer.k_proj.weight.mul_(1e4)
    y, state = layer(torch.randn(2, 50, 6))
    y.sum().backward()
    assert y.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
    assert state.sums.w.isfinite().all()


def test_reset_parameters_and_repr() -> None:
    layer = WKV(6, dropout=0.2)
    before = layer.k_proj.weight.clone()
    layer.reset_parameters()
    assert not torch.equal(before, layer.k_proj.weight)
    assert "width=6, dropout=0.2" in repr(layer)
    assert not torch.equal(layer(torch.ones(2, 3, 6))[0], layer(torch.ones(2, 3, 6))[0])


def test_bad_input() -> None:
    layer = WKV(6)
    with pytest.raises(ConfigError, match="mixer='wkv' takes no log_decay"):
        layer(torch.randn(1, 2, 6), log_decay=torch.zeros(1, 2, 6))
    with pytest.raises(StateError, match="needs a state of kind WKVState; got ScanState"):
        layer.step(torch.randn(1, 6), AarenAttention(6, 6).init_state(1))
    with pytest.raises(StateError, match="3 streams, 6 heads of width 1"):
        layer.step(torch.randn(3, 6), layer.init_state(2))
    state = layer.init_state(2)
    with pytest.raises(StateError, match=r"latest input is \(2, 6\); got \(1, 6\)"):
        layer.step(torch.randn(2, 6), state._replace(last=state.last[:1]))
