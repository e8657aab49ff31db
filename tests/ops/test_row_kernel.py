"""Head widths below, at and beyond whole cache lines, which the kernel takes with SIMD code of its own."""

import pytest
import torch

from aaren.ops import scan_attention


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 7, 8, 15, 16, 17, 24, 64, 70])
@pytest.mark.parametrize("batch", [1, 3])  # one sequence: its heads are shared among the threads
def test_every_width_equals_the_definition(batch, width, dtype, rng):
    scores = torch.randn(batch, 150, 4, generator=rng, dtype=dtype)
    values = torch.randn(batch, 150, 4, width, generator=rng, dtype=dtype)
    found, state = scan_attention(scores, values, backend="fused")
    truth, true_state = scan_attention(scores.double(), values.double(), backend="naive")
    tolerance = 1e-6 if dtype is torch.float32 else 1e-13
    torch.testing.assert_close(found.double(), truth, rtol=0.0, atol=tolerance)
    for part, true_part in zip(state, true_state, strict=True):
        torch.testing.assert_close(part, true_part, rtol=1e-12, atol=1e-12)
