"""Head widths below, at and beyond whole cache lines, and results written past the caches.

The kernel takes whole lines and whole vectors with code of their own.
"""

import pytest
import torch

from aaren.ops import scan_attention
from aaren.ops.cpu import fused


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
