"""Every mixer where tensors are not just numbers: fakes, traces, dispatch modes, no memory at all."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.fx.experimental.proxy_tensor import make_fx

from aaren.errors import ConfigError
from aaren.nn import AarenAttention, Conv, Encoder, TensorOnly
from aaren.nn.block import MIXERS
from aaren.nn.blocks import state_to_bytes

X, OTHER = torch.randn(2, 2, 5, 8, generator=torch.Generator().manual_seed(1))
MASK = torch.tensor([[True] * 5, [False, True, False, True, False]])
Call = Callable[[Tensor], Tensor]

every_mixer = pytest.mark.parametrize("mixer", MIXERS)
in_both_modes = pytest.mark.parametrize("training", [False, True])
with_and_without_mask = pytest.mark.parametrize("mask", [None, MASK], ids=["", "masked"])


def make(mixer: str, *, training: bool = False, dropout: float = 0.0, **options: object) -> Encoder:
    sizes = {"width": 8, "num_heads": 2, "num_layers": 1, "ff_width": 8}
    return Encoder(mixer=mixer, dropout=dropout, **sizes, **options).train(training)


def jit_trace(encoder: Encoder, mask: Tensor | None) -> Call:
    return torch.jit.trace(Outputs(encoder, mask), X, check_trace=False)


def trace_by_make_fx(encoder: Encoder, mask: Tensor | None) -> Call:
    return make_fx(Outputs(encoder, mask))(X)


def export(encoder: Encoder, mask: Tensor | None) -> Call:
    exported = torch.export.export(encoder, (X,), {} if mask is None else {"mask": mask}).module()
    return lambda x: (exported(x) if mask is None else exported(x, mask=mask))[0]


class Outputs(nn.Module):
    """From tensor to tensor, which is all that jit.trace takes."""

    def __init__(self, encoder: Encoder, mask: Tensor | None) -> None:
        super().__init__()
        self.encoder, self.mask = encoder, mask

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.encoder(x, mask=self.mask)[0]
        return outputs


def run_all(encoder: Encoder, x: Tensor, mask: Tensor | None) -> Tensor:
    """A sequence, an item, and gradients where there are any."""
    y, state = encoder(x, mask=mask)
    y_next, state = encoder.step(x[:, 0], state)
    encoder.step(x[:, 1], state, mask=None if mask is None else mask[:, 0])
    if y.requires_grad:
        (y.sum() + y_next.sum()).backward()
    return y


@every_mixer
@in_both_modes
@with_and_without_mask
@pytest.mark.parametrize("trace", [jit_trace, trace_by_make_fx, export])
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_trace_answers_other_numbers_as_the_encoder_does(mixer, training, mask, trace) -> None:
    encoder = make(mixer, training=training)
    traced = trace(encoder, mask)
    is_real = torch.ones_like(MASK) if mask is None else mask
    for x in (X, OTHER):
        want = encoder(x, mask=mask)[0]
        torch.testing.assert_close(traced(x)[is_real], want[is_real], atol=1e-5, rtol=1e-5)


@every_mixer
@in_both_modes
@with_and_without_mask
def test_fake_tensors_have_the_shapes_of_real_ones(mixer, training, mask) -> None:
    with FakeTensorMode():
        encoder = make(mixer, training=training, dropout=0.1)
        fake = run_all(encoder, torch.empty(2, 5, 8), None if mask is None else torch.ones(2, 5) > 0)
        assert fake.shape == (2, 5, 8)


@every_mixer
@in_both_modes
@with_and_without_mask
def test_a_mode_that_only_watches_changes_no_number(mixer, training, mask) -> None:
    encoder = make(mixer, training=training)
    twin = copy.deepcopy(encoder)
    want, _ = encoder(X, mask=mask)
    want.sum().backward()
    tracker = MemTracker()
    tracker.track_external(twin)
    with tracker:
        got, _ = twin(X, mask=mask)
        got.sum().backward()
    is_real = torch.ones_like(MASK) if mask is None else mask
    torch.testing.assert_close(got[is_real], want[is_real], atol=1e-6, rtol=1e-6)
    for a, b in zip(twin.parameters(), encoder.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-5)


@every_mixer
@in_both_modes
def test_the_meta_device_runs_everything_that_reads_no_numbers(mixer, training) -> None:
    encoder = make(mixer, training=training, dropout=0.1).to("meta")
    assert run_all(encoder, X.to("meta"), None).is_meta


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_jit_trace_says_itself_that_it_cannot_return_a_cache() -> None:
    encoder = make("softmax")
    with pytest.raises(RuntimeError, match="can be output from traced functions"):
        torch.jit.trace(encoder, X, strict=False)
    traced = torch.jit.trace(TensorOnly(encoder), X)
    torch.testing.assert_close(traced(OTHER), encoder(OTHER)[0])


def test_a_cache_that_was_taken_apart_does_not_write_where_the_first_one_does() -> None:
    encoder = make("softmax")
    with torch.no_grad():
        _, state = encoder(X)
        _, state = encoder.step(X[:, 0], state)
        twin = torch.utils._pytree.tree_map(lambda part: part, state)
        _, left = encoder.step(X[:, 1], state)
        encoder.step(X[:, 2], twin)
        expected, _ = encoder.step(X[:, 3], left)
        items = torch.cat([X, X[:, [0, 1, 3]]], dim=1)
        torch.testing.assert_close(encoder(items)[0][:, -1], expected)


VARIANTS = {
    **{mixer: {"mixer": mixer} for mixer in MIXERS},
    "learned decay": {"mixer": "aaren", "decay": "learned"},
    "gates": {"mixer": "aaren", "gates": "both"},
    "sinusoid": {"mixer": "aaren", "position": "sinusoid"},
    "learned positions": {"mixer": "aaren", "position": "learned"},
    "convolution": {"mixer": "aaren", "conv": Conv(channels=4)},
    "stem": {"mixer": "aaren", "conv": Conv(where="stem")},
    "final norm": {"mixer": "aaren", "norm": "pre", "final_norm": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_built_without_memory_then_loaded_is_the_same_model(variant: str) -> None:
    encoder = make(**VARIANTS[variant])
    with torch.device("meta"):
        shell = make(**VARIANTS[variant])
    assert all(tensor.is_meta for tensor in shell.state_dict().values())
    loaded = shell.to_empty(device="cpu")
    loaded.load_state_dict(encoder.state_dict())
    for original, copied in ((encoder, loaded), (encoder.fold(), loaded.fold())):
        assert copied.fingerprint() == original.fingerprint()
        want, state = original(X)
        got, copied_state = copied(X)
        assert torch.equal(got, want)
        assert state_to_bytes(copied_state) == state_to_bytes(state)
        assert torch.equal(copied.step(X[:, 0], state)[0], original.step(X[:, 0], state)[0])


@every_mixer
def test_folding_asks_for_weights(mixer: str) -> None:
    with pytest.raises(ConfigError, match=r"load_state_dict.*then fold"):
        make(mixer).to("meta").fold()


@pytest.mark.parametrize("variant", VARIANTS)
def test_reset_parameters_reaches_every_weight(variant: str) -> None:
    """What `to_empty` leaves is arbitrary: each part that has parameters can draw them again."""
    encoder = make(**VARIANTS[variant])
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.fill_(torch.nan)
    for part in encoder.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    assert all(parameter.isfinite().all() for parameter in encoder.parameters())
    assert AarenAttention(8, 2).reset_parameters() is None
