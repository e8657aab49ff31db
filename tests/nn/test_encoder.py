import copy

import pytest
import torch

from aaren.errors import ConfigError, ShapeError, StateError
from aaren.nn import AarenAttention, Encoder, EncoderConfig, EncoderState
from aaren.nn.encoder_config import MIXERS


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


@pytest.mark.parametrize("options", [*({"mixer": mixer} for mixer in MIXERS), {"decay": "learned"}], ids=str)
def test_the_fingerprint_knows_every_weight_that_makes_a_state(options: dict[str, str]) -> None:
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
        ({"decay": "learned", "mixer": "gru"}, "decay='learned' needs mixer='aaren'; got mixer='gru'"),
        ({"window": 8}, "a sum cannot give back what it took in"),
        ({"dropout_on": "inputs"}, "unknown dropout_on 'inputs'"),
    ],
)
def test_bad_settings(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        EncoderConfig(**options)


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
