"""A running mean stays exact over tens of millions of tokens: the case in which rounding piles up most.

An Aaren layer whose scores are all equal returns the mean of all values so far. Values are multiples of
2^-52: their sum is known exactly, as an integer. A sum in float32 would stop growing at 16.8 million tokens.
"""

from fractions import Fraction

import pytest
import torch
from torch import Tensor

from aaren.nn import AarenAttention

WIDTH, BITS = 8, 52
LIMIT = 1e-9


def averaging_layer() -> AarenAttention:
    """Build a layer whose output is the mean of its inputs so far: equal scores, identities elsewhere."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = AarenAttention(WIDTH, 2, dtype=torch.float64)
    with torch.no_grad():
        layer.k_proj.weight.zero_()  # what is left of a score is q'·b_k, equal for all and not 0
        for projection in (layer.v_proj, layer.out_proj):
            projection.weight.copy_(torch.eye(WIDTH))
            projection.bias.zero_()
    return layer.eval()


class ExactMean:
    """A running mean in whole numbers."""

    def __init__(self) -> None:
        self.sums, self.count = [0] * WIDTH, 0

    def add(self, integers: Tensor) -> None:
        """Take in (t, c) integers below 2^53, in halves whose sums fit into int64."""
        high, low = (integers >> 26).sum(0).tolist(), (integers & ((1 << 26) - 1)).sum(0).tolist()
        self.sums = [total + (a << 26) + b for total, a, b in zip(self.sums, high, low, strict=True)]
        self.count += len(integers)

    def distance(self, output: Tensor) -> float:
        """Return the largest difference between an output (c,) and the mean, without rounding either."""
        means = (Fraction(total, self.count << BITS) for total in self.sums)
        return max(float(abs(Fraction(x) - mean)) for x, mean in zip(output.tolist(), means, strict=True))


@torch.inference_mode()
def largest_error(tokens: int, chunk: int, raised: int, layer: AarenAttention) -> float:
    """Feed tokens in chunks, then some by steps, their values raised by 1; return the worst distance."""
    generator, state, exact = torch.Generator().manual_seed(0), layer.init_state(1), ExactMean()
    errors = []
    for first in range(0, tokens, chunk):
        integers = torch.randint(1 << BITS, (min(chunk, tokens - first), WIDTH), generator=generator)
        exact.add(integers)
        outputs, state = layer((integers.double() * 2.0**-BITS).unsqueeze(0), state)
        errors.append(exact.distance(outputs[0, -1]))
    for integers in torch.randint(1 << BITS, (raised, 1, WIDTH), generator=generator) + (1 << BITS):
        exact.add(integers)
        output, state = layer.step(integers.double() * 2.0**-BITS, state)
        errors.append(exact.distance(output[0]))
    return max(errors)


def test_a_short_run_is_exact_to_rounding() -> None:
    assert largest_error(10_000, 777, 50, averaging_layer()) < 1e-14


def test_the_layers_scores_are_equal_and_not_zero() -> None:
    _, state = averaging_layer()(torch.randn(1, 5, WIDTH, dtype=torch.float64))
    assert (state.m != 0).all()
    torch.testing.assert_close(state.u, torch.full_like(state.u, 5.0))


def test_a_loss_of_digits_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = averaging_layer()
    exact_step = layer.step

    def coarse_step(x: Tensor, state: object) -> tuple[Tensor, object]:
        output, state = exact_step(x, state)  # type: ignore[arg-type]  # what the layer returned
        return output.float().double(), state

    monkeypatch.setattr(layer, "step", coarse_step)
    assert largest_error(1000, 500, 10, layer) > LIMIT


@pytest.mark.long
def test_thirty_million_equal_scores_stay_an_exact_mean() -> None:
    assert largest_error(30_000_000, 131_072, 1000, averaging_layer()) <= LIMIT
