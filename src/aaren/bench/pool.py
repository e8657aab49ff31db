"""`aaren bench pool`: many keyed streams of one model: in a pool, from JSON lines, behind a server.

A causal classifier of 4 layers of width 64 with two channels. 100,000 keys, drawn evenly or by Zipf's law
(exponent 1.1), all of them known before the clock starts; pushes of 512 items. Durable: a commit after each
of them, synced to the disk. The server and its client share the machine.
"""

import asyncio
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from aaren.bench import memory
from aaren.bench.publish import Benchmark
from aaren.bench.record import BenchRecord, OnStep, Row, number, silent
from aaren.bench.target import Ratio, Target, doubt, judge, targets_table
from aaren.engine.lines import LineOptions, open_rows, stream_lines
from aaren.engine.presets import make_run
from aaren.engine.run import train
from aaren.stream.pool import StreamPool
from aaren.stream.session import Session
from aaren.table import Table, text_table

COMMAND = "aaren bench pool"
BATCH = 512
ZIPF = 1.1
DRAWS = ("uniform", "zipf")
NETWORK = ("width=64", "num_heads=4", "num_layers=4", "ff_width=256", "dropout=0.0", "head=pooled")
CHANNELS = 2
SAMPLES = 5
CONNECTIONS = 24
ROWS_PER_REQUEST = 256
FLAT = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSettings:
    """How much to measure."""

    keys: int = 100_000
    seconds: float = 8.0  # of each measurement, about
    most_keys: int = 1_000_000  # of the measurement of memory
    capacity: int = 50_000  # there


QUICK = PoolSettings(keys=2_000, seconds=0.3, most_keys=10_000, capacity=1_000)


class _OnEngine:
    """A model whose sessions run on one engine."""

    def __init__(self, model: Any, engine: str) -> None:
        self._model, self._engine = model, engine

    def stream(self, batch_size: int) -> Session[Any]:
        """Open a session."""
        session: Session[Any] = self._model.stream(batch_size, engine=self._engine)
        return session


def measure(settings: PoolSettings, on_step: OnStep = silent) -> BenchRecord:
    """Run the whole benchmark and return its record."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="aaren-bench-") as name:
        folder = Path(name)
        steps: list[tuple[str, Callable[[], list[Row]]]] = [
            *(
                (f"pool on {engine}", lambda engine=engine: _pool(folder, engine, settings))
                for engine in ("native", "torch")
            ),
            ("JSON lines", lambda: _lines(folder, settings)),
            ("server", lambda: _serve(folder, settings)),
            ("memory", lambda: _memory(folder, settings)),
        ]
        on_step(0, len(steps) + 1, "training a model")
        _train(folder)
        for place, (what, step) in enumerate(steps, start=1):
            on_step(place, len(steps) + 1, what)
            rows += step()
        state_bytes = number(rows[0], "state_bytes")
    return BenchRecord(
        kind="pool",
        command=COMMAND,
        settings={
            "model": "4 layers of width 64",
            "keys": settings.keys,
            "zipf": ZIPF,
            "batch": BATCH,
            "state_bytes": int(state_bytes),
            "capacity": settings.capacity,
        },
        measurements=rows,
    )


def _train(folder: Path) -> None:
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


def draw_keys(how: str, num_keys: int, count: int, seed: int = 0) -> list[str]:
    """Return keys of items, evenly over all or by Zipf's law.

    >>> draw_keys("uniform", 3, 2)
    ['key 2', 'key 1']
    """
    generator = np.random.default_rng(seed)
    if how == "uniform":
        chosen = generator.integers(0, num_keys, count)
    else:
        weights = 1.0 / np.arange(1, num_keys + 1) ** ZIPF
        chosen = generator.choice(num_keys, count, p=weights / weights.sum())
    return [f"key {place}" for place in chosen.tolist()]


def _fill(pool: StreamPool, num_keys: int, items: NDArray[np.float32]) -> None:
    for first in range(0, num_keys, BATCH):
        some = range(first, min(first + BATCH, num_keys))
        pool.push([f"key {place}" for place in some], items[: len(some)])
    pool.commit(0)


def _pool(folder: Path, engine: str, settings: PoolSettings) -> list[Row]:
    """Push with and without commits; the file of the native engine stays for those that follow."""
    rows: list[Row] = []
    items = np.random.default_rng(0).standard_normal((BATCH, CHANNELS)).astype(np.float32)
    model = _OnEngine(open_rows(folder / "run").model, engine)
    with StreamPool(model, folder / f"{engine}.db", capacity=2 * settings.keys) as pool:
        _fill(pool, settings.keys, items)
        for how, is_durable in itertools.product(DRAWS, (False, True) if engine == "native" else (False,)):
            keys = draw_keys(how, settings.keys, 200 * BATCH)
            batches = itertools.cycle([keys[first : first + BATCH] for first in range(0, len(keys), BATCH)])
            seconds: list[float] = []
            count = 0
            begun = time.perf_counter()
            while time.perf_counter() - begun < settings.seconds or len(seconds) < SAMPLES:
                start = time.perf_counter()
                for batch in itertools.islice(batches, 8):
                    pool.push(batch, items)
                    if is_durable:
                        pool.commit()
                seconds.append(time.perf_counter() - start)
                count += 8 * BATCH
            row: Row = {"what": "pool", "engine": engine, "keys": how, "is_durable": is_durable}
            rows.append({**row, **_rate(count, seconds), "state_bytes": pool.state_bytes})
        pool.commit(0)
    return rows


def _rate(count: int, seconds: Sequence[float]) -> Row:
    low, high = (float(part) for part in np.quantile(seconds, (0.25, 0.75)))
    return {
        "items": count,
        "items_per_second": count / sum(seconds),
        "lower_quartile_seconds": low,
        "upper_quartile_seconds": high,
    }


def _lines(folder: Path, settings: PoolSettings) -> list[Row]:
    """Stream JSON lines of the same keys through the same file of states."""
    rows: list[Row] = []
    way = open_rows(folder / "run")
    options = LineOptions(batch=BATCH, capacity=2 * settings.keys)
    count = 100 * BATCH if settings.keys > BATCH * 10 else 4 * BATCH
    for how in DRAWS:
        source = folder / f"{how}.jsonl"
        with source.open("w") as file:
            for key in draw_keys(how, settings.keys, count, seed=1):
                file.write(json.dumps({"id": key, "values": [0.25, -1.5]}) + "\n")
        # States come from the file as their keys appear; the pool's figures have that behind them.
        start = time.perf_counter()
        stream_lines(way, folder / "native.db", source, out=folder / f"{how}.out", options=options)
        seconds = time.perf_counter() - start
        with StreamPool(way.model, folder / "native.db") as pool:
            pool.commit(0)
        rows.append({"what": "lines", "keys": how, "items": count, "items_per_second": count / seconds})
    return rows


@contextmanager
def _server(folder: Path, settings: PoolSettings) -> Iterator[int]:
    words = [sys.executable, "-m", "aaren", "serve", str(folder / "run"), "--port", "0"]
    words += ["--state", str(folder / "native.db"), "--capacity", str(2 * settings.keys)]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        said = ""
        for said in server.stderr:
            if said.startswith("serving http://"):
                break
        else:
            raise RuntimeError(f"the server did not start: {said}")
        yield int(said.strip().rpartition(":")[2])
    finally:
        server.terminate()
        server.wait()
        server.stderr.close()


def _serve(folder: Path, settings: PoolSettings) -> list[Row]:
    rows: list[Row] = []
    with _server(folder, settings) as port:
        for what, size, connections in (("requests", 1, CONNECTIONS), ("batches", ROWS_PER_REQUEST, 4)):
            keys = draw_keys("uniform", settings.keys, 40_000, seed=2)
            bodies = []
            for first in range(0, len(keys) - size + 1, size):
                given = [{"id": key, "values": [0.25, -1.5]} for key in keys[first : first + size]]
                bodies.append(json.dumps(given[0] if size == 1 else given).encode())
            asyncio.run(_ask(port, bodies, connections, settings.seconds / 4))  # states come from the file
            latencies, seconds = asyncio.run(_ask(port, bodies, connections, settings.seconds))
            ordered = np.sort(latencies)
            rows.append(
                {
                    "what": what,
                    "keys": "uniform",
                    "connections": connections,
                    "items": len(latencies) * size,
                    "items_per_second": len(latencies) * size / seconds,
                    "requests_per_second": len(latencies) / seconds,
                    "p50_seconds": float(ordered[len(ordered) // 2]),
                    "p99_seconds": float(ordered[int(len(ordered) * 0.99)]),
                }
            )
    return rows


async def _ask(
    port: int, bodies: Sequence[bytes], connections: int, seconds: float
) -> tuple[list[float], float]:
    """Send requests over some connections, each after the answer before; return the time of each."""
    latencies: list[float] = []
    waiting = itertools.cycle(bodies)
    end = time.perf_counter() + seconds
    head = b"POST /push HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n"

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while (start := time.perf_counter()) < end:
                body = next(waiting)
                writer.write(head % len(body) + body)
                answer = await reader.readuntil(b"\r\n\r\n")
                length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                content = await reader.readexactly(length)
                if not answer.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(content.decode())
                latencies.append(time.perf_counter() - start)
        finally:
            writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(connections)))
    return latencies, time.perf_counter() - begun


def _memory(folder: Path, settings: PoolSettings) -> list[Row]:
    """Begin more and more streams, in a fresh process, at a capacity far below."""
    if not memory.can_measure():
        return []
    rows: list[Row] = []
    with memory.fresh_process(_grow, str(folder), settings.most_keys, settings.capacity) as child:
        for keys in range(settings.most_keys // 10, settings.most_keys + 1, settings.most_keys // 10):
            seconds, size = cast("tuple[float, int]", child.receive())  # what _grow sends
            rate = settings.most_keys // 10 / seconds
            rows.append(
                {"what": "memory", "num_keys": keys, "resident_bytes": size, "items_per_second": rate}
            )
    return rows


def _grow(connection: Connection, folder: str, most: int, capacity: int) -> None:
    model = open_rows(Path(folder) / "run").model
    items = np.zeros((BATCH, CHANNELS), np.float32)
    with StreamPool(model, Path(folder) / "many.db", capacity=capacity) as pool:
        start = time.perf_counter()
        reported = 0
        for first in range(0, most, BATCH):
            some = range(first, min(first + BATCH, most))
            pool.push([f"key {place}" for place in some], items[: len(some)])
            pool.commit()
            if len(pool) // (most // 10) > reported:
                reported += 1
                memory.return_freed_memory()
                connection.send((time.perf_counter() - start, memory.resident_bytes()))
                start = time.perf_counter()


def _find(record: BenchRecord, **wanted: Any) -> tuple[float, str] | None:
    row = record.find(**wanted)
    return None if row is None else (number(row, "items_per_second"), doubt(record))


def _at_least(record: BenchRecord, name: str, least: float, **wanted: Any) -> Target:
    found = _find(record, **wanted)
    value = (
        None if found is None or int(str(record.settings["keys"])) < PoolSettings().keys else Ratio(*found)
    )
    return judge(
        name, f"at least {least:,.0f}/s", value, lambda rate: rate >= least, lambda rate: f"{rate:,.0f}/s"
    )


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record by what this benchmark should reach."""
    found = [
        _at_least(
            record, f"pool, native, {how}", 50_000, what="pool", engine="native", keys=how, is_durable=False
        )
        for how in DRAWS
    ]
    for how, least in (("uniform", 8_000), ("zipf", 20_000)):
        name = f"pool, durable every {BATCH}, {how}"
        found.append(_at_least(record, name, least, what="pool", engine="native", keys=how, is_durable=True))
    for how in DRAWS:
        pool = _find(record, what="pool", engine="native", keys=how, is_durable=True)
        if pool is not None:
            name = f"`aaren stream`, {how}: half of the durable pool"
            found.append(_at_least(record, name, pool[0] / 2, what="lines", keys=how))
    found.append(_at_least(record, "`aaren serve`, single items", 2_000, what="requests"))
    row = record.find(what="requests")
    late = (
        None if row is None or found[-1].is_met is None else Ratio(number(row, "p99_seconds"), doubt(record))
    )
    found.append(
        judge(
            "their p99",
            "under 30 ms",
            late,
            lambda value: value < 0.03,
            lambda value: f"{1e3 * value:.1f} ms",
        )
    )
    found.append(_at_least(record, f"`aaren serve`, batches of {ROWS_PER_REQUEST}", 20_000, what="batches"))
    sizes = [number(row, "resident_bytes") for row in record.measurements if row["what"] == "memory"]
    is_whole = bool(sizes) and int(str(record.settings["capacity"])) == PoolSettings().capacity
    growth = max(sizes) / sizes[0] - 1.0 if is_whole else None
    name = "memory from 100,000 to 1,000,000 keys, capacity 50,000"
    found.append(
        judge(
            name,
            f"within {FLAT:.0%}",
            growth,
            lambda part: part <= FLAT,
            lambda part: f"{100.0 * part:+.1f}%",
        )
    )
    return found


def tables(record: BenchRecord) -> list[Table]:
    """Return the rates, memory, and the targets."""
    titles = {
        "lines": "`aaren stream`, JSON lines to a file, durable",
        "requests": f"`aaren serve`, single rows, {CONNECTIONS} connections",
        "batches": f"`aaren serve`, {ROWS_PER_REQUEST} rows a request, 4 connections",
    }
    shown = []
    for row in record.measurements:
        if row["what"] == "memory":
            continue
        durable = ", durable" if row.get("is_durable") else ""
        title = titles.get(str(row["what"]), f"pool, {row.get('engine')}{durable}")
        late = f"{1e3 * number(row, 'p99_seconds'):.1f} ms" if "p99_seconds" in row else ""
        shown.append((title, str(row["keys"]), f"{number(row, 'items_per_second'):,.0f}", late))
    facts = record.settings
    about = f"{facts['model']}, {facts['state_bytes']} bytes a stream, {facts['keys']:,} keys"
    kept = []
    for row in record.measurements:
        if row["what"] == "memory":
            size = f"{number(row, 'resident_bytes') / 1e6:.1f}"
            kept.append((f"{row['num_keys']:,}", size, f"{number(row, 'items_per_second'):,.0f}"))
    grown = text_table(
        f"New keys, durable, capacity {record.settings['capacity']:,}",
        ("keys", "resident, MB", "items per second"),
        kept,
    )
    judged = targets_table(targets(record), title="Targets", whole_run=COMMAND)
    return [text_table(about, ("", "keys", "items per second", "p99"), shown), grown, judged]


BENCHMARK = Benchmark(
    kind="pool", command=COMMAND, settings=PoolSettings(), quick=QUICK, measure=measure, tables=tables
)
