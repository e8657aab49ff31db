"""`aaren bench ...`: ratios against other methods, each measured in one run."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aaren.errors import ConfigError

if TYPE_CHECKING:
    from aaren.bench.publish import Benchmark

app = typer.Typer(
    help="Measure this machine: ratios against other methods, in one run.", no_args_is_help=True
)

MAX_LENGTH = 2**24
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes, a few seconds: a smoke test.")]
Lengths = Annotated[
    list[int] | None,
    typer.Option("--length", metavar="N", min=1, max=MAX_LENGTH, help="Items per sequence; may be repeated."),
]
Threads = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=1024, help="Threads; default: as torch chooses.")
]
RecordPath = Annotated[
    Path | None, typer.Option("--record", metavar="FILE", help="Write the measurements there, as JSON.")
]
FigureBase = Annotated[
    Path | None,
    typer.Option(
        "--figure", metavar="FIGURE", help="Draw to FIGURE.png and FIGURE.svg. Needs 'aaren\\[plot]'."
    ),
]


@app.command()
def scan(
    quick: Quick = False,
    long: Annotated[bool, typer.Option("--long", help="Also 65,536 items, fused and chunked.")] = False,
    lengths: Lengths = None,
    threads: Threads = None,
    record: RecordPath = None,
    figure: FigureBase = None,
) -> None:
    """Time every backend against a memory copy, causal attention, GRU and LSTM; under 5 minutes."""
    _run("scan", threads, record, figure, quick=quick, long=long, lengths=lengths)


@app.command()
def stream(
    quick: Quick = False,
    long: Annotated[
        bool,
        typer.Option(
            "--long", help="Width 512: all to 32,768 tokens, folded Aaren to 1,000,000; about 20 minutes."
        ),
    ] = False,
    threads: Threads = None,
    record: RecordPath = None,
    figure: FigureBase = None,
) -> None:
    """Feed tokens one at a time to Aaren, a Transformer with KV cache, GRU and LSTM; under 5 minutes."""
    _run("stream", threads, record, figure, quick=quick, long=long)


@app.command()
def train(
    quick: Quick = False,
    lengths: Lengths = None,
    threads: Threads = None,
    record: RecordPath = None,
    figure: FigureBase = None,
) -> None:
    """Time one training step on whole sequences, Aaren, Transformer, GRU and LSTM; about 5 minutes."""
    _run("train", threads, record, figure, quick=quick, lengths=lengths)


@app.command()
def pool(
    quick: Quick = False,
    parts: Annotated[
        list[str] | None,
        typer.Option(
            "--part",
            metavar="PART",
            help="Only native, torch, events, lines, serve, memory or spark; may be repeated. The record's "
            "other parts are kept.",
        ),
    ] = None,
    threads: Threads = None,
    record: RecordPath = None,
) -> None:
    """Push to 100,000 keyed streams: pool, commits, JSON lines, server, memory at 1,000,000; 5 minutes."""
    _run("pool", threads, record, None, quick=quick, parts=parts)


@app.command()
def show(
    record: Annotated[Path, typer.Argument(metavar="FILE", help="A record that was written with --record.")],
    figure: FigureBase = None,
) -> None:
    """Show a record again, without measuring."""
    from aaren.bench.publish import publish
    from aaren.bench.record import read_record

    found, known = read_record(record), _benchmarks()
    if found.kind not in known:
        raise ConfigError(
            f"{record} is a record of {found.kind!r}; this command shows those of {', '.join(known)}. "
            "A script in benchmarks/ shows its own: --show."
        )
    publish(known[found.kind], found, figure=figure)


def _benchmarks() -> "dict[str, Benchmark[Any]]":
    from aaren.bench import pool, scan, stream_view, train

    known = (scan.BENCHMARK, stream_view.BENCHMARK, train.BENCHMARK, pool.BENCHMARK)
    return {bench.kind: bench for bench in known}


def _run(
    kind: str,
    threads: int | None,
    record: Path | None,
    figure: Path | None,
    *,
    quick: bool,
    long: bool = False,
    lengths: list[int] | None = None,
    parts: list[str] | None = None,
) -> None:
    """Measure with the chosen sizes, and record the options."""
    if quick + long + bool(lengths) > 1:
        raise ConfigError("--quick, --long and --length each choose the sizes; give only one of them.")
    options = [*["--quick"] * quick, *["--long"] * long, *(f"--length {length}" for length in lengths or [])]
    from aaren.bench.publish import run

    bench = _benchmarks()[kind]
    settings: Any = bench.quick if quick else bench.long if long else bench.settings
    if lengths:
        settings = replace(bench.settings, lengths=tuple(lengths))
    if parts:
        settings = replace(settings, parts=tuple(parts))
        options += [f"--part {part}" for part in parts]
    to = {"record": record, "figure": figure}
    run(bench, settings, **to, options=options, threads=threads, is_part=bool(parts))
