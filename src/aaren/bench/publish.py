"""The harness: run a benchmark, and from its record make the tables, the JSON and the figure.

A benchmark is one `Benchmark`; `aaren bench` runs those of the package and `main` is the command line of the
scripts in `benchmarks/`. Results go to stdout, progress and file names to stderr.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from aaren.bench.figure import figure_paths, require_matplotlib
from aaren.bench.record import (
    BUSY_SHARE,
    BenchRecord,
    Measured,
    OnStep,
    OtherWork,
    busy_words,
    describe,
    read_record,
)
from aaren.errors import AarenError, ConfigError
from aaren.table import Table, to_markdown, to_rich

SettingsT = TypeVar("SettingsT")
Draw: TypeAlias = Callable[[BenchRecord, Path], tuple[Path, Path]]  # saves the figure as PNG and SVG
_FILE_WIDTH = 120  # columns when stdout is no terminal


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark(Generic[SettingsT]):
    """What the harness needs to know of a benchmark."""

    kind: str  # of its records
    command: str  # what to type, without options
    settings: SettingsT
    quick: SettingsT  # seconds: does it run here?
    long: SettingsT | None = None
    measure: Callable[[SettingsT, OnStep], Measured]
    tables: Callable[[BenchRecord], list[Table]]
    draw: Draw | None = None
    merge: Callable[[BenchRecord, BenchRecord], BenchRecord] | None = None  # an old record with a new part
    takes_threads: bool = True  # False: what it measures chooses its own
    is_timed: bool = True  # False: it counts, and a busy machine counts as well as a quiet one

    def record(self, settings: SettingsT, on_step: OnStep = lambda _done, _total, _what: None) -> BenchRecord:
        """Measure, and say what was measured."""
        about, rows = self.measure(settings, on_step)
        return BenchRecord(kind=self.kind, command=self.command, settings=about, measurements=rows)


def run(
    benchmark: Benchmark[SettingsT],
    settings: SettingsT,
    *,
    record: Path | None = None,
    figure: Path | None = None,
    options: Sequence[str] = (),
    threads: int | None = None,
    is_part: bool = False,
) -> None:
    """Measure, watch what other processes do meanwhile, and publish the record.

    Args:
        benchmark: What to run.
        settings: How much to measure.
        record: See `publish`.
        figure: See `publish`.
        options: What was typed to choose the settings.
        threads: Of torch; default: as torch chooses.
        is_part: What the record has of other parts is kept.
    """
    require_writable(benchmark, record, figure)
    if threads is not None:
        torch.set_num_threads(threads)
        options = [*options, f"--threads {threads}"]
    other_work = OtherWork()
    if benchmark.is_timed and other_work.before is not None and other_work.before > BUSY_SHARE:
        busy = busy_words({"share_before": other_work.before})
        print(f"{busy} just now: times of this run will be void.", file=sys.stderr)
    with _progress_bar(benchmark.command) as on_step:
        measured = benchmark.record(settings, on_step)
    command = " ".join([benchmark.command, *options])
    watched = other_work.shares() if benchmark.is_timed else None
    measured = replace(measured, command=command, other_work=watched)
    if is_part and benchmark.merge is not None and record is not None and record.exists():
        measured = benchmark.merge(read_record(record, kind=benchmark.kind), measured)
    publish(benchmark, measured, record=record, figure=figure)


def main(benchmark: Benchmark[SettingsT], words: Sequence[str] | None = None) -> None:
    """Run the command line of a script in `benchmarks/`."""
    parser = argparse.ArgumentParser(prog=benchmark.command)
    parser.add_argument("--quick", action="store_true", help="small sizes, a few seconds: does it run here?")
    if benchmark.takes_threads:
        parser.add_argument("--threads", type=int, choices=range(1, 1025), metavar="N", help="of torch")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the measurements there, as JSON")
    parser.add_argument("--figure", type=Path, metavar="BASE", help="draw to BASE.png and BASE.svg")
    parser.add_argument("--show", type=Path, metavar="RECORD", help="show a record again, without measuring")
    parser.set_defaults(threads=None)
    typed = parser.parse_args(words)
    to = {"record": typed.record, "figure": typed.figure}
    try:
        if typed.show is not None:
            publish(benchmark, read_record(typed.show, kind=benchmark.kind), **to)
            return
        settings = benchmark.quick if typed.quick else benchmark.settings
        run(benchmark, settings, **to, options=["--quick"] * typed.quick, threads=typed.threads)
    except AarenError as error:
        parser.error(str(error))


def publish(
    benchmark: Benchmark[SettingsT],
    measured: BenchRecord,
    *,
    record: Path | None = None,
    figure: Path | None = None,
) -> None:
    """Print the tables and write what was asked for; the record first, so that nothing measured is lost.

    Args:
        benchmark: What was measured.
        measured: What came out.
        record: The file to write it to.
        figure: Where to draw it, without suffix: .png and .svg are made.
    """
    require_writable(benchmark, record, figure)
    written: list[Path] = []
    if record is not None:
        measured.write(record)
        written.append(record)
    console = Console(highlight=False) if sys.stdout.isatty() else Console(width=_FILE_WIDTH, highlight=False)
    for table in benchmark.tables(measured):
        console.print(to_rich(table))
        console.print()
    console.print(describe(measured), soft_wrap=True)
    if figure is not None and benchmark.draw is not None:
        written += benchmark.draw(measured, figure)
    for path in written:
        print(f"wrote {path}", file=sys.stderr)


def require_writable(benchmark: Benchmark[SettingsT], record: Path | None, figure: Path | None) -> None:
    """Fail before minutes of measuring, not after, when a result could not be written."""
    if figure is not None:
        if benchmark.draw is None:
            raise ConfigError(f"{benchmark.command} makes tables and no figure: leave out --figure.")
        require_matplotlib()
        figure = figure_paths(figure)[0]
    for option, path in (("--record", record), ("--figure", figure)):
        if path is None:
            continue
        if path.is_dir():
            raise ConfigError(f"{option} needs a file name; {path} is a folder.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{option} {path}: its folder cannot be made ({error.strerror}).") from error
        if not os.access(path.parent, os.W_OK):
            raise ConfigError(f"{option} {path}: its folder is not writable. Choose another place.")


def page_text(benchmark: Benchmark[SettingsT], record: BenchRecord) -> str:
    """Return tables and origin of a record as Markdown, for a page of the documentation."""
    tables = "\n".join(to_markdown(table) for table in benchmark.tables(record))
    return f"\n{describe(record)}\n\n{tables}\n"


@contextmanager
def _progress_bar(title: str) -> Iterator[OnStep]:
    """Show a bar on stderr while the block runs; it hands out the function that moves it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, what="")

        def on_step(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, what=what)

        yield on_step
