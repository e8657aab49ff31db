"""Ten minutes of a durable pool at half of what it can do: no error, and memory stays.

    python benchmarks/pool_soak.py [--record FILE]     # ten and a half minutes

The model, batches and commits of `aaren bench pool`; 20,000 keys, of which a quarter fits into memory, so
that streams leave and return all the time. First as fast as it goes, for 20 seconds; then a push begins every
twice the time that one took there.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from aaren.bench import memory
from aaren.bench.pool import BATCH, CHANNELS, FLAT, train_model
from aaren.bench.publish import Benchmark, main
from aaren.bench.record import BenchRecord, Measured, OnStep, Row, Setting, number
from aaren.bench.target import Target, judge, targets_table
from aaren.engine.lines import open_rows
from aaren.errors import ConfigError
from aaren.stream.pool import StreamPool
from aaren.table import Table, text_table

COMMAND = "python benchmarks/pool_soak.py"


@dataclass(frozen=True, kw_only=True, slots=True)
class SoakSettings:
    """How long to push, and to how many streams."""

    seconds: float = 600.0
    fast_seconds: float = 20.0  # at full speed, before
    readings: int = 10  # of the memory
    keys: int = 20_000


QUICK = SoakSettings(seconds=2.0, fast_seconds=1.0, readings=2, keys=2_000)


def measure(settings: SoakSettings, on_step: OnStep) -> Measured:
    """Push, and measure the memory of this process now and then."""
    if not memory.can_measure():
        raise ConfigError("the memory of a process cannot be read here: this benchmark needs /proc.")
    generator = np.random.default_rng(0)
    items = generator.standard_normal((BATCH, CHANNELS)).astype(np.float32)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="aaren-soak-") as name:
        train_model(Path(name))
        model = open_rows(Path(name) / "run").model
        with StreamPool(model, Path(name) / "states.db", capacity=settings.keys // 4) as pool:

            def push(until: float, period: float) -> int:
                count, begun = 0, time.monotonic()
                while time.monotonic() < until:
                    chosen = generator.integers(0, settings.keys, BATCH).tolist()
                    answers = pool.push([f"key {key}" for key in chosen], items)
                    if not bool(torch.stack(answers).isfinite().all()):
                        raise RuntimeError("an answer is not finite")
                    pool.commit()
                    count += 1
                    time.sleep(max(begun + count * period - time.monotonic(), 0.0))
                return count

            begun = time.monotonic()
            on_step(0, settings.readings + 1, "full speed")
            period = 2.0 * settings.fast_seconds / push(begun + settings.fast_seconds, 0.0)
            begun = time.monotonic()
            for reading in range(1, settings.readings + 1):
                on_step(reading, settings.readings + 1, "half speed")
                start = time.monotonic()
                count = push(begun + reading * settings.seconds / settings.readings, period)
                memory.return_freed_memory()
                rows.append(
                    {
                        "seconds": time.monotonic() - begun,
                        "resident_bytes": memory.resident_bytes(),
                        "items": BATCH * count,
                        "items_per_second": BATCH * count / (time.monotonic() - start),
                        "streams": len(pool),
                    }
                )
    about: dict[str, Setting] = {
        "seconds": settings.seconds,
        "keys": settings.keys,
        "full_items_per_second": 2.0 * BATCH / period,
    }
    return about, rows


def record_seconds(record: BenchRecord) -> float:
    """Return how long the pushes at half speed took."""
    return number(record.measurements[-1], "seconds")


def targets(record: BenchRecord) -> list[Target]:
    """Judge the rate, and the growth of memory from the first reading to any other."""
    sizes = [number(row, "resident_bytes") for row in record.measurements]
    is_whole = float(str(record.settings["seconds"])) >= SoakSettings().seconds
    growth = max(sizes) / sizes[0] - 1.0 if is_whole else None
    full = float(str(record.settings["full_items_per_second"]))
    share = sum(number(row, "items") for row in record.measurements) / record_seconds(record) / full
    return [
        judge(
            "items per second, of the most that was measured first",
            "from 45 to 55%",
            share if is_whole else None,
            lambda part: 0.45 <= part <= 0.55,
            lambda part: f"{100.0 * part:.0f}%",
        ),
        judge(
            "memory over ten minutes at half speed, no error",
            f"within {FLAT:.0%}",
            growth,
            lambda part: part <= FLAT,
            lambda part: f"{100.0 * part:+.1f}%",
        ),
    ]


def tables(record: BenchRecord) -> list[Table]:
    """Return memory by time, and the verdict."""
    shown = [
        (
            f"{number(row, 'seconds'):.0f}",
            f"{number(row, 'items_per_second'):,.0f}",
            f"{number(row, 'resident_bytes') / 1e6:.1f}",
        )
        for row in record.measurements
    ]
    full = float(str(record.settings["full_items_per_second"]))
    title = f"A durable pool of {record.settings['keys']:,} keys; {full:,.0f} items per second at most"
    judged = targets_table(targets(record), title="Targets", whole_run=COMMAND)
    return [text_table(title, ("seconds", "items per second", "resident, MB"), shown), judged]


BENCHMARK = Benchmark(
    kind="pool_soak", command=COMMAND, settings=SoakSettings(), quick=QUICK, measure=measure, tables=tables
)

if __name__ == "__main__":
    main(BENCHMARK)
