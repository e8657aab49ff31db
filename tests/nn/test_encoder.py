import copy
import functools
import json
import math
from collections.abc import Callable

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from aaren.errors import ConfigError, ShapeError, StateError
from aaren.nn import AarenAttention, Block, Conv, Encoder, EncoderConfig, EncoderState, SoftmaxAttention
from aaren.nn.block import MIXERS, LearnedDecay
from support.mixers import fold_steps


def small(**options: object) -> Encoder:
    return Encoder(EncoderConfig(width=8, num_heads=2, num_layers=2, **options)).eval()


def test_recurrent_mixers_ignore_the_number_of_heads() -> None:
    assert EncoderConfig(width=10, num_heads=4, mixer="gru").width == 10


def test_inject_is_added_before_every_layer() -> None:
    encoder = small(final_norm=True, norm_eps=1e-6)
    x, inject = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    before = x.clone()
    y, _ = encoder(x, inject=inject)
    expected = x
    for block in encoder.layers:
        expected, _ = block(expected + inject)
    torch.testing.assert_close(y, encoder.final_norm(expected))
    assert torch.equal(x, before)
    state = encoder.init_state(2)
    for k in range(5):
        y_k, state = encoder.step(x[:, k], state, inject=inject[:, k])
        torch.testing.assert_close(y_k, y[:, k], atol=1e-5, rtol=1e-5)


def test_log_decay_reaches_every_layer() -> None:
    encoder = small()
    x, decay = torch.randn(2, 5, 8), -torch.rand(2, 5, 2)
    y, _ = encoder(x, log_decay=decay)
    state = encoder.init_state(2)
    for k in range(5):
        y_k, state = encoder.step(x[:, k], state, log_decay=decay[:, k])
        torch.testing.assert_close(y_k, y[:, k], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(y, encoder(x)[0])


@pytest.mark.parametrize("mixer", MIXERS)
def test_only_the_mixer_differs(mixer: str) -> None:
    reference = {n: p.shape for n, p in small().named_parameters() if ".mixer." not in n}
    assert {n: p.shape for n, p in small(mixer=mixer).named_parameters() if ".mixer." not in n} == reference


def test_copies_and_weights_on_disk_give_the_same_outputs() -> None:
    encoder, x = small(), torch.randn(2, 5, 8)
    y, _ = encoder(x)
    assert torch.equal(copy.deepcopy(encoder)(x)[0], y)
    other = small()
    assert not torch.equal(other(x)[0], y)
    other.load_state_dict(encoder.state_dict())
    assert torch.equal(other(x)[0], y)


def test_the_fingerprint_knows_the_weights_and_survives_folding() -> None:
    encoder = small()
    name = encoder.fingerprint()
    assert encoder.fold().fingerprint() == name
    assert copy.deepcopy(encoder).double().fingerprint() == name
    assert copy.deepcopy(encoder).double().fold().fingerprint() == name
    assert small().fingerprint() != name


@pytest.mark.parametrize(
    "options",
    [
        *({"mixer": mixer} for mixer in MIXERS),
        {"decay": "learned"},
        {"conv": Conv(channels=4)},
        {"conv": Conv(where="stem"), "position": "learned"},
    ],
    ids=str,
)
def test_the_fingerprint_knows_every_weight_that_makes_a_state(options: dict[str, object]) -> None:
    encoder = small(**options)
    name = encoder.fingerprint()
    for parameter in encoder.parameters():
        with torch.no_grad():
            parameter.view(-1)[0].add_(1.0)
            changed = encoder.fingerprint()
            assert encoder.fold().fingerprint() == changed
            assert changed != name
            parameter.view(-1)[0].sub_(1.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"width": 10, "num_heads": 4}, "num_heads must divide width"),
        ({"num_layers": 0}, "num_layers must be at least 1; got 0"),
        ({"ff_width": 0}, "ff_width must be at least 1; got 0"),
        ({"width": 0, "mixer": "gru"}, "width must be at least 1; got 0"),
        ({"dropout": 1.5}, "dropout must be at least 0 and below 1; got 1.5"),
        ({"attention_dropout": -0.1}, "attention_dropout must be at least 0"),
        ({"mixer": "aron"}, "unknown mixer 'aron'; did you mean 'aaren'"),
        ({"activation": "gello"}, "unknown activation 'gello'; did you mean 'gelu'"),
        ({"norm": "prenorm"}, "unknown norm 'prenorm'"),
        ({"decay": "fixed"}, "unknown decay 'fixed'"),
        ({"decay": "learned", "mixer": "gru"}, r"mixer='gru' does not take decay='learned' \(of aaren\)"),
        ({"mixer": "gru", "num_heads": 3, "qkv_bias": False}, "mixer='gru' does not take qkv_bias=False"),
        ({"mixer": "linear", "dropout_on": "output"}, "does not take dropout_on='output'"),
        ({"conv": 4}, "conv: expected a table of keys or none, got 4"),
        ({"width": "32"}, "width: expected an integer, got '32'"),
        ({"width": 64.0, "dropout": True}, "width: .*; dropout: expected a number, got True"),
        ({"dropout_on": "inputs"}, "unknown dropout_on 'inputs'"),
    ],
)
def test_bad_settings(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        EncoderConfig(**options)


@pytest.mark.parametrize(
    "config",
    [
        EncoderConfig(),
        EncoderConfig(width=32, num_heads=2, dropout=0, conv=Conv(dilations=(1, 2)), norm="pre"),
        EncoderConfig(mixer="softmax", attention_dropout=0.2, position="learned", max_positions=9),
    ],
)
def test_a_config_survives_json(config: EncoderConfig) -> None:
    plain = json.loads(json.dumps(config.to_dict()))
    assert EncoderConfig.from_dict(plain) == config
    assert EncoderConfig.from_dict({}) == EncoderConfig()


def test_a_config_from_json_reports_every_fault() -> None:
    with pytest.raises(ConfigError, match=r"2 faults(.|\n)*widht(.|\n)*conv.kernel: expected an integer"):
        EncoderConfig.from_dict({"widht": 3, "conv": {"kernel": "4"}})


@pytest.mark.parametrize("kind", [AarenAttention, SoftmaxAttention])
def test_sizes_of_a_layer_are_integers(kind: type[torch.nn.Module]) -> None:
    with pytest.raises(ConfigError, match=r"width must be an integer of at least 1; got 64\.0"):
        kind(64.0, 4)
    with pytest.raises(ConfigError, match="num_heads must be an integer of at least 1; got '4'"):
        kind(64, "4")
    with pytest.raises(ConfigError, match=r"dropout must be at least 0 and below 1; got '0\.1'"):
        kind(64, 4, dropout="0.1")


def test_bad_input() -> None:
    encoder = small()
    with pytest.raises(ShapeError, match=r"inject is added to x, so it must be \(1, 3, 8\)"):
        encoder(torch.randn(1, 3, 8), inject=torch.randn(1, 8))
    with pytest.raises(ShapeError, match=r"x must be \(b, t, c\) with c = 8; got \(1, 3, 7\)"):
        encoder(torch.randn(1, 3, 7))
    three = Encoder(EncoderConfig(width=8, num_heads=2, num_layers=3))
    with pytest.raises(StateError, match="this encoder has 2 layers; the state is one of 3"):
        encoder.step(torch.randn(1, 8), three.init_state(1))
    with pytest.raises(StateError, match="needs a state of kind EncoderState; got ScanState"):
        encoder.step(torch.randn(1, 8), AarenAttention(8, 2).init_state(1))
    with pytest.raises(StateError, match="needs a state of kind ScanState; got GRUState"):
        encoder.step(torch.randn(1, 8), small(mixer="gru").init_state(1))
    with pytest.raises(StateError, match=r"needs a state of kind EncoderState; got NoneType.*init_state"):
        encoder.step(torch.randn(1, 8), None)


@pytest.mark.parametrize("mixer", MIXERS)
def test_masked_content_reaches_no_weight_in_a_step(mixer: str) -> None:
    encoder = small(mixer=mixer)
    x, inject = torch.randn(2, 2, 8)
    x[1] = inject[1] = torch.nan
    y, _ = encoder.step(x, encoder.init_state(2), mask=torch.tensor([True, False]), inject=inject)
    y.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())


def test_a_refused_step_leaves_the_stream_as_it_was() -> None:
    encoder, x = small(mixer="softmax"), torch.randn(2, 8)
    with torch.no_grad():
        _, state = encoder.step(x, encoder.init_state(2))
        broken = EncoderState((state.layers[0], small(mixer="softmax").init_state(5).layers[0]))
        with pytest.raises(StateError):
            encoder.step(x, broken)
        y, _ = encoder.step(x, state)
        torch.testing.assert_close(y, encoder(x.unsqueeze(1).expand(2, 2, 8))[0][:, 1])


class Delegating(torch.nn.Module):
    """A wrapper that hands on what it does not have itself."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> object:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, *args: object, **options: object) -> object:
        return self.inner(*args, **options)


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize(
    "wrap", [functools.partial(torch.compile, backend="eager"), checkpoint_wrapper, Delegating]
)
def test_wrapped_layers_are_layers(wrap: Callable[[torch.nn.Module], torch.nn.Module], mixer: str) -> None:
    encoder, x = small(mixer=mixer).requires_grad_(False), torch.randn(2, 4, 8)
    y, state = encoder(x)
    name = encoder.fingerprint()
    encoder.layers[1] = wrap(encoder.layers[1])
    assert encoder.fingerprint() == name
    assert len(encoder.init_state(2).layers) == 2
    with torch.no_grad():
        folded = encoder.fold()
        assert folded.fingerprint() == name
        torch.testing.assert_close(folded(x)[0], y)
        stepped, _ = fold_steps(folded, x, folded.init_state(2))
        torch.testing.assert_close(stepped, y, atol=1e-5, rtol=1e-5)
        stepped, _ = fold_steps(encoder, x, encoder.init_state(2))
        torch.testing.assert_close(stepped, y, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(folded(x, state)[0], encoder(x, state)[0])


def test_wrapped_mixers_fold() -> None:
    encoder, x = small().eval(), torch.randn(2, 4, 8)
    y, _ = encoder(x)
    encoder.layers[0].mixer = checkpoint_wrapper(encoder.layers[0].mixer)
    torch.testing.assert_close(encoder.fold()(x)[0], y)


def test_a_layer_that_can_do_less_is_named() -> None:
    encoder = small()
    encoder.layers[1] = torch.nn.Sequential(encoder.layers[1])
    for ask in (encoder.fold, encoder.fingerprint, lambda: encoder.init_state(1)):
        with pytest.raises(ConfigError, match="layer 1 is a Sequential, which has no init_state, step, fold"):
            ask()


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "pre"},
        {"activation": "relu"},
        {"norm_eps": 1e-3},
        {"num_heads": 4},
        {"mixer": "softmax"},
        {"mixer": "softmax", "num_heads": 4},
        {"position": "sinusoid"},
    ],
)
def test_the_fingerprint_knows_how_weights_are_used(options: dict[str, object]) -> None:
    base = {"width": 8, "num_heads": 2, "num_layers": 2, "mixer": options.get("mixer", "aaren")}
    one, other = Encoder(EncoderConfig(**base)), Encoder(EncoderConfig(**{**base, **options}))
    other.load_state_dict(one.state_dict())
    if len(options) > 1 or "mixer" not in options:
        assert other.fingerprint() != one.fingerprint()
    assert other.fold().fingerprint() == other.fingerprint()
    same = Encoder(EncoderConfig(**base, dropout=0.3, final_norm=True))
    same.load_state_dict(one.state_dict(), strict=False)
    assert same.fingerprint() == one.fingerprint()


def test_a_layers_own_fingerprint_knows_heads() -> None:
    names = set()
    weights = SoftmaxAttention(8, 2).state_dict()
    for layer in (SoftmaxAttention(8, 2), SoftmaxAttention(8, 4)):
        layer.load_state_dict(weights)
        names.add(layer.fingerprint())
    assert len(names) == 2
    few, many = AarenAttention(8, 2), AarenAttention(8, 4)
    many.load_state_dict(few.state_dict())
    assert few.fingerprint() != many.fingerprint()
    assert many.fold().fingerprint() == many.fingerprint()


def count(config: EncoderConfig) -> int:
    return sum(p.numel() for p in Block(config).parameters())


def test_the_papers_parameter_counts() -> None:
    shared = {"width": 512, "num_heads": 4, "ff_width": 2048}
    assert count(EncoderConfig(**shared, mixer="softmax")) == 3_152_384
    assert count(EncoderConfig(**shared, mixer="aaren")) == 3_152_896


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_the_softmax_block_is_pytorchs_encoder_layer(norm: str, activation: str) -> None:
    config = EncoderConfig(
        width=16, num_heads=4, ff_width=32, dropout=0.0, norm=norm, activation=activation, mixer="softmax"
    )
    block = Block(config, dtype=torch.float64)
    own = torch.nn.TransformerEncoderLayer(
        16,
        4,
        32,
        dropout=0.0,
        activation=activation,
        norm_first=norm == "pre",
        batch_first=True,
        dtype=torch.float64,
    )
    mixer = block.mixer
    with torch.no_grad():
        own.self_attn.in_proj_weight.copy_(
            torch.cat([p.weight for p in (mixer.q_proj, mixer.k_proj, mixer.v_proj)])
        )
        own.self_attn.in_proj_bias.copy_(
            torch.cat([p.bias for p in (mixer.q_proj, mixer.k_proj, mixer.v_proj)])
        )
    own.self_attn.out_proj.load_state_dict(mixer.out_proj.state_dict())
    own.linear1.load_state_dict(block.feed_forward.widen.state_dict())
    own.linear2.load_state_dict(block.feed_forward.narrow.state_dict())
    own.norm1.load_state_dict(block.mixer_norm.state_dict())
    own.norm2.load_state_dict(block.feed_forward_norm.state_dict())
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64)
    torch.testing.assert_close(block(x)[0], own(x, src_mask=causal, is_causal=True))


@pytest.mark.parametrize("ff_inner_dropout", [True, False])
def test_dropout_stands_where_the_base_models_have_it(ff_inner_dropout: bool) -> None:
    config = EncoderConfig(width=8, num_heads=2, dropout=0.3, ff_inner_dropout=ff_inner_dropout)
    block = Block(config)
    assert block.feed_forward.inner_dropout == (0.3 if ff_inner_dropout else 0.0)
    assert block.mixer.dropout == 0.3
    x = torch.randn(2, 4, 8)
    assert not torch.equal(block(x)[0], block(x)[0])
    block.eval()
    assert torch.equal(block(x)[0], block(x)[0])


def test_attention_dropout_may_differ() -> None:
    config = EncoderConfig(width=8, num_heads=2, dropout=0.3, attention_dropout=0.0, dropout_on="output")
    assert (Block(config).mixer.dropout, Block(config).mixer.dropout_on) == (0.0, "output")


def test_learned_decay_adds_to_the_one_passed_in() -> None:
    block = Block(EncoderConfig(width=8, num_heads=2, dropout=0.0, decay="learned"))
    x, decay = torch.randn(1, 5, 8), torch.full((1, 5, 2), -0.5)
    both, _ = block(x, log_decay=decay)
    learned = block.decay((1, 5))
    block.decay = None
    torch.testing.assert_close(block(x, log_decay=decay + learned)[0], both)


def test_a_decay_of_another_shape_is_not_broadcast() -> None:
    block = Block(EncoderConfig(width=8, num_heads=2, decay="learned"))
    with pytest.raises(ShapeError, match=r"log_decay must be \(b, t, h\) = \(3, 4, 2\)"):
        block(torch.randn(3, 4, 8), log_decay=torch.zeros(2))


def test_folding_leaves_the_original_untouched() -> None:
    block = Block(EncoderConfig(width=8, num_heads=2, decay="learned"))
    folded = block.fold()
    assert block.training
    assert all(p.requires_grad for p in block.parameters())
    assert not folded.training
    assert not any(p.requires_grad for p in folded.parameters())
    assert folded.decay is not block.decay
    assert "norm=post, dropout=0.1" in repr(folded)


def test_half_lives_start_spread_out() -> None:
    decay = LearnedDecay(7)
    half_lives = math.log(2) / -decay((1,))[0].detach()
    torch.testing.assert_close(
        half_lives[[0, 3, 6]], torch.tensor([32.0, 256.0, 2048.0]), rtol=1e-4, atol=0.0
    )
    assert "num_heads=7" in repr(decay)


def test_stays_a_decay_whatever_is_learned() -> None:
    decay = LearnedDecay(3)
    with torch.no_grad():
        decay.rate.copy_(torch.tensor([-50.0, 0.0, 50.0]))
    assert bool((decay((2, 4)) <= 0).all())


def test_learns() -> None:
    decay, layer = LearnedDecay(2), AarenAttention(8, 2)
    y, _ = layer(torch.randn(2, 6, 8), log_decay=decay((2, 6)))
    y.square().sum().backward()
    assert decay.rate.grad is not None
    assert bool((decay.rate.grad != 0).all())
