"""What tells a stack about order: convolutions and positions; what they refuse, keep and export."""

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren import fields
from aaren.errors import ConfigError, StateError
from aaren.nn import Conv, Encoder, EncoderConfig, EncoderState
from aaren.nn.conv import CausalConv
from aaren.nn.embedding import Position, position_encoding
from support.mixers import fold_steps

SMALL = {"width": 8, "num_heads": 2, "num_layers": 1, "ff_width": 8, "dropout": 0.0}
ORDERS: dict[str, dict[str, object]] = {
    "convolution": {"conv": Conv(kernel=3)},
    "wide stem": {"conv": Conv(kernel=2, dilations=(1, 2), where="stem", channels=8)},
    "narrow stem": {"conv": Conv(kernel=2, dilations=(1, 2), where="stem", channels=3)},
    "sinusoid": {"position": "sinusoid"},
    "learned": {"position": "learned"},
}


@pytest.mark.parametrize("order", ORDERS)
def test_order_matters_only_where_something_tells_it(order: str) -> None:
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    shuffled = x[:, [3, 0, 2, 1, 4, 5]]  # the last item stays
    blind = Encoder(**SMALL, dtype=torch.float64)
    torch.testing.assert_close(blind(x)[0][:, -1], blind(shuffled)[0][:, -1])
    seeing = Encoder(**SMALL, **ORDERS[order], dtype=torch.float64)
    assert (seeing(x)[0][:, -1] - seeing(shuffled)[0][:, -1]).abs().max() > 1e-4


@pytest.mark.parametrize("channels", [None, 8, 3])
def test_the_convolution_is_pytorchs(channels: int | None) -> None:
    conv = CausalConv(8, Conv(kernel=4, dilations=(3,), channels=channels), has_norm=False).double()
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    (level,) = conv.levels
    read = x if level.narrow is None else level.narrow(x)
    if channels is None:
        weight, groups = level.taps.weight.T.unsqueeze(1), 8
    else:
        weight, groups = level.taps.weight.view(8, 4, channels).transpose(1, 2), 1
    padded = F.pad(read.transpose(1, 2), (9, 0))
    expected = F.conv1d(padded, weight, level.taps.bias, dilation=3, groups=groups)
    torch.testing.assert_close(conv(x)[0], x + F.gelu(expected.transpose(1, 2)))


@pytest.mark.parametrize(
    "options",
    [
        {"conv": Conv(), "position": "sinusoid", "decay": "learned"},
        {"conv": Conv(where="stem"), "position": "learned"},
        {"conv": Conv(kernel=9, dilations=(1, 2, 4, 8), where="stem", channels=8), "width": 64},
    ],
)
def test_a_default_streams_state_stays_small(options: dict[str, object]) -> None:
    assert Encoder(**options).init_state(1).nbytes < 8_000


def test_a_state_does_not_hold_the_memory_of_a_sequence() -> None:
    encoder = Encoder(**SMALL, conv=Conv(kernel=3, where="stem"))
    _, state = encoder(torch.randn(1, 1000, 8))
    (tail,) = state.front[0].tails
    assert tail.untyped_storage().nbytes() == tail.nbytes


def test_settings_are_read_from_a_table() -> None:
    faults: list[str] = []
    table = {"width": 64, "conv": {"kernel": 9, "dilations": [1, 2], "where": "stem", "channels": 8}}
    config = fields.build(EncoderConfig, table, faults)
    assert faults == []
    assert config == EncoderConfig(width=64, conv=Conv(kernel=9, dilations=(1, 2), where="stem", channels=8))
    assert fields.to_mapping(config)["conv"] == table["conv"]
    fields.build(EncoderConfig, {"conv": {"kernle": 3}}, faults)
    assert faults == ["unknown key 'conv.kernle'; did you mean 'conv.kernel'?"]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Conv(kernel=1), "kernel must be at least 2"),
        (lambda: Conv(dilations=()), "dilations must hold at least one distance"),
        (lambda: Conv(dilations=(1, 0)), "each at least 1"),
        (lambda: Conv(where="head"), "where 'head'.*block, stem"),
        (lambda: Conv(channels=0), "channels must be at least 1; got 0"),
        (lambda: EncoderConfig(width=8, conv=Conv(channels=9)), "at most width=8 channels"),
        (lambda: Conv(kernel="4"), "kernel: expected an integer, got '4'"),
        (lambda: EncoderConfig(position="learnt"), "position 'learnt'.*'learned'"),
        (lambda: EncoderConfig(position="learned", max_positions=0), "max_positions must be at least 1"),
        (lambda: Encoder(widht=8), "unknown key 'widht'; did you mean 'width'"),
        (lambda: Encoder(EncoderConfig(), width=8), "not both; got a config and width"),
        (lambda: Encoder(64), "takes an EncoderConfig, or its fields by name"),
    ],
)
def test_bad_settings(build: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build()


def test_the_learned_table_refuses_what_comes_after_its_end() -> None:
    encoder = Encoder(**SMALL, position="learned", max_positions=4)
    x = torch.randn(2, 5, 8)
    with pytest.raises(ConfigError, match=r"max_positions=4; an item came at position 4.*max_positions"):
        encoder(x)
    mask = torch.tensor([[True, False, True, True, True], [True, True, False, False, False]])
    _, state = encoder(x, mask=mask)
    with pytest.raises(ConfigError, match="an item came at position 4"):
        encoder.step(x[:, 0], state)
    with pytest.raises(ConfigError, match="an item came at position 5"):
        encoder(x[:, :2], state)
    encoder.step(x[:, 0], state, mask=torch.tensor([False, True]))  # no item, no position
    encoder(x[:, :1], state, mask=torch.tensor([[False], [True]]))


def test_a_position_far_into_a_stream_is_exact() -> None:
    position = Position("sinusoid", 4)
    state = position.init_state(1)._replace(num_items=torch.tensor([10_000_000]))
    found, _ = position.step(torch.zeros(1, 4, dtype=torch.float64), state)
    angles = torch.tensor([1e7, 1e5], dtype=torch.float64)
    expected = torch.stack([angles.sin(), angles.cos()], -1).flatten()
    torch.testing.assert_close(found[0], expected, rtol=0.0, atol=1e-8)
    torch.testing.assert_close(position(torch.zeros(1, 7, 4))[0][0], position_encoding(7, 4))


def test_sinusoids_warn_once_beyond_the_length_of_training() -> None:
    encoder, x = Encoder(**SMALL, position="sinusoid"), torch.randn(2, 9, 8)
    encoder.eval()(x)  # nothing is known of its training
    encoder.train()(x[:, :4])
    encoder(x[:, :5], mask=torch.tensor([[True] * 5, [True, False, True, True, False]]))
    encoder = encoder.eval().fold()
    _, state = encoder(x[:, :5])
    with pytest.warns(UserWarning, match="item 6 came, beyond the 5 that this model was trained on"):
        _, state = encoder.step(x[:, 5], state)
    encoder.step(x[:, 6], state)
    encoder(x)


def test_a_state_of_another_order_is_refused() -> None:
    x = torch.randn(2, 8)
    encoders = {name: Encoder(**SMALL, **options) for name, options in ORDERS.items()}
    encoders["none"] = Encoder(**SMALL)
    for (name, encoder), (other, stranger) in itertools.product(encoders.items(), repeat=2):
        if name != other and {name, other} != {"sinusoid", "learned"}:
            with pytest.raises(StateError, match="init_state"):
                encoder.step(x, stranger.init_state(2))
    with pytest.raises(StateError, match="init_state"):
        encoders["sinusoid"].step(x, encoders["sinusoid"].init_state(1))


class Step(nn.Module):
    """What is exported for a device: one step, state in and state out."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor, state: EncoderState) -> tuple[Tensor, EncoderState]:
        return self.encoder.step(x, state)


EXPORTED = [*ORDERS.values(), *({"mixer": m} for m in ("linear", "retnet", "mingru"))]


@pytest.mark.parametrize("options", EXPORTED, ids=str)
def test_the_exported_step_equals_the_eager_one(options: dict[str, object]) -> None:
    encoder = Encoder(**SMALL, **options).eval().fold()
    x = torch.randn(5, 2, 8)
    state = encoder.init_state(2)
    exported = torch.export.export(Step(encoder), (x[0], state)).module()
    for item in x:
        expected, after = encoder.step(item, state)
        found, state = exported(item, state)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        assert [a.shape for a in torch.utils._pytree.tree_leaves(state)] == [
            a.shape for a in torch.utils._pytree.tree_leaves(after)
        ]


@pytest.mark.parametrize("order", ["wide stem", "convolution", "learned"])
def test_compiled_training_equals_eager(order: str) -> None:
    torch._dynamo.reset()
    encoder, x = Encoder(**SMALL, **ORDERS[order]), torch.randn(2, 5, 8)
    mask = torch.tensor([[True, False, True, True, False], [True] * 5])
    compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
    weights = list(encoder.parameters())
    expected = torch.autograd.grad(encoder(x, mask=mask)[0][mask].square().sum(), weights)
    found = torch.autograd.grad(compiled(x, mask=mask)[0][mask].square().sum(), weights)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    torch._dynamo.reset()


def test_a_stepped_stem_equals_forward_in_single_precision() -> None:
    conv = Conv(kernel=9, dilations=(1, 2), where="stem", channels=4)
    encoder = Encoder(**SMALL, conv=conv, position="sinusoid").eval()
    x = torch.randn(2, 40, 8)
    with torch.no_grad():
        stepped, _ = fold_steps(encoder.fold(), x, encoder.init_state(2))
        torch.testing.assert_close(stepped, encoder(x)[0], atol=1e-5, rtol=1e-5)
