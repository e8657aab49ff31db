"""Many keyed streams of one model: in a pool, beside SQLite alone, from JSON lines, and behind a server.

    python benchmarks/pool.py --record results/bench/pool.json     # three minutes

A causal classifier of 4 layers of width 64 with two channels. 100,000 keys, drawn evenly or by Zipf's law
(exponent 1.1), all of them known before the clock starts; pushes of 512 items. Durable: a commit after each,
synced to the disk. SQLite alone writes blocks of the same bytes for the same keys by INSERT OR REPLACE and
commits as often: no durable pool can be faster. Memory: new keys, twenty times as many as fit. The server and
its client share the machine.
"""

import asyncio
import itertools
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aaren.engine.presets import make_run
from aaren.engine.run import train
from aaren.engine.use import open_rows
from aaren.stream.lines import LineOptions, stream_lines
from aaren.stream.pool import StreamPool
from harness import Benchmark, Measured, OnStep, main, resident_bytes, table
from records import BenchRecord, Row, number

BATCH, ZIPF, CHANNELS, VALUES, CONNECTIONS = 512, 1.1, 2, [0.25, -1.5], 24
NETWORK = ("width=64", "num_heads=4", "num_layers=4", "ff_width=256", "dropout=0.0", "head=pooled")
LABELS = {
    "sqlite": "SQLite alone, INSERT OR REPLACE, durable",
    "lines": "`aaren stream`, JSON lines to a file, durable",
    "requests": f"`aaren serve`, single rows, {CONNECTIONS} connections",
    "batches": "`aaren serve`, 256 rows a request, 4 connections",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSettings:
    """How much to measure."""

    keys: int = 100_000
    seconds: float = 6.0  # of each measurement, about
    capacity: int = 50_000  # where memory is measured


def train_model(folder: Path) -> None:
    """Make a run: what is measured does not depend on what a model has learned."""
    chance = random.Random(0)
    head = ["@problemName waves", "@timeStamps false", "@univariate false", f"@dimensions {CHANNELS}"]
    head += ["@equalLength true", "@seriesLength 16", "@classLabel true calm storm", "@data"]
    series = [
        ":".join(",".join(f"{chance.gauss(0.0, 1.0):.3f}" for _ in range(16)) for _ in range(CHANNELS))
        + f":{label}"
        for label in ("calm", "storm") * 20
    ]
    source = folder / "waves.ts"
    source.write_text("\n".join([*head, *series]) + "\n")
    choices = [f"network.{choice}" for choice in NETWORK] + ["epochs=1", "updates_per_epoch=1"]
    config = make_run(
        "classification", model="aaren-causal", profile="smoke", data_file=str(source), assignments=choices
    )
    train(config, folder / "run")


def draw_keys(how: str, num_keys: int, count: int) -> list[str]:
    """Return keys of items, evenly over all or by Zipf's law.

    >>> draw_keys("uniform", 3, 2)
    ['key 2', 'key 1']
    """
    generator = np.random.default_rng(0)
    weights = np.ones(num_keys) if how == "uniform" else 1.0 / np.arange(1, num_keys + 1) ** ZIPF
    chosen = (
        generator.integers(0, num_keys, count)
        if how == "uniform"
        else generator.choice(num_keys, count, p=weights / weights.sum())
    )
    return [f"key {place}" for place in chosen.tolist()]


def rate(take: Callable[[list[str]], object], how: str, settings: PoolSettings) -> float:
    """Return items per second of a call that takes the keys of a batch."""
    keys = draw_keys(how, settings.keys, 200 * BATCH)
    batches = itertools.cycle([keys[first : first + BATCH] for first in range(0, len(keys), BATCH)])
    count, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < settings.seconds:
        take(next(batches))
        count += BATCH
    return count / spent


def pool_rows(folder: Path, settings: PoolSettings) -> list[Row]:
    """Push with and without commits, then write the same bytes by SQLite alone."""
    items = np.random.default_rng(0).standard_normal((BATCH, CHANNELS)).astype(np.float32)
    every = [f"key {place}" for place in range(settings.keys)]
    rows: list[Row] = []
    with StreamPool(open_rows(folder / "run").model, folder / "pool.db", capacity=2 * settings.keys) as pool:
        for first in range(0, settings.keys, BATCH):
            pool.push(every[first : first + BATCH], items[: len(every[first : first + BATCH])])
        pool.commit(0)

        def durable(keys: list[str]) -> None:
            pool.push(keys, items)
            pool.commit()

        for how, is_durable in itertools.product(("uniform", "zipf"), (False, True)):
            take = durable if is_durable else lambda keys: pool.push(keys, items)
            about: Row = {"what": "pool", "engine": "native", "keys": how, "is_durable": is_durable}
            rows.append({**about, "items_per_second": rate(take, how, settings)})
        pool.commit(0)
        size = pool.state_bytes
    database = sqlite3.connect(folder / "alone.db")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE states (key TEXT PRIMARY KEY, block BLOB) WITHOUT ROWID")

    def alone(keys: list[str]) -> None:
        blocks = [(key, bytes(size)) for key in dict.fromkeys(keys)]
        database.executemany("INSERT OR REPLACE INTO states VALUES (?, ?)", blocks)
        database.commit()

    for first in range(0, settings.keys, BATCH):
        alone(every[first : first + BATCH])
    for how in ("uniform", "zipf"):
        rows.append({"what": "sqlite", "keys": how, "items_per_second": rate(alone, how, settings)})
    database.close()
    return rows


def line_rows(folder: Path, settings: PoolSettings) -> list[Row]:
    """Stream JSON lines of the same keys through the same file of states."""
    rows: list[Row] = []
    options = LineOptions(batch=BATCH, capacity=2 * settings.keys)
    for how in ("uniform", "zipf"):
        keys = draw_keys(how, settings.keys, min(settings.keys, 50_000))
        source = folder / f"{how}.jsonl"
        source.write_text("".join(json.dumps({"id": key, "values": VALUES}) + "\n" for key in keys))
        begin = time.perf_counter()
        way = open_rows(folder / "run")
        stream_lines(way, folder / f"{how}.db", source, out=folder / f"{how}.out", options=options)
        spent = time.perf_counter() - begin
        rows.append({"what": "lines", "keys": how, "items_per_second": len(keys) / spent})
    return rows


def memory_rows(folder: Path, settings: PoolSettings) -> list[Row]:
    """Begin twenty times as many streams as fit into memory."""
    rows: list[Row] = []
    items = np.zeros((BATCH, CHANNELS), np.float32)
    with StreamPool(open_rows(folder / "run").model, folder / "many.db", capacity=settings.capacity) as pool:
        for first in range(0, 20 * settings.capacity, BATCH):
            pool.push([f"key {place}" for place in range(first, first + BATCH)], items)
            pool.commit()
            if len(pool) // (2 * settings.capacity) > len(rows):
                rows.append({"what": "memory", "num_keys": len(pool), "resident_bytes": resident_bytes()})
    return rows


def serve_rows(folder: Path, settings: PoolSettings) -> list[Row]:
    """Ask a server by single rows and by batches."""
    words = ["serve", str(folder / "run"), "--port", "0", "--state", str(folder / "serve.db")]
    server = subprocess.Popen([sys.executable, "-m", "aaren", *words], stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    rows: list[Row] = []
    try:
        line = next(line for line in server.stderr if line.startswith("serving http://"))
        port = int(line.strip().rpartition(":")[2])
        for what, size, connections in (("requests", 1, CONNECTIONS), ("batches", 256, 4)):
            keys = draw_keys("uniform", settings.keys, 20_000)
            bodies = []
            for first in range(0, len(keys) - size + 1, size):
                items = [{"id": key, "values": VALUES} for key in keys[first : first + size]]
                bodies.append(json.dumps(items[0] if size == 1 else items).encode())
            asyncio.run(ask(port, bodies, connections, settings.seconds / 4))
            latencies = asyncio.run(ask(port, bodies, connections, settings.seconds))
            late = float(np.quantile(latencies, 0.99))
            rate_of = len(latencies) * size / settings.seconds
            rows.append({"what": what, "keys": "uniform", "items_per_second": rate_of, "p99_seconds": late})
    finally:
        server.terminate()
        server.wait()
        server.stderr.close()
    return rows


async def ask(port: int, bodies: Sequence[bytes], connections: int, seconds: float) -> list[float]:
    """Send requests over some connections, each after the answer before; return the time of each."""
    latencies: list[float] = []
    waiting = itertools.cycle(bodies)
    end = time.perf_counter() + seconds
    head = b"POST /push HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (begin := time.perf_counter()) < end:
            body = next(waiting)
            writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            content = await reader.readexactly(length)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(content.decode())
            latencies.append(time.perf_counter() - begin)
        writer.close()

    await asyncio.gather(*(client() for _ in range(connections)))
    return latencies


def measure(settings: PoolSettings, on_step: OnStep) -> Measured:
    """Run every part."""
    rows: list[Row] = []
    parts = {"pool": pool_rows, "lines": line_rows, "serve": serve_rows, "memory": memory_rows}
    with tempfile.TemporaryDirectory(prefix="aaren-bench-") as name:
        folder = Path(name)
        train_model(folder)
        with StreamPool(open_rows(folder / "run").model, folder / "size.db", capacity=1) as pool:
            about: dict[str, Any] = {"model": "4 layers of width 64", "state_bytes": pool.state_bytes}
        for done, (what, part) in enumerate(parts.items()):
            on_step(done, len(parts), what)
            rows += part(folder, settings)
    return {**about, "keys": settings.keys, "batch": BATCH, "capacity": settings.capacity}, rows


def tables(record: BenchRecord) -> list[str]:
    """Return the rates, and memory by the number of keys."""
    rates, memory = [], []
    for row in record.measurements:
        if row["what"] == "memory":
            memory.append([f"{row['num_keys']:,}", f"{number(row, 'resident_bytes') / 1e6:,.0f} MB"])
            continue
        is_native_pool = row["what"] == "pool" and row.get("engine") == "native"
        label = f"pool{', durable' * bool(row.get('is_durable'))}" if is_native_pool else ""
        label = label or LABELS.get(str(row["what"]), "")
        if label:
            late = f"{1e3 * number(row, 'p99_seconds'):.0f} ms" if "p99_seconds" in row else ""
            rates.append([f"{label}, {row['keys']} keys", f"{number(row, 'items_per_second'):,.0f}", late])
    about = record.settings
    title = f"{about['model']}, {about['state_bytes']} bytes a stream, {about['keys']:,} keys"
    new = table(
        f"New keys, durable, capacity {about['capacity']:,}", ["keys", "memory of the process"], memory
    )
    return [table(title, ["", "items per second", "p99"], rates), new]


BENCHMARK = Benchmark(
    kind="pool",
    command="python benchmarks/pool.py",
    sources=("aaren/stream", "aaren/serve"),
    settings=PoolSettings(),
    quick=PoolSettings(keys=1_000, seconds=0.3, capacity=500),
    measure=measure,
    tables=tables,
)

if __name__ == "__main__":
    main(BENCHMARK)
