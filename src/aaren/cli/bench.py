"""`aaren bench ...`: ratios against peers, each measured in one run.

`aaren bench grid`: what the scheduler of `aaren reproduce` costs.

`aaren bench policy`: what one action costs.

The runs whose batches and steps benches measure: here presets meet benches, which do not know them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aaren.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from aaren.engine.config import RunConfig


app = typer.Typer(help="Measure this machine: ratios against peers, in one run.", no_args_is_help=True)

MAX_LENGTH = 2**24
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes, a few seconds: does it run here?")]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Threads; default: as torch chooses.")]
RecordPath = Annotated[Path | None, typer.Option("--record", help="Write the measurements there, as JSON.")]
FigureBase = Annotated[
    Path | None, typer.Option("--figure", help="Draw to FIGURE.png and FIGURE.svg. Needs 'aaren\\[plot]'.")
]
PagePath = Annotated[
    Path | None, typer.Option("--page", help="Put the tables into this Markdown page, between its marks.")
]


@app.command()
def scan(
    quick: Quick = False,
    long: Annotated[bool, typer.Option("--long", help="Also 65,536 items, fused and chunked.")] = False,
    lengths: Annotated[
        list[int] | None,
        typer.Option("--length", min=1, max=MAX_LENGTH, help="Items per sequence; may be repeated."),
    ] = None,
    threads: Threads = None,
    record: RecordPath = None,
    figure: FigureBase = None,
    page: PagePath = None,
) -> None:
    """Time every backend against a memory copy, causal attention, GRU and LSTM; under 5 minutes."""
    if quick + long + bool(lengths) > 1:
        raise ConfigError("--quick, --long and --length each choose the sizes; give only one of them.")
    from aaren.bench import scan as bench
    from aaren.bench.publish import Destinations, publish
    from aaren.bench.record import progress_bar

    destinations = Destinations(record=record, figure=figure, page=page)
    destinations.check("scan")
    settings = bench.QUICK if quick else bench.LONG if long else bench.ScanSettings()
    if lengths:
        settings = bench.ScanSettings(lengths=tuple(lengths))
    sizes = [*["--quick"] * quick, *["--long"] * long, *(f"--length {length}" for length in lengths or [])]
    command = " ".join(["aaren bench scan", *sizes, *_set_threads(threads)])
    with progress_bar("bench scan") as on_step:
        result = bench.measure(settings, command=command, on_step=on_step)
    publish(result, destinations)


@app.command()
def token(
    quick: Quick = False,
    threads: Threads = None,
    record: RecordPath = None,
    figure: FigureBase = None,
    page: PagePath = None,
) -> None:
    """Time one new token as Aaren, Transformer and Perceiver, after ever more tokens; about a minute."""
    from aaren.bench import token_cost
    from aaren.bench.publish import Destinations, publish
    from aaren.bench.record import progress_bar

    destinations = Destinations(record=record, figure=figure, page=page)
    destinations.check("token")
    settings = token_cost.QUICK if quick else token_cost.TokenSettings()
    command = " ".join(["aaren bench token", *["--quick"] * quick, *_set_threads(threads)])
    with progress_bar("bench token") as on_step:
        result = token_cost.measure(settings, command=command, on_step=on_step)
    publish(result, destinations)


@app.command()
def stream(
    quick: Quick = False,
    long: Annotated[
        bool,
        typer.Option(
            "--long", help="Width 512: all to 32,768 tokens, folded Aaren to 1,000,000; about 20 minutes."
        ),
    ] = False,
    precision: Annotated[
        bool, typer.Option("--precision", help="Also a running mean over 30,000,000 tokens; a minute more.")
    ] = False,
    threads: Threads = None,
    record: RecordPath = None,
    figure: FigureBase = None,
    page: PagePath = None,
) -> None:
    """Feed tokens one at a time to Aaren, a Transformer with KV cache, GRU and LSTM; under 5 minutes."""
    if quick and long:
        raise ConfigError("--quick and --long each choose the number of tokens; give only one of them.")
    from dataclasses import replace

    from aaren.bench import stream as bench
    from aaren.bench.publish import Destinations, publish
    from aaren.bench.record import progress_bar
    from aaren.bench.stream import PrecisionSettings

    destinations = Destinations(record=record, figure=figure, page=page)
    destinations.check("stream")
    settings = bench.QUICK if quick else bench.LONG if long else bench.StreamSettings()
    if precision:
        settings = replace(settings, precision=PrecisionSettings())
    options = [*["--quick"] * quick, *["--long"] * long, *["--precision"] * precision]
    command = " ".join(["aaren bench stream", *options, *_set_threads(threads)])
    with progress_bar("bench stream") as on_step:
        result = bench.measure(settings, command=command, on_step=on_step)
    publish(result, destinations)


@app.command()
def train(
    quick: Quick = False,
    lengths: Annotated[
        list[int] | None,
        typer.Option("--length", min=1, max=MAX_LENGTH, help="Items per sequence; may be repeated."),
    ] = None,
    setting: Annotated[
        str | None, typer.Option(help="events: its models' updates, steps and padding instead.")
    ] = None,
    engine: Annotated[
        bool, typer.Option("--engine", help="What the training engine itself costs, of each setting.")
    ] = False,
    threads: Threads = None,
    record: RecordPath = None,
    figure: FigureBase = None,
    page: PagePath = None,
) -> None:
    """Time one training step on whole sequences, Aaren, Transformer, GRU and LSTM; about 5 minutes."""
    if quick and lengths:
        raise ConfigError("--quick and --length each choose the sizes; give only one of them.")
    if engine:
        if lengths or figure:
            raise ConfigError("--engine measures real runs: leave out --length and --figure.")
        _train_engine(setting, quick, threads, record, page)
        return
    if setting is not None:
        _train_setting(setting, quick, lengths, threads, record, figure, page)
        return
    from aaren.bench import train as bench
    from aaren.bench.publish import Destinations, publish
    from aaren.bench.record import progress_bar

    destinations = Destinations(record=record, figure=figure, page=page)
    destinations.check("train")
    settings = bench.QUICK if quick else bench.TrainSettings()
    if lengths:
        settings = bench.TrainSettings(lengths=tuple(lengths))
    sizes = [*["--quick"] * quick, *(f"--length {length}" for length in lengths or [])]
    command = " ".join(["aaren bench train", *sizes, *_set_threads(threads)])
    with progress_bar("bench train") as on_step:
        result = bench.measure(settings, command=command, on_step=on_step)
    publish(result, destinations)


def _train_setting(
    setting: str,
    quick: bool,
    lengths: list[int] | None,
    threads: int | None,
    record: Path | None,
    figure: Path | None,
    page: Path | None,
) -> None:
    """Measure a setting's own models; so far events."""
    if setting != "events" or lengths:
        raise ConfigError(f"--setting goes with events and without --length; got {setting!r}.")
    from aaren.bench import train_events
    from aaren.bench.publish import Destinations, publish
    from aaren.bench.record import progress_bar

    destinations = Destinations(record=record, figure=figure, page=page)
    destinations.check(train_events.KIND)
    settings = train_events.QUICK if quick else train_events.TrainEventsSettings()
    command = " ".join(["aaren bench train --setting events", *["--quick"] * quick, *_set_threads(threads)])
    with progress_bar("bench train --setting events") as on_step:
        result = train_events.measure(settings, command=command, on_step=on_step)
    publish(result, destinations)


def _train_engine(
    setting: str | None, quick: bool, threads: int | None, record: Path | None, page: Path | None
) -> None:
    """Measure what real runs of the cpu profile spend outside forward, backward and optimiser."""
    from aaren.bench import train_engine
    from aaren.bench.publish import Destinations, publish
    from aaren.bench.record import progress_bar

    settings = known_settings()
    if setting is not None and setting not in settings:
        raise unknown_name("setting", setting, settings)
    destinations = Destinations(record=record, page=page)
    destinations.check(train_engine.KIND)
    runs = {
        f"{name}, {model}": cpu_run(name, model=model, threads=threads or 1)
        for name in ([setting] if setting is not None else settings)
        for model in ("aaren", "transformer")
    }
    chosen = ["aaren bench train --engine", *["--quick"] * quick, *_set_threads(threads)]
    command = " ".join([*chosen, *([f"--setting {setting}"] if setting is not None else [])])
    seconds = train_engine.QUICK_SECONDS if quick else train_engine.SECONDS
    with progress_bar("bench train --engine") as on_step:
        result = train_engine.measure(runs, seconds=seconds, command=command, on_step=on_step)
    publish(result, destinations)


@app.command("data")
def data_loading(quick: Quick = False, record: RecordPath = None, page: PagePath = None) -> None:
    """Time loading, Hopper rollouts, and one batch beside one training step; about two minutes."""
    from aaren.bench import data
    from aaren.bench.publish import Destinations, publish
    from aaren.bench.record import progress_bar

    destinations = Destinations(record=record, page=page)
    destinations.check("data")
    settings = data.QUICK if quick else data.DataSettings()
    runs = {setting: cpu_run(setting) for setting in known_settings()}
    command = "aaren bench data" + " --quick" * quick
    with progress_bar("bench data") as on_step:
        result = data.measure(settings, runs, command=command, on_step=on_step)
    publish(result, destinations)


@app.command()
def startup(record: RecordPath = None, page: PagePath = None) -> None:
    """Time the import, and the kernel's first and later calls, in fresh processes; half a minute."""
    from aaren.bench import startup as bench
    from aaren.bench.publish import Destinations, publish
    from aaren.bench.record import progress_bar

    destinations = Destinations(record=record, page=page)
    destinations.check("startup")
    with progress_bar("bench startup") as on_step:
        result = bench.measure(command="aaren bench startup", on_step=on_step)
    publish(result, destinations)


@app.command()
def show(
    record: Annotated[Path, typer.Argument(help="A record that was written with --record.")],
    figure: FigureBase = None,
    page: PagePath = None,
) -> None:
    """Show a record again, without measuring."""
    from aaren.bench.publish import Destinations, publish
    from aaren.bench.record import read_record

    found = read_record(record)
    destinations = Destinations(figure=figure, page=page)
    destinations.check(found.kind)
    publish(found, destinations)


def _set_threads(threads: int | None) -> list[str]:
    """Set torch's threads if asked to, and return the option as part of a command."""
    if threads is None:
        return []
    import torch

    torch.set_num_threads(threads)
    return [f"--threads {threads}"]


def grid(
    quick: Annotated[bool, typer.Option("--quick", help="Runs of one second: does it work here?")] = False,
    record: RecordPath = None,
    page: PagePath = None,
) -> None:
    """Run 16 equal runs of 30 s with one worker, then with two; about 12 minutes on a quiet machine."""
    from aaren.bench.publish import Destinations, publish
    from aaren.bench.record import progress_bar
    from aaren.lab import bench_grid

    destinations = Destinations(record=record, page=page)
    destinations.check(bench_grid.KIND)
    settings = bench_grid.QUICK if quick else bench_grid.GridSettings()
    command = "aaren bench grid" + " --quick" * quick
    with progress_bar("bench grid") as on_step:
        result = bench_grid.measure(settings, command=command, on_step=on_step)
    publish(result, destinations)


def policy(
    quick: Quick = False,
    threads: Threads = None,
    record: RecordPath = None,
    figure: FigureBase = None,
    page: PagePath = None,
) -> None:
    """Time one action at steps 10 and 1,000: state carried, reset, window, cache; about two minutes."""
    import torch

    from aaren.bench import policy as bench
    from aaren.bench.publish import Destinations, publish
    from aaren.bench.record import progress_bar

    destinations = Destinations(record=record, figure=figure, page=page)
    destinations.check(bench.KIND)
    settings = bench.QUICK if quick else bench.PolicySettings()
    command = "aaren bench policy" + " --quick" * quick
    if threads is not None:
        torch.set_num_threads(threads)
        command += f" --threads {threads}"
    with progress_bar("bench policy") as on_step:
        result = bench.measure(settings, command=command, on_step=on_step)
    publish(result, destinations)


# The first that is on disk; the last needs no file of the user's.
DATASETS = {
    "forecasting": ("ETTm1", "seasonal"),
    "classification": ("JapaneseVowels",),
    "events": ("sin",),
    "rl": ("hopper-medium-regen", "pendulum"),
}


def cpu_run(setting: str, *, model: str = "aaren", threads: int = 1) -> "RunConfig":
    """Return a setting's run of the `cpu` profile, on the best of its datasets that is here."""
    from aaren.engine.presets import make_run

    chosen = [f"engine.threads={threads}"]
    return make_run(setting, choose_dataset(setting), model=model, profile="cpu", assignments=chosen)


def choose_dataset(setting: str) -> str:
    """Return the first dataset of a setting that is on disk, or the one that always is there."""
    from aaren.datasets.catalogue import lookup
    from aaren.datasets.fetch import on_disk

    *wanted, last = DATASETS[setting]
    return next((name for name in wanted if on_disk(lookup(name))), last)


def known_settings() -> Sequence[str]:
    """Return the settings that can be trained."""
    return list(DATASETS)
