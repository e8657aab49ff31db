import math

import torch

from aaren.nn import AarenAttention
from aaren.nn.encoder import LearnedDecay


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
    assert decay((2, 4), torch.zeros(2, 4, dtype=torch.bool)).abs().max() == 0


def test_learns() -> None:
    decay, layer = LearnedDecay(2), AarenAttention(8, 2)
    y, _ = layer(torch.randn(2, 6, 8), log_decay=decay((2, 6)))
    y.square().sum().backward()
    assert decay.rate.grad is not None
    assert bool((decay.rate.grad != 0).all())
