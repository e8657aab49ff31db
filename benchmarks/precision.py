"""How exact a running mean stays over tens of millions of tokens: the case in which rounding piles up most.

    python benchmarks/precision.py [--record FILE] [--quick]     # about a minute

An Aaren layer whose scores are all equal returns the mean of all values so far. Values are multiples of
2^-52, so their sum is known exactly as an integer, and the layer's output can be compared with the true mean.
A sum in float32 would stop growing at 16.8 million tokens; the state is float64.
"""

import time
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from aaren.lab.measurements import BenchRecord, Row, number
from aaren.nn import AarenAttention
from harness import Benchmark, Measured, OnStep, main, table

SEED = 20240523
_BITS = 52  # values are integers below 2^52, divided by 2^52: exact in float64, as are the same plus 1
_LOW_BITS = 26  # sums of halves of such integers fit into int64


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionSettings:
    """What to measure."""

    tokens: int = 30_000_000  # through forward, in chunks, the state carried from one to the next
    chunk_tokens: int = 131_072
    raised_tokens: int = 1000  # then through step, their values raised by 1
    width: int = 8
    num_heads: int = 2


def measure(settings: PrecisionSettings, on_step: OnStep) -> Measured:
    """Feed the tokens and return the record."""
    on_step(0, 1, f"{settings.tokens:,} tokens")
    row = measure_precision(settings)
    return {"dtype": "float64"}, [row]


@torch.inference_mode()
def measure_precision(settings: PrecisionSettings) -> Row:
    """Feed the tokens; return the largest distance from the exact running mean at chunk ends and steps."""
    start = time.perf_counter()
    layer = averaging_layer(settings.width, settings.num_heads)
    generator = torch.Generator().manual_seed(SEED)
    state = layer.init_state(1)
    exact = _ExactMean(settings.width)
    forward_error = step_error = 0.0
    for first in range(0, settings.tokens, settings.chunk_tokens):
        count = min(settings.chunk_tokens, settings.tokens - first)
        integers = _draw(count, settings.width, generator)
        exact.add(integers)
        outputs, state = layer(_values(integers).unsqueeze(0), state)
        forward_error = max(forward_error, exact.distance(outputs[0, -1]))
    for integers in _draw(settings.raised_tokens, settings.width, generator).unsqueeze(1):
        raised = integers + (1 << _BITS)
        exact.add(raised)
        output, state = layer.step(_values(raised), state)
        step_error = max(step_error, exact.distance(output[0]))
    return {
        "what": "precision",
        "tokens": settings.tokens,
        "raised_tokens": settings.raised_tokens,
        "width": settings.width,
        "forward_error": forward_error,
        "step_error": step_error,
        "seconds": time.perf_counter() - start,
    }


def averaging_layer(width: int, num_heads: int) -> AarenAttention:
    """Build a layer whose output is the mean of its inputs so far: equal scores, identities elsewhere.

    >>> layer = averaging_layer(4, 2)
    >>> outputs, _ = layer(torch.tensor([[[1.0] * 4, [2.0] * 4]], dtype=torch.float64))
    >>> outputs[0, :, 0].tolist()
    [1.0, 1.5]
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layer = AarenAttention(width, num_heads, dtype=torch.float64)
    with torch.no_grad():
        layer.k_proj.weight.zero_()  # what is left of a score is q'·b_k, equal for all and not 0
        for projection in (layer.v_proj, layer.out_proj):
            projection.weight.copy_(torch.eye(width))
            projection.bias.zero_()
    return layer.eval()


class _ExactMean:
    """A running mean in whole numbers."""

    def __init__(self, width: int) -> None:
        self.sums = [0] * width
        self.count = 0

    def add(self, integers: Tensor) -> None:
        """Take in (t, c) integers."""
        high = (integers >> _LOW_BITS).sum(0).tolist()
        low = (integers & ((1 << _LOW_BITS) - 1)).sum(0).tolist()
        for column, (upper, lower) in enumerate(zip(high, low, strict=True)):
            self.sums[column] += (upper << _LOW_BITS) + lower
        self.count += len(integers)

    def distance(self, output: Tensor) -> float:
        """Return the largest difference between an output (c,) and the mean, without rounding either."""
        means = (Fraction(total, self.count << _BITS) for total in self.sums)
        return max(
            float(abs(Fraction(number) - mean)) for number, mean in zip(output.tolist(), means, strict=True)
        )


def _draw(count: int, width: int, generator: torch.Generator) -> Tensor:
    return torch.randint(1 << _BITS, (count, width), generator=generator)


def _values(integers: Tensor) -> Tensor:
    return integers.to(torch.float64) * 2.0**-_BITS


def tables(record: BenchRecord) -> list[str]:
    """Return the largest distances."""
    row = record.measurements[0]
    parts = [
        ("through forward, in chunks", "tokens", "forward_error"),
        ("then through step, values raised by 1", "raised_tokens", "step_error"),
    ]
    title = f"Distance from the exact running mean, width {row['width']}, equal scores, float64"
    rows = [[name, f"{row[tokens]:,}", f"{number(row, error):.1e}"] for name, tokens, error in parts]
    return [table(title, ["", "tokens", "largest distance"], rows)]


BENCHMARK = Benchmark(
    kind="precision",
    command="python benchmarks/precision.py",
    sources=("aaren/nn/aaren.py", "aaren/ops"),
    settings=PrecisionSettings(),
    quick=PrecisionSettings(tokens=300_000),
    measure=measure,
    tables=tables,
    is_timed=False,
)

if __name__ == "__main__":
    main(BENCHMARK)
