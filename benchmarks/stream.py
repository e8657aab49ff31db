"""Tokens one at a time: what they cost as their number grows, beside a GRU and a Transformer with a cache.

    python benchmarks/stream.py --record results/bench/stream.json --figure results/bench/stream

A quarter of an hour. One block of the paper's size and one stream (paper, Figure 5). The models differ in
their mixer alone and take turns of 64 tokens in one process. The state is what must be kept between two
tokens; unused slots of the cache count, because they are allocated. At the end a late token of Aaren's is
timed beside an early one.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import torch

from aaren.nn import Encoder
from harness import Benchmark, Line, Measured, OnStep, Timing, draw, main, table, time_in_turns
from records import BenchRecord, Row, number

LABELS = {
    "aaren_folded": "Aaren, folded",
    "aaren": "Aaren, not folded",
    "transformer": "Transformer, KV cache",
    "gru": "GRU",
    "lstm": "LSTM",
}
MIXERS = {"aaren_folded": "aaren", "aaren": "aaren", "transformer": "softmax", "gru": "gru"}
FOLDED, TRANSFORMER = "aaren_folded", "transformer"
TURN, EARLY = 64, 1000  # tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamSettings:
    """What to measure."""

    width: int = 512
    tokens: int = 32_768
    folded_tokens: int = 1_000_000  # of Aaren, folded


class Stream:
    """One model, its state and the tokens it is fed."""

    def __init__(self, name: str, width: int) -> None:
        torch.manual_seed(0)
        encoder = Encoder(
            width=width, num_heads=4, num_layers=1, ff_width=4 * width, dropout=0.0, mixer=MIXERS[name]
        ).eval()
        self.encoder = encoder.fold() if name == FOLDED else encoder
        self.items = list(torch.randn(TURN, 1, width))
        self.state, self.count, self.seconds = self.encoder.init_state(1), 0, 0.0
        self.early = self.state
        self.latest: list[float] = []

    def turn(self) -> None:
        """Take in a turn's tokens; the clock runs during the steps alone."""
        self.latest = []
        for item in self.items:
            begin = time.perf_counter()
            _, self.state = self.encoder.step(item, self.state)
            self.latest.append(time.perf_counter() - begin)
        self.count, self.seconds = self.count + TURN, self.seconds + sum(self.latest)
        if self.count <= EARLY:
            self.early = self.state

    def row(self, name: str) -> Row:
        """Return what the stream has cost so far."""
        about: Row = {"what": "stream", "size": "paper", "contender": name, "tokens": self.count}
        sizes: Row = {"state_bytes": self.state.nbytes, "cumulative_seconds": self.seconds}
        return {
            **about,
            **sizes,
            **{f"token_{key}": value for key, value in Timing.of(self.latest).row().items()},
        }


@torch.inference_mode()
def measure(settings: StreamSettings, on_step: OnStep) -> Measured:
    """Feed every model its tokens, in turns; keep a row at doublings and at every sixteenth of the way."""
    rows: list[Row] = []
    streams = {name: Stream(name, settings.width) for name in MIXERS}
    last = {name: settings.folded_tokens if name == FOLDED else settings.tokens for name in MIXERS}
    while waiting := [name for name in streams if streams[name].count < last[name]]:
        for name in waiting:
            streams[name].turn()
            count, total = streams[name].count, last[name]
            if (
                count & (count - 1) == 0
                or count % (total // 16 // TURN * TURN or TURN) == 0
                or count >= total
            ):
                rows.append(streams[name].row(name))
        if streams[FOLDED].count % (256 * TURN) == 0:
            on_step(streams[FOLDED].count, settings.folded_tokens, "tokens")
    folded = streams[FOLDED]
    states = {"early": folded.early, "late": folded.state}
    calls = {
        age: lambda state=state: [folded.encoder.step(item, state) for item in folded.items[:8]]
        for age, state in states.items()
    }
    timings = time_in_turns(calls, seconds=5.0, most=150)
    flat: Row = {"what": "flatness", "size": "paper", "contender": FOLDED, "late_tokens": folded.count}
    for age, timing in timings.items():
        flat[f"{age}_median_seconds"] = timing.median / 8
        flat[f"{age}_state_bytes"] = states[age].nbytes
    return {"width": settings.width, "threads": torch.get_num_threads()}, [*rows, flat]


def stream_rows(record: BenchRecord, name: str, until: float = float("inf")) -> list[Row]:
    """Return the rows of a model of the paper's size, in the order of their tokens."""
    rows = [
        row
        for row in record.measurements
        if (row["what"], row.get("size"), row.get("contender")) == ("stream", "paper", name)
    ]
    return [
        row for row in sorted(rows, key=lambda row: number(row, "tokens")) if number(row, "tokens") <= until
    ]


def tables(record: BenchRecord) -> list[str]:
    """Return what every model costs at some numbers of tokens, and a late token beside an early one."""
    rows = []
    last = max((number(row, "tokens") for row in stream_rows(record, TRANSFORMER)), default=0.0)
    for tokens in (1024, 8192, int(last)):
        ours = record.find(what="stream", size="paper", contender=FOLDED, tokens=tokens)
        for name, label in LABELS.items():
            row = record.find(what="stream", size="paper", contender=name, tokens=tokens)
            if row is not None and ours is not None:
                spent = number(row, "cumulative_seconds")
                rows.append(
                    [
                        f"{tokens:,} tokens, {label}",
                        f"{number(row, 'state_bytes') / 1e3:,.2f} kB",
                        f"{1e6 * number(row, 'token_median_seconds'):,.0f} \N{MICRO SIGN}s",
                        f"{spent:.2f} s",
                        f"{spent / number(ours, 'cumulative_seconds'):.2f}x",
                    ]
                )
    columns = ["after", "state", "the latest tokens, each", "all tokens", "/ folded"]
    flat = record.find(what="flatness", size="paper", contender=FOLDED)
    note = ""
    if flat is not None:
        ratio = number(flat, "late_median_seconds") / number(flat, "early_median_seconds")
        note = (
            f"Token {flat['late_tokens']:,} takes folded Aaren {ratio:.3f}x the time of token {EARLY:,}; its "
            f"state has {flat['early_state_bytes']:,} bytes then and {flat['late_state_bytes']:,} now."
        )
    return [table("One block of width 512, feed-forward 2,048, 4 heads", columns, rows, note=note)]


def figure(record: BenchRecord, base: Path) -> None:
    """Draw state and cumulative time as far as the Transformer went."""
    until = max(number(row, "tokens") for row in stream_rows(record, TRANSFORMER))

    def lines(field: str, unit: float) -> list[Line]:
        series = {
            label: stream_rows(record, name, until) for name, label in LABELS.items() if name != "aaren"
        }
        return [
            (label, [number(row, "tokens") for row in rows], [number(row, field) / unit for row in rows])
            for label, rows in series.items()
            if rows
        ]

    panels = {
        "State of a stream": lines("state_bytes", 1e6),
        "Time of all tokens so far": lines("cumulative_seconds", 1.0),
    }
    caption = f"one block of width 512; one stream; {record.machine['threads']} threads; {record.date[:10]}"
    caption += "; stale: the code has changed since" * bool(record.changed)
    draw(panels, base, x="tokens", y=["megabytes", "seconds"], caption=caption)


BENCHMARK = Benchmark(
    kind="stream",
    command="python benchmarks/stream.py",
    sources=("aaren/ops", "aaren/nn"),
    settings=StreamSettings(),
    quick=StreamSettings(width=16, tokens=128, folded_tokens=256),
    measure=measure,
    tables=tables,
    draw=figure,
)

if __name__ == "__main__":
    main(BENCHMARK)
