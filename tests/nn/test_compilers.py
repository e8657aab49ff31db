"""torch.compile, torch.export and autocast, over every mixer that they are promised for."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from aaren.errors import ConfigError
from aaren.nn import Encoder, EncoderConfig, EncoderState
from aaren.nn.block import MIXERS


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


DIFFERENT = [name for name in MIXERS if name not in ("lstm", "retnet")]  # these two are as gru and linear


def make(mixer: str) -> Encoder:
    decay = "learned" if mixer == "aaren" else None
    return Encoder(EncoderConfig(width=8, num_heads=2, num_layers=1, dropout=0.0, mixer=mixer, decay=decay))


@pytest.mark.parametrize("mixer", DIFFERENT)
def test_compiled_training_equals_eager(mixer: str) -> None:
    encoder, x = make(mixer), torch.randn(2, 5, 8)
    compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
    weights = list(encoder.parameters())
    expected = torch.autograd.grad(encoder(x)[0].square().sum(), weights)
    found = torch.autograd.grad(compiled(x)[0].square().sum(), weights)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("mixer", DIFFERENT)
def test_compiled_masked_forward_and_step_equal_eager(mixer: str) -> None:
    encoder, x = make(mixer).eval(), torch.randn(2, 5, 8)
    mask = torch.tensor([[True, True, True, False, False], [True] * 5])
    with torch.no_grad():
        compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
        y, _ = encoder(x, mask=mask)
        torch.testing.assert_close(compiled(x, mask=mask)[0][mask], y[mask], atol=1e-5, rtol=1e-5)
        _, state = encoder(x)
        compiled_step = torch.compile(encoder.step, fullgraph=True, backend="aot_eager")
        expected, after = encoder.step(x[:, 0], state)
        found, compiled_after = compiled_step(x[:, 0], state)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        second, _ = encoder.step(x[:, 1], compiled_after)
        torch.testing.assert_close(second, encoder.step(x[:, 1], after)[0], atol=1e-5, rtol=1e-5)


class StepOnly(torch.nn.Module):
    """What is exported for a device: one step, state in and state out."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor, state: EncoderState) -> tuple[Tensor, EncoderState]:
        return self.encoder.step(x, state)


@pytest.mark.parametrize("is_folded", [False, True])
@pytest.mark.parametrize("mixer", ["aaren", "gru", "lstm"])
def test_exported_equals_eager(mixer: str, is_folded: bool) -> None:
    encoder, x = make(mixer).eval(), torch.randn(2, 5, 8)
    encoder = encoder.fold() if is_folded else encoder
    state = encoder.init_state(2)
    with torch.no_grad():
        y, after = encoder(x, state)
        exported = torch.export.export(encoder, (x, state)).module()
        torch.testing.assert_close(exported(x, state)[0], y, atol=1e-5, rtol=1e-5)
        step = torch.export.export(StepOnly(encoder), (x[:, 0], state)).module()
        y_next, later = step(x[:, 0], after)
        expected, expected_later = encoder.step(x[:, 0], after)
        torch.testing.assert_close(y_next, expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(later.layers[0][0], expected_later.layers[0][0])


@pytest.mark.parametrize("mixer", MIXERS)
def test_autocast_trains_and_streams(mixer: str) -> None:
    encoder, x = make(mixer), torch.randn(2, 5, 8)
    exact, _ = encoder(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, state = encoder(x)
        y_next, _ = encoder.step(x[:, 0], state)
    torch.testing.assert_close(y.float(), exact, atol=0.05, rtol=0.05)
    assert y_next.isfinite().all()
    y.float().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mixer", ["gru", "lstm"])
def test_recurrent_mixers_run_under_autocast_on_any_processor(mixer: str, dtype: torch.dtype) -> None:
    encoder, x = make(mixer), torch.randn(2, 5, 8, requires_grad=True)
    mask = torch.tensor([[True, True, True, False, False], [True] * 5])
    exact, exact_state = encoder(x, mask=mask)
    exact_step, _ = encoder.step(x[:, 0], exact_state)
    with torch.autocast("cpu", dtype=dtype):
        y, state = encoder(x, mask=mask)
        torch.testing.assert_close(encoder(x)[0][1].float(), exact[1], atol=0.05, rtol=0.05)
        step, _ = encoder.step(x[:, 0], state)
        (y[mask].float().sum() + encoder(x)[0].float().sum() + step.float().sum()).backward()
    torch.testing.assert_close(y[mask].float(), exact[mask], atol=0.05, rtol=0.05)
    torch.testing.assert_close(step.float(), exact_step, atol=0.05, rtol=0.05)
    assert x.grad is not None
    assert x.grad.isfinite().all()
    if mixer == "lstm":  # compiled as the GRU is
        return
    compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=dtype), torch.no_grad():
        torch.testing.assert_close(compiled(x, mask=mask)[0][mask], y[mask], atol=0.05, rtol=0.05)


DYNAMIC = {"x": {1: torch.export.Dim("t", min=2, max=4096)}}


@pytest.mark.parametrize("mixer", ["aaren", "mingru", "wkv"])
def test_exports_with_a_dynamic_length(mixer: str) -> None:
    encoder = make(mixer).eval()
    with torch.no_grad():
        exported = torch.export.export(encoder, (torch.randn(2, 5, 8),), dynamic_shapes=DYNAMIC).module()
        for length in (2, 7, 200):
            x = torch.randn(2, length, 8)
            torch.testing.assert_close(exported(x)[0], encoder(x)[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mixer", ["gru", "linear"])
def test_a_loop_over_time_exports_with_a_fixed_length_only(mixer: str) -> None:
    encoder, x = make(mixer).eval(), torch.randn(2, 5, 8)
    with torch.no_grad():
        with pytest.raises(ConfigError, match=f"mixer='{mixer}' goes through time in a loop.*fixed t"):
            torch.export.export(encoder, (x,), dynamic_shapes=DYNAMIC)
        exported = torch.export.export(encoder, (x,)).module()
        torch.testing.assert_close(exported(x)[0], encoder(x)[0], atol=1e-5, rtol=1e-5)
        batch = {"x": {0: torch.export.Dim("b", min=2, max=64)}}
        many = torch.export.export(encoder, (x,), dynamic_shapes=batch).module()
        x = torch.randn(7, 5, 8)
        torch.testing.assert_close(many(x)[0], encoder(x)[0], atol=1e-5, rtol=1e-5)
