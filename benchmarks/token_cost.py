"""What one new token costs one attention layer in each view, after N tokens.

    python benchmarks/token_cost.py [--record FILE] [--figure BASE]     # about a minute

All views start from the token's key and value (projections cost the same everywhere and are left out) and end
with the layer's output for the newest token or, for the Perceiver, for its latents:

- Aaren: the query is constant, so the token's score updates a state of fixed size: O(1).
- Transformer: the token brings a new query, which must meet all N keys and values of the cache: O(N).
- Perceiver: the L latents depend on the input, so a new token changes all of them, and each must meet all N
  tokens again: O(N L).

A stack of layers multiplies all three alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from aaren.bench import figure
from aaren.bench.publish import Benchmark, main
from aaren.bench.record import BenchRecord, Measured, OnStep, Row, Setting, counted, number
from aaren.bench.timing import time_interleaved
from aaren.ops import attend, read, update
from aaren.table import Table, format_bytes, format_ratio, format_seconds, text_table

SEED = 20240523
VIEWS: dict[str, str] = {
    "aaren": "Aaren, update",
    "transformer": "Transformer, attend",
    "transformer_sdpa": "Transformer, SDPA",
    "perceiver": "Perceiver, attend",
    "perceiver_sdpa": "Perceiver, SDPA",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSettings:
    """What to measure."""

    tokens: tuple[int, ...] = (256, 1024, 4096, 16384)
    num_latents: int = 64
    heads: int = 8
    width: int = 64  # of one head
    budget_seconds: float = 10.0  # for one number of tokens, shared by all views


QUICK = TokenSettings(tokens=(64, 256), num_latents=8, budget_seconds=0.3)


class View(NamedTuple):
    """One way to take in a token, and the bytes it must keep between tokens."""

    take_token: Callable[[], Tensor]  # returns (1, queries, h, d)
    kept_bytes: int


def build_views(num_tokens: int, settings: TokenSettings) -> dict[str, View]:
    """Prepare every view after num_tokens - 1 tokens, ready to take the last one, again and again."""
    generator = torch.Generator().manual_seed(SEED)
    heads, width = settings.heads, settings.width
    keys, values = (torch.randn(1, num_tokens, heads, width, generator=generator) for _ in range(2))
    query = torch.randn(1, 1, heads, width, generator=generator)
    latents = torch.randn(1, settings.num_latents, heads, width, generator=generator)
    key, value = keys[:, -1].clone(), values[:, -1].clone()
    _, before = attend(query, keys[:, :-1], values[:, :-1])
    state = type(before)(*(part[:, 0] for part in before))
    # SDPA wants (b, h, t, d); its cache is kept in that layout.
    cache = [tensor.transpose(1, 2).contiguous() for tensor in (keys, values)]

    def take_aaren() -> Tensor:
        score = (query[:, 0] * key).sum(-1) * width**-0.5
        return read(update(state, score, value)).to(value.dtype).unsqueeze(1)

    def through_attend(queries: Tensor) -> Callable[[], Tensor]:
        def take() -> Tensor:
            keys[:, -1], values[:, -1] = key, value
            return attend(queries, keys, values)[0]

        return take

    def through_sdpa(queries: Tensor) -> Callable[[], Tensor]:
        transposed = queries.transpose(1, 2).contiguous()

        def take() -> Tensor:
            cache[0][:, :, -1], cache[1][:, :, -1] = key, value
            return F.scaled_dot_product_attention(transposed, cache[0], cache[1]).transpose(1, 2)

        return take

    cached_bytes = keys.nbytes + values.nbytes
    return {
        "aaren": View(take_aaren, state.nbytes),
        "transformer": View(through_attend(query), cached_bytes),
        "transformer_sdpa": View(through_sdpa(query), cached_bytes),
        "perceiver": View(through_attend(latents), cached_bytes),
        "perceiver_sdpa": View(through_sdpa(latents), cached_bytes),
    }


@torch.no_grad()
def measure(settings: TokenSettings, on_step: OnStep) -> Measured:
    """Time one new token in every view, for every number of tokens before it."""
    rows: list[Row] = []
    counts = sorted(set(settings.tokens))
    for done, num_tokens in enumerate(counts):
        on_step(done, len(counts), f"after {num_tokens:,} tokens")
        views = build_views(num_tokens, settings)
        timings = time_interleaved(
            {name: view.take_token for name, view in views.items()},
            budget_seconds=settings.budget_seconds,
            max_repeats=2000,
        )
        for name, timing in timings.items():
            rows.append(
                {
                    "view": name,
                    "tokens": num_tokens,
                    **timing.fields(),
                    "repeats": timing.repeats,
                    "kept_bytes": views[name].kept_bytes,
                }
            )
    about: dict[str, Setting] = {
        "tokens": counts,
        "num_latents": settings.num_latents,
        "heads": settings.heads,
        "width": settings.width,
        "dtype": "float32",
    }
    return about, rows


def tables(record: BenchRecord) -> list[Table]:
    """Return the times, with their growth, and the bytes kept between tokens."""
    counts = sorted({int(number(row, "tokens")) for row in record.measurements})
    names = [name for name in VIEWS if record.find(view=name) is not None]
    columns = ("tokens so far", *(VIEWS[name] for name in names))
    latents = record.settings["num_latents"]
    about = f"{record.settings['heads']} heads of width {record.settings['width']}, L = {latents} latents"

    def column(field: str, count: int) -> list[float]:
        return [number(record.find(view=name, tokens=count) or {}, field) for name in names]

    times = [
        (f"{count:,}", *(format_seconds(seconds) for seconds in column("median_seconds", count)))
        for count in counts
    ]
    last_over_first = [
        format_ratio(last / first)
        for last, first in zip(
            column("median_seconds", counts[-1]), column("median_seconds", counts[0]), strict=True
        )
    ]
    kept = [(f"{count:,}", *(format_bytes(size) for size in column("kept_bytes", count))) for count in counts]
    return [
        text_table(
            title=f"Time for one new token, one layer, {about} (median)",
            columns=columns,
            rows=[*times, (f"growth over {counts[-1] / counts[0]:g}x tokens", *last_over_first)],
        ),
        text_table(title="Bytes kept between tokens, one stream, one layer", columns=columns, rows=kept),
    ]


def draw(record: BenchRecord, base: Path) -> tuple[Path, Path]:
    """Draw time per new token against the tokens before it."""
    styles = {
        "aaren": (figure.VERMILION, "-", "o"),
        "transformer": (figure.BLUE, "-", "s"),
        "transformer_sdpa": (figure.BLUE, "--", "s"),
        "perceiver": (figure.GREEN, "-", "^"),
        "perceiver_sdpa": (figure.GREEN, "--", "^"),
    }
    lines = []
    for name, style in styles.items():
        rows = [row for row in record.measurements if row["view"] == name]
        points = [(number(row, "tokens"), 1e6 * number(row, "median_seconds")) for row in rows]
        lines.append(figure.Line(VIEWS[name], points, *style, is_stressed=name == "aaren"))
    panel = figure.Panel("What one new token costs", "tokens so far", "microseconds", lines)
    return figure.draw([panel], base, caption=f"one layer; {counted(record.machine['threads'], 'thread')}")


BENCHMARK = Benchmark(
    kind="token",
    command="python benchmarks/token_cost.py",
    settings=TokenSettings(),
    quick=QUICK,
    measure=measure,
    tables=tables,
    draw=draw,
)

if __name__ == "__main__":
    main(BENCHMARK)
