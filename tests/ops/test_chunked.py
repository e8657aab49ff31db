import torch

from aaren.ops import scan_attention
from aaren.ops.chunked import BLOCK_LENGTH


def test_rows_far_below_the_blocks_maximum_do_not_underflow():
    """With one maximum per block, the first rows here would be 0 / 0."""
    scores = torch.linspace(-5000, 5000, BLOCK_LENGTH).view(1, -1, 1)
    values = torch.arange(float(BLOCK_LENGTH)).view(1, -1, 1, 1)
    outputs, _ = scan_attention(scores, values, backend="chunked")
    torch.testing.assert_close(outputs, values)  # each new score dwarfs the ones before


def test_second_derivatives(rng):
    scores = torch.randn(1, 5, 1, generator=rng, dtype=torch.float64, requires_grad=True)
    values = torch.randn(1, 5, 1, 2, generator=rng, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(
        lambda s, v: scan_attention(s, v, backend="chunked")[0], (scores, values)
    )
