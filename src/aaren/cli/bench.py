"""`aaren bench ...`: ratios against peers, each measured in one run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from aaren.errors import ConfigError

app = typer.Typer(help="Measure this machine: ratios against peers, in one run.", no_args_is_help=True)

MAX_LENGTH = 2**24
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes, a few seconds: does it run here?")]
Lengths = Annotated[
    list[int] | None,
    typer.Option("--length", min=1, max=MAX_LENGTH, help="Items per sequence; may be repeated."),
]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Threads; default: as torch chooses.")]
RecordPath = Annotated[Path | None, typer.Option("--record", help="Write the measurements there, as JSON.")]
FigureBase = Annotated[
    Path | None, typer.Option("--figure", help="Draw to FIGURE.png and FIGURE.svg. Needs 'aaren\\[plot]'.")
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
    options = _sizes(quick=quick, long=long, lengths=lengths)
    from aaren.bench import scan as bench
    from aaren.bench.publish import Destinations, run

    settings = bench.QUICK if quick else bench.LONG if long else bench.ScanSettings()
    if lengths:
        settings = bench.ScanSettings(lengths=tuple(lengths))
    destinations = Destinations(record=record, figure=figure)
    run(bench.BENCHMARK, settings, destinations, options=options, threads=threads)


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
    options = _sizes(quick=quick, long=long)
    from aaren.bench import stream as bench
    from aaren.bench.publish import Destinations, run
    from aaren.bench.stream_view import BENCHMARK

    settings = bench.QUICK if quick else bench.LONG if long else bench.StreamSettings()
    destinations = Destinations(record=record, figure=figure)
    run(BENCHMARK, settings, destinations, options=options, threads=threads)


@app.command()
def train(
    quick: Quick = False,
    lengths: Lengths = None,
    threads: Threads = None,
    record: RecordPath = None,
    figure: FigureBase = None,
) -> None:
    """Time one training step on whole sequences, Aaren, Transformer, GRU and LSTM; about 5 minutes."""
    options = _sizes(quick=quick, lengths=lengths)
    from aaren.bench import train as bench
    from aaren.bench.publish import Destinations, run

    settings = bench.QUICK if quick else bench.TrainSettings()
    if lengths:
        settings = bench.TrainSettings(lengths=tuple(lengths))
    destinations = Destinations(record=record, figure=figure)
    run(bench.BENCHMARK, settings, destinations, options=options, threads=threads)


@app.command()
def show(
    record: Annotated[Path, typer.Argument(help="A record that was written with --record.")],
    figure: FigureBase = None,
) -> None:
    """Show a record again, without measuring."""
    from aaren.bench import publish as harness
    from aaren.bench import scan, stream_view, train
    from aaren.bench.record import read_record

    found = read_record(record)
    known: list[harness.Benchmark[Any]] = [
        scan.BENCHMARK,
        stream_view.BENCHMARK,
        train.BENCHMARK,
    ]
    for benchmark in known:
        if benchmark.kind == found.kind:
            harness.show(benchmark, found, harness.Destinations(figure=figure))
            return
    raise ConfigError(
        f"{record} is a record of {found.kind!r}; this command shows those of "
        f"{', '.join(benchmark.kind for benchmark in known)}. A script in benchmarks/ shows its own: --show."
    )


def _sizes(*, quick: bool, long: bool = False, lengths: list[int] | None = None) -> list[str]:
    """Return the options that chose the sizes, of which only one may be given."""
    if quick + long + bool(lengths) > 1:
        raise ConfigError("--quick, --long and --length each choose the sizes; give only one of them.")
    return [*["--quick"] * quick, *["--long"] * long, *(f"--length {length}" for length in lengths or [])]
