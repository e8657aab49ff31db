"""The harness of the benchmarks: watch the machine, time calls in turns, write a record, show it in Markdown.

A benchmark is a script with one `Benchmark`; `main` is its command line:

    python benchmarks/scan.py [--quick] [--threads N] [--record FILE] [--figure BASE] [--show RECORD]

Ratios between medians of one run are the numbers to quote. A timing on a busy machine is void: it is refused
as a record. Results go to stdout, progress and file names to stderr.
"""

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import torch

from aaren.engine.record import num_cores
from aaren.errors import AarenError, DataError, require_extra
from clock import Clock
from records import BUSY_SHARE, BenchRecord, Row, Setting, describe, digest, read_record

SettingsT = TypeVar("SettingsT")
Measured: TypeAlias = tuple[dict[str, Setting], list[Row]]  # what a record says of its run, and its rows
OnStep: TypeAlias = Callable[[int, int, str], None]  # steps done, steps in all, what comes next
Call: TypeAlias = Callable[[], object]

SLOW_SECONDS = 10.0  # a call that takes longer is not repeated
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#777777", "#CC79A7", "#E69F00", "#000000")  # Okabe and Ito's


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark(Generic[SettingsT]):
    """What the harness needs to know of a benchmark."""

    kind: str  # of its records
    command: str  # what to type, without options
    sources: tuple[str, ...]  # what is measured: when one of these changes, the record is stale
    settings: SettingsT
    quick: SettingsT  # seconds: does it run here?
    measure: Callable[[SettingsT, OnStep], Measured]
    tables: Callable[[BenchRecord], list[str]]
    draw: Callable[[BenchRecord, Path], None] | None = None
    is_timed: bool = True  # False: it counts, scores, or takes CPU time, which a busy machine hardly changes


class Timing(NamedTuple):
    """Median and quartiles of repeated calls, in seconds."""

    median: float
    lower: float
    upper: float
    repeats: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Timing":
        """Summarise samples; a single one is its own spread.

        >>> Timing.of([3.0, 1.0, 2.0])
        Timing(median=2.0, lower=1.5, upper=2.5, repeats=3)
        """
        if len(seconds) == 1:
            return cls(seconds[0], seconds[0], seconds[0], 1)
        lower, median, upper = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(median, lower, upper, len(seconds))

    def row(self, *, parts: int = 1) -> Row:
        """Return the fields of a measurement, of one of the equal parts that a call consists of."""
        quartiles: Row = {
            "median_seconds": self.median / parts,
            "lower_quartile_seconds": self.lower / parts,
            "upper_quartile_seconds": self.upper / parts,
        }
        return {**quartiles, "repeats": self.repeats}


def time_in_turns(calls: Mapping[str, Call], *, seconds: float, most: int = 200) -> dict[str, Timing]:
    """Repeat every call, round after round, so that the noise of the machine falls on all of them alike.

    Each is called once before, as a warm-up that does not count, unless it is too slow to be repeated. The
    garbage collector is off meanwhile.

    Args:
        calls: What to time, by name.
        seconds: For all calls together; at least three samples of each are taken.
        most: Samples of each.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        slow = {name: spent for name, call in calls.items() if (spent := _spent(call)) > SLOW_SECONDS}
        end = time.perf_counter() + seconds
        for turn in range(most):
            if turn >= 3 and time.perf_counter() > end:
                break
            for name in calls.keys() - slow.keys() if len(slow) else calls:
                samples[name].append(_spent(calls[name]))
            gc.collect(1)  # cycles that the calls left behind must not pile up
    finally:
        gc.enable()
    return {name: Timing.of(samples[name] or [slow[name]]) for name in calls}


def _spent(call: Call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


class OtherWork:
    """Watches what other processes do, from its making, which takes half a second, to `shares()`."""

    def __init__(self) -> None:
        self._clock = Clock()
        time.sleep(0.5)
        self.before = self._share()  # None where the system does not tell

    def shares(self) -> dict[str, float] | None:
        """Return the share of our cores that others used before, and from then until now."""
        during = self._share()
        if self.before is None or during is None:
            return None
        return {"share_before": round(self.before, 4), "share_during": round(during, 4)}

    def _share(self) -> float | None:
        lap = self._clock.lap()
        return None if lap.others is None else min(1.0, lap.others / (num_cores() * lap.wall))


def resident_bytes() -> int:
    """Return the memory that this process has in use; 0 where the system does not tell."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if path.exists() else 0


def require_quiet(shares: Mapping[str, float] | None) -> None:
    """Refuse times that other processes have disturbed."""
    busiest = max((shares or {}).values(), default=0.0)
    if busiest > BUSY_SHARE:
        raise DataError(
            f"other processes use {busiest:.0%} of the CPU, more than {BUSY_SHARE:.0%}: times are void and "
            "are not recorded. Measure on a quiet machine, or leave out --record."
        )


def run(benchmark: Benchmark[SettingsT], settings: SettingsT, *, options: str = "") -> BenchRecord:
    """Measure, watching what other processes do meanwhile."""

    def on_step(done: int, total: int, what: str) -> None:
        print(f"\r\033[K{done} of {total}: {what}", end="" if sys.stderr.isatty() else "\n", file=sys.stderr)

    other_work, sources = OtherWork(), digests(benchmark)
    about, rows = benchmark.measure(settings, on_step)
    return BenchRecord(
        kind=benchmark.kind,
        command=f"{benchmark.command} {options}".strip(),
        settings=about,
        measurements=rows,
        other_work=other_work.shares() if benchmark.is_timed else None,
        sources=sources,
    )


def digests(benchmark: Benchmark[Any]) -> dict[str, str]:
    """Return the digests of what a benchmark measures."""
    return {name: digest(name) for name in benchmark.sources}


def resumed(benchmark: Benchmark[Any], path: Path | None) -> BenchRecord:
    """Return what an interrupted run has measured of the code as it is, or an empty record."""
    if path is not None and path.is_file():
        record = read_record(path, kind=benchmark.kind)
        if not record.changed:
            return record
    about: dict[str, Setting] = {}
    return BenchRecord(
        kind=benchmark.kind,
        command=benchmark.command,
        settings=about,
        measurements=[],
        sources=digests(benchmark),
    )


def main(benchmark: Benchmark[Any], words: Sequence[str] | None = None) -> None:
    """Run the command line of a benchmark."""
    parser = argparse.ArgumentParser(prog=benchmark.command)
    parser.add_argument("--quick", action="store_true", help="small sizes, a few seconds: does it run here?")
    parser.add_argument("--threads", type=int, metavar="N", help="of torch")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the measurements there, as JSON")
    parser.add_argument("--figure", type=Path, metavar="BASE", help="draw to BASE.png and BASE.svg")
    parser.add_argument("--show", type=Path, metavar="RECORD", help="show a record, without measuring")
    options = parser.parse_args(words)
    try:
        if options.show is not None:
            record = read_record(options.show, kind=benchmark.kind)
        else:
            if options.threads is not None:
                torch.set_num_threads(options.threads)
            settings = benchmark.quick if options.quick else benchmark.settings
            if hasattr(settings, "record") and options.record is not None:
                settings = replace(settings, record=options.record)  # it is written after every row
            if benchmark.is_timed and options.record is not None:
                require_quiet(OtherWork().shares())  # before minutes of measuring, and after them
            record = run(benchmark, settings, options="--quick" * options.quick)
            if options.record is not None:
                require_quiet(record.other_work)
                record.write(options.record)
        print(page_text(benchmark, record))
        if options.figure is not None and benchmark.draw is not None:
            benchmark.draw(record, options.figure)
    except AarenError as error:
        parser.error(str(error))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, note: str = "") -> str:
    """Return a table in Markdown, with its title above and a note below.

    >>> print(table("Times", ["", "median"], [["scan", "1 ms"]]))
    **Times**
    <BLANKLINE>
    | | median |
    | :-- | --: |
    | scan | 1 ms |
    <BLANKLINE>
    """
    lines = ["| " + " | ".join(cells).strip() + " |" for cells in (columns, *rows)]
    lines.insert(1, "| :-- |" + " --: |" * (len(columns) - 1))
    lines[0] = lines[0].replace("|  |", "| |")
    return "\n".join([f"**{title}**", "", *lines, "", *([note, ""] if note else [])])


def page_text(benchmark: Benchmark[Any], record: BenchRecord) -> str:
    """Return origin and tables of a record in Markdown, for a page of the documentation."""
    return f"{describe(record)}\n\n" + "\n".join(benchmark.tables(record))


Line: TypeAlias = tuple[str, Sequence[float], Sequence[float]]  # name, x, y


def draw(
    panels: Mapping[str, Sequence[Line]],
    base: Path,
    *,
    x: str,
    y: Sequence[str],
    caption: str,
    is_logarithmic: bool = False,
) -> None:
    """Draw panels of lines side by side, by title, and save them as BASE.png and BASE.svg."""
    matplotlib = require_extra("matplotlib", extra="report", purpose="drawing a figure")
    pyplot = require_extra("matplotlib.figure", extra="report", purpose="drawing a figure")
    with matplotlib.rc_context({"svg.hashsalt": "aaren", "svg.fonttype": "none", "font.size": 10}):
        figure = pyplot.Figure(figsize=(5.6 * len(panels), 4.4), layout="constrained")
        figure.supxlabel(caption, fontsize=8)
        for place, (title, lines) in enumerate(panels.items()):
            axes = figure.add_subplot(1, len(panels), place + 1, title=title, xlabel=x, ylabel=y[place])
            for order, ((name, xs, ys), colour) in enumerate(zip(lines, COLOURS, strict=False)):
                axes.plot(xs, ys, color=colour, label=name, marker="o", markersize=3, zorder=9 - order)
            if is_logarithmic:
                axes.set(xscale="log", yscale="log")
            axes.grid(color="#dddddd", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False)
        for suffix in (".png", ".svg"):
            figure.savefig(
                base.with_suffix(suffix), dpi=150, metadata={"Date": None} if suffix == ".svg" else {}
            )
