"""Head widths below, at and beyond whole cache lines, results written past the caches, instruction sets.

The kernel takes whole lines and whole vectors with code of their own, compiled for several processors.
"""

import pytest
import torch

from aaren.nn.dropout import DroppedAttention, DroppedGelu, drop_by_key
from aaren.ops import scan_attention
from aaren.ops.cpu import fused, library
from support.scan_cases import make_case


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 4, 7, 8, 15, 16, 17, 24, 64, 70])
@pytest.mark.parametrize("batch", [1, 3])  # one sequence: its heads are shared among the threads
def test_every_width_equals_the_definition(batch, width, dtype, rng):
    scores = torch.randn(batch, 150, 4, generator=rng, dtype=dtype)
    values = torch.randn(batch, 150, 4, width, generator=rng, dtype=dtype)
    weights = torch.randn(batch, 150, 4, width, generator=rng, dtype=dtype)
    found, state, gradients = scan_with_gradients(scores, values, weights, backend="fused")
    truth, true_state, true_gradients = scan_with_gradients(
        scores.double(), values.double(), weights.double(), backend="naive"
    )
    tolerance = 1e-6 if dtype is torch.float32 else 1e-13
    for part, true_part in zip((found, *gradients), (truth, *true_gradients), strict=True):
        scale = true_part.abs().max().item()
        torch.testing.assert_close(part.double(), true_part, rtol=0.0, atol=tolerance * max(1.0, scale))
    for part, true_part in zip(state, true_state, strict=True):
        torch.testing.assert_close(part, true_part, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [16, 20, 64])  # 20: no whole lines, so nothing is streamed
@pytest.mark.parametrize("batch", [1, 3])
def test_streaming_results_past_the_caches_changes_no_bit(batch, width, dtype, rng, monkeypatch):
    scores = torch.randn(batch, 150, 4, generator=rng, dtype=dtype)
    values = torch.randn(batch, 150, 4, width, generator=rng, dtype=dtype)
    weights = torch.randn(batch, 150, 4, width, generator=rng, dtype=dtype)
    mask = torch.rand(batch, 150, generator=rng) > 0.2
    cached = scan_with_gradients(scores, values, weights, backend="fused", mask=mask)
    was_streamed = []
    decide = fused._is_streamed
    monkeypatch.setattr(fused, "STREAMED_BYTES", 0)
    monkeypatch.setattr(
        fused, "_is_streamed", lambda result: was_streamed.append(decide(result)) or was_streamed[-1]
    )
    streamed = scan_with_gradients(scores, values, weights, backend="fused", mask=mask)
    for one, other in zip((cached[0], *cached[2]), (streamed[0], *streamed[2]), strict=True):
        assert torch.equal(one, other)
    assert was_streamed == [width != 20] * 2  # forward and backward


def scan_with_gradients(scores, values, weights, **options):
    scores, values = scores.clone().requires_grad_(), values.clone().requires_grad_()
    outputs, state = scan_attention(scores, values, **options)
    gradients = torch.autograd.grad((outputs * weights).sum(), (scores, values))
    return outputs.detach(), [part.detach() for part in state], gradients


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_instruction_sets_agree(dtype, monkeypatch):
    """v3 and v4, which fuse products and sums, to the bit; v2, which cannot, to rounding."""
    loaded, _ = library._load()
    if loaded is None or loaded.functions.kernel_count_supported() < 2:
        pytest.skip("this processor runs one instruction set of the kernels")
    sets = ("v2", "v3", "v4")[: loaded.functions.kernel_count_supported()]
    monkeypatch.setattr(library, "kernel", library.kernel.__wrapped__)  # which remembers the first
    found = {}
    for name in sets:
        chosen = loaded._replace(instruction_set=name)
        monkeypatch.setattr(library, "_load", lambda chosen=chosen: (chosen, ""))
        found[name] = results_of_all_kernels(dtype, monkeypatch)
    # A gradient of m is a difference of sums that nearly cancel: 2e-13 of the largest, others below 1e-14.
    tolerance = 2e-6 if dtype is torch.float32 else 1e-12
    for old, new in zip(found["v2"], found["v3"], strict=True):
        torch.testing.assert_close(old, new, rtol=tolerance, atol=tolerance * new.abs().max().item())
    for old, new in zip(found["v3"], found[sets[-1]], strict=True):
        assert torch.equal(old, new)


def results_of_all_kernels(dtype, monkeypatch):
    results = []
    every = {"masked": True, "decaying": True, "carried": True}
    for width in (1, 5, 16, 17, 64, 67):
        for variant in ({"kind": "jumps120"}, {"kind": "jumps1e4"}, every):
            results += make_case(width, length=150, width=width, dtype=dtype, **variant).observe("fused")
    with monkeypatch.context() as patch:
        patch.setattr(fused, "STREAMED_BYTES", 0)
        results += make_case(2, batch=1, length=150, width=64, dtype=dtype, **every).observe("fused")
    rng = torch.Generator().manual_seed(3)
    results.append(drop_by_key(torch.randn(1001, generator=rng, dtype=dtype), 0.3, 123456789 << 20))
    if dtype == torch.float32:
        x = (4 * torch.randn(1001, generator=rng)).requires_grad_()
        results.append(DroppedGelu.apply(x, 0.3, 123456789 << 20))
        results += torch.autograd.grad(results[-1].sum(), x)
    inputs = [torch.randn(3, 37, 5, generator=rng, dtype=dtype).requires_grad_() for _ in range(3)]
    attended = DroppedAttention.apply(*inputs, 0.2, True, 987654321 << 20)
    gradients = torch.autograd.grad(attended.square().sum(), inputs)
    return [part.detach() for part in (*results, attended, *gradients)]
