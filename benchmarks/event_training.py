"""Training updates, single steps and padding of the event models.

    python benchmarks/event_training.py [--record FILE] [--quick]     # about three minutes

The published sizes throughout: width 64, two layers, batches of 16. Real updates (likelihood, backward, Adam)
at StackOverflow's lengths and on long sequences; one event of one stream, against the GRU row; and how much
of every batch is padding. Times are taken turn by turn, so that ratios within one run can be quoted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from aaren.bench import figure
from aaren.bench.publish import Benchmark, main
from aaren.bench.record import BenchRecord, Measured, OnStep, Row, Setting, number
from aaren.bench.target import (
    Ratio,
    Target,
    at_least,
    at_most,
    format_quartiles,
    judge,
    targets_table,
    time_ratio,
)
from aaren.bench.timing import Timing, time_interleaved
from aaren.datasets.catalogue import DATASETS, EXTRAS
from aaren.datasets.fetch import on_disk
from aaren.events.batches import EventBatches
from aaren.events.config import EventsConfig
from aaren.events.data import load, split
from aaren.events.distribution import Events
from aaren.events.likelihood import log_likelihood
from aaren.events.model import EventModel, EventModelConfig
from aaren.events.sequences import EventSequences
from aaren.table import Table, format_ratio, format_seconds, text_table

KIND = "train-events"
COMMAND = "python benchmarks/event_training.py"
NUM_MARKS, BATCH_SIZE = 22, 16
STEPS = 50  # single events in one timed call
SHORT = "StackOverflow's lengths"
MIXERS = {"Aaren": "aaren", "Transformer": "softmax", "GRU": "gru"}
PADDING_LIMIT = 0.2
LONG_ITEMS = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class EventTrainingSettings:
    """What to measure."""

    num_sequences: int = 512  # of StackOverflow's lengths
    num_updates: int = 4  # in one timed call, over batches from short to long
    long_items: int = LONG_ITEMS
    budget_seconds: float = 30.0  # for each comparison


QUICK = EventTrainingSettings(num_sequences=64, num_updates=2, long_items=128, budget_seconds=1.0)


def measure(settings: EventTrainingSettings, on_step: OnStep) -> Measured:
    """Run the whole benchmark."""
    rows: list[Row] = []
    short = short_sequences(settings.num_sequences)
    long = _sequences(np.full(BATCH_SIZE, settings.long_items))
    long_case = f"{settings.long_items:,} events each"
    for done, (case, events, count) in enumerate(
        [(SHORT, short, settings.num_updates), (long_case, long, 1)]
    ):
        on_step(done, 4, f"updates, {case}")
        calls = {name: prepare_updates(mixer, events, count) for name, mixer in MIXERS.items()}
        timings = time_interleaved(calls, budget_seconds=settings.budget_seconds, max_repeats=60)
        rows += [_timing_row("update", case, name, timing, count) for name, timing in timings.items()]
    on_step(2, 4, "single events")
    steps = {name: prepare_steps(mixer) for name, mixer in MIXERS.items() if name != "Transformer"}
    timings = time_interleaved(steps, budget_seconds=settings.budget_seconds, max_repeats=200)
    rows += [_timing_row("step", "one stream", name, timing, STEPS) for name, timing in timings.items()]
    on_step(3, 4, "padding")
    rows.append(_padding_row(SHORT, short))
    rows += [_padding_row(name, split(load(name)).train) for name in _sets_at_hand()]
    about: dict[str, Setting] = {
        "num_sequences": settings.num_sequences,
        "num_updates": settings.num_updates,
        "long_items": settings.long_items,
        "marks": NUM_MARKS,
        "batch_size": BATCH_SIZE,
        "optimiser": "Adam",
        "dtype": "float32",
    }
    return about, rows


def short_sequences(count: int) -> EventSequences:
    """Make sequences as long as StackOverflow's: at least 41 events, 72 on average, a few of hundreds."""
    rng = np.random.default_rng(0)
    return _sequences(np.minimum(41 + rng.exponential(31.0, size=count).astype(np.int64), 736))


def prepare_updates(mixer: str, events: EventSequences, count: int) -> Callable[[], float]:
    """Build a model, its optimiser and batches; return the call that makes `count` updates."""
    torch.manual_seed(0)
    model = EventModel(EventModelConfig(num_marks=NUM_MARKS, mixer=mixer)).train()
    optimiser = EventsConfig(dataset="sin").optimiser.build(model)
    batches = EventBatches(events, batch_size=BATCH_SIZE)
    order = sorted(batches.plan(0), key=lambda chosen: int(events.lengths[chosen].max()))
    places = np.linspace(0, len(order) - 1, count + 2).round().astype(int)[1:-1]
    chosen = [batches.gather(order[place]) for place in places]

    def updates() -> float:
        total = 0.0
        for batch in chosen:
            optimiser.zero_grad()
            loss = -log_likelihood(model, Events(batch.gaps, batch.marks - 1), mask=batch.mask)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimiser.step()
            total += loss.item()
        return total

    return updates


def prepare_steps(mixer: str) -> Callable[[], object]:
    """Build a folded model; return the call that takes in STEPS events of one stream, one by one."""
    torch.manual_seed(0)
    model = EventModel(EventModelConfig(num_marks=NUM_MARKS, mixer=mixer)).fold()
    event = Events(torch.tensor([0.7], dtype=torch.float64), torch.tensor([3]))
    start = model.init_state(1)

    def steps() -> object:
        state = start
        with torch.inference_mode():
            for _ in range(STEPS):
                distribution, state = model.step(event, state)
        return distribution

    return steps


def tables(record: BenchRecord) -> list[Table]:
    """Return a table of times, one of padding, and the targets."""
    timed = [row for row in record.measurements if row["what"] != "padding"]
    padded = [row for row in record.measurements if row["what"] == "padding"]
    times = text_table(
        title="Event models: one update, or one event of one stream",
        columns=("", "", "median", "quartiles", "/ Aaren", "runs"),
        rows=[_cells(record, row) for row in timed],
    )
    padding = text_table(
        title=f"Padding in training batches of {record.settings['batch_size']}",
        columns=("", "share of the tokens"),
        rows=[(str(row["case"]), f"{number(row, 'share'):.1%}") for row in padded],
    )
    return [times, padding, targets_table(targets(record), whole_run=COMMAND)]


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record by what this benchmark should reach."""
    long_case = f"{LONG_ITEMS:,} events each"
    shares = [number(row, "share") for row in record.measurements if row["what"] == "padding"]
    return [
        *(
            at_least(
                f"update, Transformer / Aaren, {case}",
                _ratio(record, "update", case, "Transformer", "Aaren"),
                least,
            )
            for case, least in ((SHORT, 1.0), (long_case, 2.5))
        ),
        at_most("one event, Aaren / GRU", _ratio(record, "step", "one stream", "Aaren", "GRU"), 1.5),
        judge(
            "padding, the worst set",
            f"below {PADDING_LIMIT:.0%}",
            max(shares, default=None),
            lambda share: share < PADDING_LIMIT,
            "{:.1%}".format,
        ),
    ]


def draw(record: BenchRecord, base: Path) -> tuple[Path, Path]:
    """Draw the time of an update at both lengths."""
    lengths = (72.0, float(str(record.settings["long_items"])))
    lines = []
    for name, colour in zip(MIXERS, (figure.VERMILION, figure.BLUE, figure.GREEN), strict=True):
        rows = [row for row in record.measurements if row["what"] == "update" and row["contender"] == name]
        heights = [1e3 * number(row, "median_seconds") for row in rows]
        points = list(zip(lengths, heights, strict=True))
        lines.append(figure.Line(name, points, colour, is_stressed=name == "Aaren"))
    panel = figure.Panel("Time of one update", "events in each sequence", "milliseconds", lines)
    return figure.draw([panel], base, caption=f"event models, batches of {BATCH_SIZE}")


def _sequences(lengths: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> EventSequences:
    rng = np.random.default_rng(1)
    return EventSequences.from_lists(
        [np.cumsum(rng.exponential(size=length)) for length in lengths],
        [rng.integers(NUM_MARKS, size=length) for length in lengths],
        num_marks=NUM_MARKS,
    )


def _sets_at_hand() -> list[str]:
    rows = [row for row in (*DATASETS, *EXTRAS) if row.setting == "events"]
    return [row.name for row in rows if row.is_generated or on_disk(row)]


def _timing_row(what: str, case: str, contender: str, timing: Timing, count: int) -> Row:
    return {
        "what": what,
        "case": case,
        "contender": contender,
        **timing.fields(parts=count),
        "repeats": timing.repeats,
    }


def _padding_row(case: str, events: EventSequences) -> Row:
    return {
        "what": "padding",
        "case": case,
        "share": EventBatches(events, batch_size=BATCH_SIZE).padding_share(),
    }


def _ratio(record: BenchRecord, what: str, case: str, slow: str, fast: str) -> Ratio | None:
    return time_ratio(record, *(record.find(what=what, case=case, contender=name) for name in (slow, fast)))


def _cells(record: BenchRecord, row: Row) -> tuple[str, ...]:
    what, case, contender = str(row["what"]), str(row["case"]), str(row["contender"])
    ratio = _ratio(record, what, case, contender, "Aaren")
    return (
        f"{what}, {case}",
        contender,
        format_seconds(number(row, "median_seconds")),
        format_quartiles(row),
        "" if ratio is None else format_ratio(ratio.value),
        f"{row['repeats']}",
    )


BENCHMARK = Benchmark(
    kind=KIND,
    command=COMMAND,
    settings=EventTrainingSettings(),
    quick=QUICK,
    measure=measure,
    tables=tables,
    draw=draw,
)

if __name__ == "__main__":
    main(BENCHMARK)
