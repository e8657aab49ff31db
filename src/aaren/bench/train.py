"""`aaren bench train`: one optimiser step on whole sequences, as these get longer.

The paper's block with each mixer: forward, a loss on every item, backward, AdamW. Every step sees the same
number of tokens, in fewer and longer sequences, so that all but the mixers' work stays the same. Peak memory
is measured in fresh processes; times turn by turn.
"""

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path

import torch

from aaren.bench import figure, memory
from aaren.bench.publish import Benchmark
from aaren.bench.record import BenchRecord, Measured, OnStep, Row, Setting, counted, number
from aaren.bench.stream_contenders import AAREN, GRU, LSTM, PAPER, SEED, TRANSFORMER, build, size_title
from aaren.bench.target import Target, at_least, format_quartiles, targets_table, time_ratio
from aaren.bench.timing import time_interleaved
from aaren.table import Table, format_bytes, format_ratio, format_seconds, text_table

COMMAND = "aaren bench train"
CONTENDERS = (AAREN, TRANSFORMER, GRU, LSTM)
DEFAULT_LENGTHS = (96, 256, 512, 1024, 2048, 4096, 8192)
_WARM_UP_LENGTH = 16
_LEARNING_RATE = 1e-4


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSettings:
    """What to measure."""

    lengths: tuple[int, ...] = DEFAULT_LENGTHS
    tokens_per_step: int = 8192
    size: str = PAPER
    budget_seconds: float = 16.0  # for the timing of one length, shared by all contenders

    def batch_size(self, length: int) -> int:
        """Return how many sequences of a length make up a step, at least one.

        >>> TrainSettings().batch_size(1024), TrainSettings().batch_size(96)
        (8, 85)
        """
        return max(1, self.tokens_per_step // length)


QUICK = TrainSettings(lengths=(32, 96), tokens_per_step=192, budget_seconds=1.0)


def measure(settings: TrainSettings, on_step: OnStep) -> Measured:
    """Run the whole benchmark."""
    rows: list[Row] = []
    lengths = sorted(set(settings.lengths))
    total = len(lengths) * (len(CONTENDERS) + 1)
    done = 0
    _start_fork_server()
    for name in CONTENDERS:  # load what is loaded at first use, so that it is no part of a first sample
        on_step(done, total, "warming up")
        prepare_step(settings.size, name, 1, _WARM_UP_LENGTH)()
    for length in lengths:
        batch_size = settings.batch_size(length)
        peaks: dict[str, int | None] = {}
        for name in CONTENDERS:
            on_step(done, total, f"{length:,} items: memory of {name}")
            done += 1
            peaks[name] = _peak(settings.size, name, batch_size, length)
        on_step(done, total, f"{length:,} items: timing, turn by turn")
        done += 1
        calls = {name: prepare_step(settings.size, name, batch_size, length) for name in CONTENDERS}
        timings = time_interleaved(calls, budget_seconds=settings.budget_seconds, max_repeats=50)
        for name, timing in timings.items():
            row: Row = {"contender": name, "length": length, "batch_size": batch_size}
            row |= {**timing.fields(), "repeats": timing.repeats, "peak_extra_bytes": peaks[name]}
            rows.append(row)
    about: dict[str, Setting] = {
        "size": settings.size,
        "model": size_title(settings.size),
        "lengths": lengths,
        "tokens_per_step": settings.tokens_per_step,
        "optimiser": "AdamW",
        "dropout": 0.0,
        "dtype": "float32",
    }
    return about, rows


def prepare_step(size: str, contender: str, batch_size: int, length: int) -> Callable[[], float]:
    """Build a model, its optimiser and a batch; return the call that makes one step and gives its loss."""
    encoder = build(size, contender).train()
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=_LEARNING_RATE)
    generator = torch.Generator().manual_seed(SEED)
    inputs, wanted = (
        torch.randn(batch_size, length, encoder.config.width, generator=generator) for _ in range(2)
    )

    def step() -> float:
        optimiser.zero_grad()
        outputs, _ = encoder(inputs)
        loss = torch.nn.functional.mse_loss(outputs, wanted)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
        return loss.item()

    return step


def _start_fork_server() -> None:
    """Load once what optimisers load at first use, seconds of it, instead of in every measuring process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "aaren.nn", "aaren.ops.cpu.fused"])
    forkserver.ensure_running()


def _peak(size: str, contender: str, batch_size: int, length: int) -> int | None:
    """Measure what a first step needs above weights and batch: activations, gradients, AdamW's averages."""
    small = (size, contender, 1, _WARM_UP_LENGTH)
    return memory.peak_extra_bytes(prepare_step, size, contender, batch_size, length, warm_up=small)


LABELS = {AAREN: "Aaren", TRANSFORMER: "Transformer", GRU: "GRU", LSTM: "LSTM"}
COLUMNS = ("", "one step", "quartiles", "/ Aaren", "tokens per second", "peak memory", "runs")
SPEED_RATIOS = ((1024, 1.15), (8192, 2.0))
_STYLES: dict[str, tuple[str, str, str]] = {
    AAREN: (figure.VERMILION, "-", "o"),
    TRANSFORMER: (figure.BLUE, "-", "s"),
    GRU: (figure.GREEN, "--", "D"),
    LSTM: (figure.GREY, "--", "P"),
}


def tables(record: BenchRecord) -> list[Table]:
    """Return one table per length, then the targets."""
    lengths = sorted({int(number(row, "length")) for row in record.measurements})
    judged = targets_table(targets(record), whole_run=COMMAND)
    return [*(_table(record, length) for length in lengths), judged]


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record by what this benchmark should reach."""
    found = []
    for length, least in SPEED_RATIOS:
        rows = (record.find(contender=name, length=length) for name in (TRANSFORMER, AAREN))
        name = f"training step, Transformer / Aaren, t = {length:,}"
        found.append(at_least(name, time_ratio(record, *rows), least))
    return found


def draw(record: BenchRecord, base: Path) -> tuple[Path, Path]:
    """Draw peak memory and time of one step against the length of its sequences."""
    memories, times = _lines(record, "peak_extra_bytes", 1e-6), _lines(record, "median_seconds", 1.0)
    panels = [
        figure.Panel("Peak memory of one step", "items in each sequence", "megabytes", memories),
        figure.Panel("Time of one step", "items in each sequence", "seconds", times),
    ]
    about = f"{record.settings['model']}; {record.settings['tokens_per_step']:,} tokens in each step"
    caption = f"{about}; {counted(record.machine['threads'], 'thread')}"
    return figure.draw(panels, base, caption=caption, is_logarithmic=False)


def _table(record: BenchRecord, length: int) -> Table:
    rows = [row for row in record.measurements if row["length"] == length]
    sequences = counted(rows[0]["batch_size"], "sequence")
    baseline = record.find(contender=AAREN, length=length)
    return text_table(
        title=f"One training step, {sequences} of {length:,} items: {record.settings['model']}",
        columns=COLUMNS,
        rows=[_cells(row, baseline) for row in rows],
        bold_rows=[LABELS[AAREN]],
    )


def _cells(row: Row, baseline: Row | None) -> tuple[str, ...]:
    seconds, peak = number(row, "median_seconds"), row["peak_extra_bytes"]
    return (
        LABELS[str(row["contender"])],
        format_seconds(seconds),
        format_quartiles(row),
        "" if baseline is None else format_ratio(seconds / number(baseline, "median_seconds")),
        f"{number(row, 'batch_size') * number(row, 'length') / seconds:,.0f}",
        "" if peak is None else format_bytes(number(row, "peak_extra_bytes")),
        f"{row['repeats']}",
    )


def _lines(record: BenchRecord, field: str, scale: float) -> list[figure.Line]:
    found = []
    for name, style in _STYLES.items():
        rows = [row for row in record.measurements if row["contender"] == name and row[field] is not None]
        points = [(number(row, "length"), scale * number(row, field)) for row in rows]
        found.append(figure.Line(LABELS[name], points, *style, is_stressed=name == AAREN))
    return found


BENCHMARK = Benchmark(
    kind="train",
    command=COMMAND,
    settings=TrainSettings(),
    quick=QUICK,
    measure=measure,
    tables=tables,
    draw=draw,
)
