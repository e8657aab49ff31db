"""The scan beside a copy of its values, causal attention and a GRU: the same inputs, in turns, in one run.

    python benchmarks/scan.py --record results/bench/scan.json     # two minutes

A copy of the values, into memory that exists, is the least that any scan can cost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.ops import scan_attention
from harness import Benchmark, Call, Measured, OnStep, main, table, time_in_turns
from records import BenchRecord, Row, number

HEADS, WIDTH, SEED = 8, 64, 0
FORWARD, BOTH = "forward", "forward+backward"
LABELS = {
    "copy": "copy of the values",
    "fused": "fused",
    "chunked": "chunked",
    "paper_scan": "paper's scan, float32",
    "sdpa": "causal SDPA",
    "gru": "nn.GRU",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanSettings:
    """What to measure."""

    lengths: tuple[int, ...] = (256, 1024, 8192)
    items: int = 8192  # at least two sequences
    seconds: float = 10.0  # for one length and direction


def paper_scan(scores: Tensor, values: Tensor) -> Tensor:
    """Attend to every prefix as the paper's Algorithm 1 says: Hillis and Steele's scan, in the inputs' dtype.

    What one writes from the paper, and no more: no mask, decay or state. Offsets begin at 1, not at 2 as
    printed, and there is no m_0.

    >>> paper_scan(torch.zeros(1, 3, 1), torch.tensor([1.0, 3.0, 8.0]).view(1, 3, 1, 1)).flatten()
    tensor([1., 2., 4.])
    """
    m, u, w = scores, torch.ones_like(scores), values
    offset = 1
    while offset < scores.shape[1]:
        highest = torch.maximum(m[:, :-offset], m[:, offset:]).detach()  # gradients cancel
        before, here = torch.exp(m[:, :-offset] - highest), torch.exp(m[:, offset:] - highest)
        joined_u = u[:, :-offset] * before + u[:, offset:] * here
        joined_w = w[:, :-offset] * before.unsqueeze(-1) + w[:, offset:] * here.unsqueeze(-1)
        m = torch.cat([m[:, :offset], highest], dim=1)
        u = torch.cat([u[:, :offset], joined_u], dim=1)
        w = torch.cat([w[:, :offset], joined_w], dim=1)
        offset *= 2
    return w / u.unsqueeze(-1)


def build(name: str, batch: int, length: int, direction: str) -> Call:
    """Return the call to time, on inputs that every contender of a shape shares."""
    generator = torch.Generator().manual_seed(SEED)
    values, gradient = (torch.randn(batch, length, HEADS, WIDTH, generator=generator) for _ in range(2))
    scores = torch.randn(batch, length, HEADS, generator=generator)
    if name == "copy":
        outputs = torch.empty_like(values)
        return lambda: outputs.copy_(values)
    if name == "sdpa":  # (b, h, t, d), contiguous: the layout it likes best
        rows, gradient = values.transpose(1, 2).contiguous(), gradient.transpose(1, 2).contiguous()
        attend = partial(F.scaled_dot_product_attention, is_causal=True)
        return as_user(attend, [rows.clone(), rows.clone(), rows], gradient, direction)
    if name == "gru":
        layer = nn.GRU(HEADS * WIDTH, HEADS * WIDTH, batch_first=True)
        leaves = [values.flatten(2), *layer.parameters()]
        return as_user(lambda x, *_: layer(x)[0], leaves, gradient.flatten(2), direction)
    if name == "paper_scan":
        return as_user(paper_scan, [scores, values], gradient, direction)
    return as_user(
        lambda *items: scan_attention(*items, backend=name)[0], [scores, values], gradient, direction
    )


def as_user(run: Callable[..., Tensor], inputs: list[Tensor], gradient: Tensor, direction: str) -> Call:
    """Call as a user would: without autograd at inference, with a backward pass in training."""
    if direction == FORWARD:
        return torch.no_grad()(partial(run, *inputs))
    leaves = [leaf.requires_grad_() for leaf in inputs]
    return lambda: torch.autograd.grad(run(*leaves), leaves, gradient)


def measure(settings: ScanSettings, on_step: OnStep) -> Measured:
    """Time every contender at every length, forward and with its backward."""
    rows: list[Row] = []
    cells = [(length, direction) for length in settings.lengths for direction in (FORWARD, BOTH)]
    for done, (length, direction) in enumerate(cells):
        on_step(done, len(cells), f"{length:,} items, {direction}")
        batch = max(2, settings.items // length)
        calls = {name: build(name, batch, length, direction) for name in LABELS}
        # Between two copies another contender would move hundreds of megabytes through the caches.
        timings = time_in_turns({"copy": calls.pop("copy")}, seconds=settings.seconds / 10)
        timings |= time_in_turns(calls, seconds=settings.seconds)
        shape: Row = {"batch": batch, "length": length, "heads": HEADS, "width": WIDTH}
        rows += [
            {"contender": name, "direction": direction, **shape, **timing.row()}
            for name, timing in timings.items()
        ]
    return {"heads": HEADS, "width": WIDTH, "dtype": "float32"}, rows


def tables(record: BenchRecord) -> list[str]:
    """Return milliseconds and ratios by length and direction."""
    result = []
    for length, direction in dict.fromkeys((row["length"], row["direction"]) for row in record.measurements):
        seconds = {
            str(row["contender"]): number(row, "median_seconds")
            for row in record.measurements
            if (row["length"], row["direction"]) == (length, direction)
            and row["contender"] in LABELS
            and row["median_seconds"] is not None
        }
        copy, ours = seconds["copy"], seconds["fused"]
        rows = [
            [LABELS[name], f"{1e3 * spent:,.2f} ms", f"{spent / copy:.2f}x", f"{spent / ours:.2f}x"]
            for name, spent in seconds.items()
        ]
        title = f"{length:,} items, {direction}, {HEADS} heads of width {WIDTH}"
        result.append(table(title, ["", "median", "/ copy", "/ fused"], rows))
    return result


BENCHMARK = Benchmark(
    kind="scan",
    command="python benchmarks/scan.py",
    sources=("aaren/ops",),
    settings=ScanSettings(),
    quick=ScanSettings(lengths=(64,), items=128, seconds=0.2),
    measure=measure,
    tables=tables,
)

if __name__ == "__main__":
    main(BENCHMARK)
