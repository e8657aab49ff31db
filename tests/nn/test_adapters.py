"""Projections that are not plain linear layers take part in forward and step; they are not folded."""

import itertools
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from aaren.errors import ConfigError
from aaren.nn import AarenAttention, Conv, Encoder, EncoderConfig
from support.mixers import fold_steps

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


class LowRank(nn.Module):
    """As adapters are written: around a layer, without a weight of its own."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(2, base.in_features))
        self.up = nn.Parameter(torch.randn(base.out_features, 2))

    def forward(self, x: Tensor) -> Tensor:
        adapted: Tensor = self.base(x) + x @ self.down.to(x.dtype).T @ self.up.to(x.dtype).T
        return adapted


class DoublingLinear(nn.Linear):
    """A subclass of torch's own, with another forward."""

    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * super().forward(x)


def hooked(linear: nn.Linear) -> nn.Linear:
    linear.register_forward_hook(lambda _module, _inputs, output: output * 1.5)
    return linear


def hooked_before(linear: nn.Linear) -> nn.Linear:
    linear.register_forward_pre_hook(lambda _module, inputs: (inputs[0] * 1.5,))
    return linear


def patched(linear: nn.Linear) -> nn.Linear:
    plain = linear.forward
    linear.forward = lambda x: plain(x) * 1.5
    return linear


def old_weight_norm(linear: nn.Linear) -> nn.Linear:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        normed: nn.Linear = nn.utils.weight_norm(linear)
    nn.init.uniform_(normed.weight_g)
    return normed


def new_weight_norm(linear: nn.Linear) -> nn.Linear:
    normed: nn.Linear = nn.utils.parametrizations.weight_norm(linear)
    nn.init.uniform_(normed.parametrizations.weight.original0)
    return normed


def pruned(linear: nn.Linear) -> nn.Linear:
    removed: nn.Linear = prune.l1_unstructured(linear, "weight", 0.5)
    return removed


def quantised(linear: nn.Linear) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: nn.Module = torch.ao.quantization.quantize_dynamic(nn.Sequential(linear), {nn.Linear})[0]
    return found


ADAPTERS: dict[str, Callable[[nn.Linear], nn.Module]] = {
    "low rank": LowRank,
    "subclass": lambda linear: DoublingLinear(linear.in_features, linear.out_features),
    "forward hook": hooked,
    "forward pre-hook": hooked_before,
    "patched forward": patched,
    "old weight_norm": old_weight_norm,
    "new weight_norm": new_weight_norm,
    "pruned": pruned,
    "quantised": quantised,
}


# Dynamic quantisation rounds inputs by the largest one of a call: a step's are not those of a sequence.
TOLERANCE = {"quantised": {"atol": 0.2, "rtol": 0.2}}


@pytest.fixture(params=ADAPTERS)
def adapt(request: pytest.FixtureRequest) -> Callable[[nn.Linear], nn.Module]:
    return ADAPTERS[request.param]


@pytest.fixture
def tolerance(request: pytest.FixtureRequest) -> dict[str, float]:
    kind = next(name for name, adapter in ADAPTERS.items() if adapter is request.getfixturevalue("adapt"))
    return TOLERANCE.get(kind, {"atol": 1e-5, "rtol": 1e-5})


def the_long_way(layer: AarenAttention, x: Tensor) -> Tensor:
    """Compute what the layer is defined as, calling all four projections."""
    split = (layer.num_heads, layer.head_width)
    query = layer.q_proj(layer.query.unsqueeze(0)).view(split)
    keys, values = (project(x).view(*x.shape[:2], *split) for project in (layer.k_proj, layer.v_proj))
    scores = (keys * query).sum(-1) * layer.head_width**-0.5
    outputs = []
    for k in range(1, x.shape[1] + 1):
        weights = scores[:, :k].softmax(1)
        outputs.append(layer.out_proj((weights.unsqueeze(-1) * values[:, :k]).sum(1).flatten(-2)))
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("name", PROJECTIONS)
def test_an_adapted_projection_takes_part_in_forward_and_step_and_is_not_folded(
    adapt: Callable[[nn.Linear], nn.Module], tolerance: dict[str, float], name: str
) -> None:
    layer, x = AarenAttention(12, 3).eval(), torch.randn(2, 5, 12)
    plain = layer(x)[0]
    setattr(layer, name, adapt(getattr(layer, name)))
    expected = the_long_way(layer, x)
    assert (expected - plain).abs().max() > 1e-6
    y, state = layer(x)
    torch.testing.assert_close(y, expected, **tolerance)
    with torch.no_grad():
        stepped, after = fold_steps(layer, x, layer.init_state(2))
    torch.testing.assert_close(stepped, expected, **tolerance)
    for a, b in zip(after, state, strict=True):
        torch.testing.assert_close(a, b, **tolerance)
    with pytest.raises(ConfigError, match=f"{name}.*Merge adapters first"):
        layer.fold()


@pytest.mark.parametrize("name", PROJECTIONS)
def test_an_adapter_is_trained(name: str) -> None:
    layer = AarenAttention(12, 3).double()
    adapter = LowRank(getattr(layer, name)).double()
    setattr(layer, name, adapter)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    expected = torch.autograd.grad(the_long_way(layer, x).square().sum(), [adapter.up, adapter.down])
    found = torch.autograd.grad(layer(x)[0].square().sum(), [adapter.up, adapter.down])
    torch.testing.assert_close(found, expected)
    assert all(gradient.abs().max() > 0 for gradient in found)


def test_backward_hooks_of_the_keys_are_called() -> None:
    layer, seen = AarenAttention(12, 3), []
    layer.k_proj.register_full_backward_hook(lambda _module, _inputs, outputs: seen.append(outputs[0]))
    layer(torch.randn(2, 5, 12, requires_grad=True))[0].square().sum().backward()
    assert seen[0].abs().max() > 0


def test_an_adapted_key_scores_precisely_under_autocast() -> None:
    layer = AarenAttention(12, 3).eval()
    layer.k_proj = LowRank(layer.k_proj)
    x = torch.randn(2, 12)
    _, exact = layer.step(x, layer.init_state(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, found = layer.step(x.bfloat16().float(), layer.init_state(2))
        layer(x.bfloat16().unsqueeze(1))
    _, expected = layer.step(x.bfloat16().float(), layer.init_state(2))
    torch.testing.assert_close(found.m, expected.m)
    assert (found.m - exact.m).abs().max() < 0.5


@pytest.mark.parametrize("channels", [4, 12])
def test_an_adapted_convolution_takes_part_everywhere(
    adapt: Callable[[nn.Linear], nn.Module], tolerance: dict[str, float], channels: int
) -> None:
    conv = Conv(kernel=2, channels=channels)
    encoder = Encoder(width=12, num_heads=3, num_layers=1, ff_width=12, dropout=0.0, conv=conv).eval()
    x = torch.randn(2, 5, 12)
    before, _ = encoder(x)
    (level,) = encoder.layers[0].conv.levels
    for name in ("narrow", "taps") if channels < 12 else ("taps",):
        setattr(level, name, adapt(getattr(level, name)))
    y, _ = encoder(x)
    assert not torch.equal(y, before)
    with torch.no_grad():
        stepped, _ = fold_steps(encoder, x, encoder.init_state(2))
    torch.testing.assert_close(stepped, y, **tolerance)


@pytest.mark.parametrize("where", ["", "layers.0", "layers.0.mixer", "layers.0.feed_forward.widen"])
def test_hooks_are_not_folded(where: str) -> None:
    encoder = Encoder(EncoderConfig(width=12, num_heads=3, num_layers=1, mixer="gru"))
    encoder.get_submodule(where).register_forward_hook(lambda _module, _inputs, output: output)
    with pytest.raises(ConfigError, match=where or "the module"):
        encoder.fold()


@pytest.mark.parametrize("biases", list(itertools.product([False, True], repeat=2)))
def test_keys_and_values_may_differ_in_having_a_bias(biases: tuple[bool, bool]) -> None:
    layer, x = AarenAttention(12, 3).double().eval(), torch.randn(2, 5, 12, dtype=torch.float64)
    for name, has_bias in zip(("k_proj", "v_proj"), biases, strict=True):
        setattr(layer, name, nn.Linear(12, 12, bias=has_bias, dtype=torch.float64))
    expected, state = layer(x)
    found, folded_state = layer.fold()(x)
    torch.testing.assert_close(found, expected)
    for a, b in zip(folded_state, state, strict=True):
        torch.testing.assert_close(a, b)


def test_adapted_layers_compile() -> None:
    torch._dynamo.reset()
    layer, x = AarenAttention(12, 3).eval(), torch.randn(2, 5, 12)
    layer.k_proj = LowRank(layer.k_proj)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x)[0], layer(x)[0])
    torch._dynamo.reset()
