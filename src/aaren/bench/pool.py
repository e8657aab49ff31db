"""`aaren bench pool`: many keyed streams of one model: in a pool, from JSON lines, behind a server, on Spark.

A causal classifier of 4 layers of width 64 with two channels, and an event model of the same size. 100,000
keys, drawn evenly or by Zipf's law (exponent 1.1), all of them known before the clock starts; pushes of 512
items. Durable: a commit after each of them, synced to the disk. The server and its client share the machine.
"""

import asyncio
import ctypes
import importlib.util
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from aaren.bench import memory
from aaren.bench.publish import Benchmark
from aaren.bench.record import BUSY_SHARE, BenchRecord, Measured, OnStep, OtherWork, Row, Setting, number
from aaren.bench.target import Ratio, Target, doubt, judge, targets_table
from aaren.engine.lines import LineOptions, open_rows, stream_lines
from aaren.engine.presets import make_run
from aaren.engine.run import train
from aaren.errors import ConfigError, unknown_name
from aaren.stream.pool import StreamPool
from aaren.stream.session import Session
from aaren.table import Table, text_table

COMMAND = "aaren bench pool"
PARTS = ("native", "torch", "events", "lines", "serve", "memory", "spark")
BATCH = 512
ZIPF = 1.1
DRAWS = ("uniform", "zipf")
NETWORK = ("width=64", "num_heads=4", "num_layers=4", "ff_width=256", "dropout=0.0", "head=pooled")
CHANNELS = 2
VALUES = [0.25, -1.5]
SAMPLES = 5
CONNECTIONS = 24
ROWS_PER_REQUEST = 256
FLAT = 0.02
EVENTS = ("width=64", "num_layers=4", "num_heads=4", "ff_width=256")
_SET_CHILD_SUBREAPER = 36  # of prctl(2)
SPARK_BATCHES, SPARK_ROWS = 3, 10  # of every key, in each of the batches
# What a user's driver does: a streaming table of files, one file a batch.
SPARK = """
import sys
from pyspark.sql import SparkSession
from aaren.integrations.spark import configure, stream
run, source, checkpoint, out = sys.argv[1:]
session = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2").getOrCreate()
)
configure(session)
rows = (
    session.readStream.schema("id string, ts long, values array<double>")
    .option("maxFilesPerTrigger", 1).json(source)
)
answers = stream(rows, run, key="id", order="ts")
query = (
    answers.writeStream.format("json").option("checkpointLocation", checkpoint)
    .trigger(availableNow=True).start(out)
)
query.awaitTermination()
for one in query.recentProgress:
    print("progress", one["numInputRows"], one["durationMs"]["triggerExecution"])
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSettings:
    """How much to measure."""

    keys: int = 100_000
    seconds: float = 6.0  # of each measurement, about
    most_keys: int = 1_000_000  # of the measurement of memory
    capacity: int = 50_000  # there
    spark_keys: int = 10_000
    parts: tuple[str, ...] = ()  # none: all

    def __post_init__(self) -> None:
        for name in self.parts:
            if name not in PARTS:
                raise unknown_name("--part", name, PARTS)


QUICK = PoolSettings(keys=2_000, seconds=0.3, most_keys=10_000, capacity=1_000, spark_keys=100)


class _OnEngine:
    """A model whose sessions run on one engine."""

    def __init__(self, model: Any, engine: str) -> None:
        self._model, self._engine = model, engine

    def stream(self, batch_size: int) -> Session[Any]:
        """Open a session."""
        session: Session[Any] = self._model.stream(batch_size, engine=self._engine)
        return session


def measure(settings: PoolSettings, on_step: OnStep) -> Measured:
    """Run the whole benchmark."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="aaren-bench-") as name:
        folder = Path(name)
        steps: dict[str, tuple[str, Callable[[Path, PoolSettings], list[Row]]]] = {
            "native": ("pool on native", partial(_pool, engine="native")),
            "torch": ("pool on torch", partial(_pool, engine="torch")),
            "events": ("an event model", _events),
            "lines": ("JSON lines", _lines),
            "serve": ("server", _serve),
            "memory": ("memory", _memory),
            "spark": ("Spark", _spark),
        }
        chosen = [part for part in PARTS if part in (settings.parts or PARTS)]
        on_step(0, len(chosen) + 1, "training a model")
        train_model(folder)
        with StreamPool(open_rows(folder / "run").model, folder / "size.db", capacity=1) as pool:
            state_bytes = pool.state_bytes
        for place, part in enumerate(chosen, start=1):
            what, step = steps[part]
            on_step(place, len(chosen) + 1, what)
            if part in ("lines", "serve") and not (folder / "native.db").exists():
                _fill_file(folder, settings)
            watch = OtherWork()
            found = step(folder, settings)
            others = max((watch.shares() or {"": 0.0}).values())
            rows += [{"part": part, **row, "others_share": others} for row in found]
    about: dict[str, Setting] = {
        "model": "4 layers of width 64",
        "keys": settings.keys,
        "zipf": ZIPF,
        "batch": BATCH,
        "state_bytes": state_bytes,
        "capacity": settings.capacity,
    }
    return about, rows


def merge(old: BenchRecord, new: BenchRecord) -> BenchRecord:
    """Return a new record with the parts that only the old one has; they must be of one machine and size."""
    for name in ("settings", "machine", "versions"):
        if getattr(old, name) != getattr(new, name):
            raise ConfigError(
                f"the record there was made with other {name}: its parts cannot stand beside these. Write "
                f"to another --record, or measure all parts."
            )
    again = {row["part"] for row in new.measurements}
    kept = [row for row in old.measurements if row.get("part") not in (None, *again)]
    rows = sorted([*kept, *new.measurements], key=lambda row: PARTS.index(str(row["part"])))
    shares = [number(row, "others_share") for row in rows]
    return replace(new, command=COMMAND, measurements=rows, other_work={"share_during": max(shares)})


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


def _fill_file(folder: Path, settings: PoolSettings) -> None:
    """Make the file of states that the pool's own part leaves."""
    items = np.zeros((BATCH, CHANNELS), np.float32)
    with StreamPool(
        open_rows(folder / "run").model, folder / "native.db", capacity=2 * settings.keys
    ) as pool:
        _fill(pool, settings.keys, items)


def _pool(folder: Path, settings: PoolSettings, *, engine: str) -> list[Row]:
    """Push with and without commits; the file of the native engine stays for those that follow."""
    rows: list[Row] = []
    items = np.random.default_rng(0).standard_normal((BATCH, CHANNELS)).astype(np.float32)
    model = _OnEngine(open_rows(folder / "run").model, engine)
    with StreamPool(model, folder / f"{engine}.db", capacity=2 * settings.keys) as pool:
        _fill(pool, settings.keys, items)
        for how, is_durable in itertools.product(DRAWS, (False, True) if engine == "native" else (False,)):
            row: Row = {"what": "pool", "engine": engine, "keys": how, "is_durable": is_durable}
            found = _push(pool, how, settings, lambda _: {"items": items}, is_durable=is_durable)
            rows.append({**row, **found, "state_bytes": pool.state_bytes})
        pool.commit(0)
    return rows


def _push(
    pool: StreamPool,
    how: str,
    settings: PoolSettings,
    give: Callable[[int], dict[str, Any]],
    *,
    is_durable: bool,
) -> Row:
    """Push batch after batch; `give` says what the batch of a number has beside its keys."""
    keys = draw_keys(how, settings.keys, 200 * BATCH)
    batches = itertools.cycle([keys[first : first + BATCH] for first in range(0, len(keys), BATCH)])
    seconds: list[float] = []
    count = 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < settings.seconds or len(seconds) < SAMPLES:
        start = time.perf_counter()
        for batch in itertools.islice(batches, 8):
            pool.push(batch, **give(count // BATCH))
            if is_durable:
                pool.commit()
            count += BATCH
        seconds.append(time.perf_counter() - start)
    return _rate(count, seconds)


def _events(folder: Path, settings: PoolSettings) -> list[Row]:
    """Push events, whose times increase, to a model of the same size."""
    rows: list[Row] = []
    choices = [*(f"network.{choice}" for choice in EVENTS), "epochs=1", "max_sequences=20"]
    config = make_run("events", "sin", model="aaren", profile="smoke", assignments=choices)
    train(config, folder / "events")
    model = open_rows(folder / "events").model
    marks, clock = np.zeros(BATCH, np.int64), itertools.count(1)
    with StreamPool(_OnEngine(model, "native"), folder / "events.db", capacity=2 * settings.keys) as pool:

        def give(_: int) -> dict[str, Any]:
            return {"items": BATCH * float(next(clock)) + np.arange(BATCH), "mark": marks}

        for how, is_durable in itertools.product(DRAWS, (False, True)):
            _push(pool, how, replace(settings, seconds=settings.seconds / 3), give, is_durable=False)
            pool.commit()
            found = _push(pool, how, settings, give, is_durable=is_durable)
            row: Row = {"what": "events", "engine": "native", "keys": how, "is_durable": is_durable}
            rows.append({**row, **found, "state_bytes": pool.state_bytes})
    return rows


def _adopt_orphans() -> None:
    """Count what Spark's driver leaves running as ours: it does not wait for its JVM."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _spark(folder: Path, settings: PoolSettings) -> list[Row]:
    """Stream batches of rows through Spark on two threads; the first has the start of workers in it."""
    if importlib.util.find_spec("pyspark") is None:
        return []
    source = folder / "spark-rows"
    source.mkdir()
    keys = settings.spark_keys
    for batch in range(SPARK_BATCHES):
        path, first = source / f"{batch}.json", batch * SPARK_ROWS * keys
        lines = (
            json.dumps({"id": f"key {place % keys}", "ts": first + place, "values": VALUES})
            for place in range(SPARK_ROWS * keys)
        )
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (1.7e9 + batch, 1.7e9 + batch))  # files are taken in the order of their times
    words = [folder / "run", source, folder / "spark-checkpoint", folder / "spark-out"]
    _adopt_orphans()
    done = subprocess.run(
        [sys.executable, "-c", SPARK, *map(str, words)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"Spark failed: {done.stderr[-2000:]}")
    progress = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("progress")]
    seconds = [int(milliseconds) / 1e3 for count, milliseconds in progress if int(count)]
    items = SPARK_ROWS * keys * len(seconds)
    return [
        {
            "what": "spark",
            "keys": f"{keys:,} x {SPARK_ROWS} rows a batch",
            "items": items,
            "items_per_second": items / sum(seconds),
        }
    ]


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
                file.write(json.dumps({"id": key, "values": VALUES}) + "\n")
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
                given = [{"id": key, "values": VALUES} for key in keys[first : first + size]]
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
    return None if row is None else (number(row, "items_per_second"), _doubt(record, row))


def _doubt(record: BenchRecord, row: Row) -> str:
    """Say why a figure cannot be judged: by what others did during its part, if the record tells."""
    if "others_share" not in row:
        return doubt(record)
    return "busy machine" if number(row, "others_share") > BUSY_SHARE else ""


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
        None
        if row is None or found[-1].is_met is None
        else Ratio(number(row, "p99_seconds"), _doubt(record, row))
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
    name = f"Spark local[2], {PoolSettings().spark_keys:,} keys x {SPARK_ROWS} rows a batch"
    found.append(_at_least(record, name, 3_000, what="spark"))
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
        "spark": f"Spark, local[2], {SPARK_BATCHES} batches",
        "requests": f"`aaren serve`, single rows, {CONNECTIONS} connections",
        "batches": f"`aaren serve`, {ROWS_PER_REQUEST} rows a request, 4 connections",
    }
    shown = []
    for row in record.measurements:
        if row["what"] == "memory":
            continue
        durable = ", durable" if row.get("is_durable") else ""
        model = ", event model" if row["what"] == "events" else ""
        title = titles.get(str(row["what"]), f"pool, {row.get('engine')}{model}{durable}")
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
    kind="pool",
    command=COMMAND,
    settings=PoolSettings(),
    quick=QUICK,
    measure=measure,
    tables=tables,
    merge=merge,
)
