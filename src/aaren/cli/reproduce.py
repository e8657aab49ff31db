"""`aaren reproduce`: the whole grid, or a part of it, and its tables; the same command resumes it."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from aaren.cli.own_modules import import_settings

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from aaren.report.table import Cell, Table


NAME_WIDTH = 32  # of the first column: the names of datasets are not cut up
_FILE_WIDTH = 140  # columns when stdout is no terminal
SETTINGS_HELP = "forecasting, classification, events, rl; all of them if none is named."


def reproduce(
    settings: Annotated[list[str] | None, typer.Argument(metavar="[SETTING ...]", help=SETTINGS_HELP)] = None,
    profile: Annotated[str, typer.Option(help="smoke: seconds a run; cpu: minutes; paper: as published.")] = (
        "cpu"
    ),
    seeds: Annotated[int | None, typer.Option(help="How many; 5 by default, 1 for smoke.")] = None,
    models: Annotated[
        str, typer.Option(metavar="A,B", help="Only these rows, such as aaren,transformer.")
    ] = "",
    datasets: Annotated[
        str, typer.Option(metavar="A,B", help="Only these datasets; see: aaren data list.")
    ] = "",
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the runs go.")] = Path("runs"),
    workers: Annotated[int, typer.Option(min=0, max=1024, help="Runs at once; 0: as many as cores.")] = 0,
    threads: Annotated[int, typer.Option(min=0, max=1024, help="Threads of each; 0: cores / workers.")] = 0,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Only part I of N, for other schedulers.")
    ] = "1/1",
    ray: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Run on a Ray cluster, or on one started here: local.")
    ] = "",
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try failed runs again.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="MINUTES", min=0.0, help="A run that takes longer has failed; 0: never.")
    ] = 0.0,
    stall: Annotated[
        float, typer.Option(metavar="MINUTES", min=0.0, help="Replace a worker without progress; 0: never.")
    ] = 120.0,
    plain: Annotated[bool, typer.Option("--plain", help="Log lines instead of the live table.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
) -> None:
    """Run dataset x horizon x model x seed, skip what is finished, print tables beside the paper's.

    Killed or stopped, the same command resumes where it was.

    [bold]aaren reproduce forecasting events --profile cpu --seeds 5[/]
    """
    from aaren.engine.loop import pausing_on_signals
    from aaren.lab.display import announcement, choose_display, outcome
    from aaren.lab.plan import Request, find_status, parse_shard, plan
    from aaren.lab.schedule import Schedule, Scheduler, holding
    from aaren.lab.workers import Resources

    import_settings(settings or ())
    request = Request(
        settings=tuple(settings or ()),
        profile=profile,
        seeds=seeds,
        models=_names(models),
        datasets=_names(datasets),
        shard=parse_shard(shard),
    )
    with nullcontext() if dry_run else holding(out, request.shard):
        runs = plan(request, out)
        status = find_status(runs, out, retry_failed=retry_failed)
        resources = Resources(workers, threads, ray).sized(len(status.waiting))
        announced = announcement(status, resources)
        if dry_run:
            print("\n".join([*announced, *(run.command for run in status.waiting)]))
            return
        for line in announced:
            _say(line)
        schedule = Schedule.of(
            status.waiting,
            estimates=status.estimates,
            workers=resources.workers,
            done_before=len(status.finished),
        )
        if status.waiting:
            with choose_display(plain=plain) as display, pausing_on_signals() as is_pause_wanted:
                limits = {"timeout": 60.0 * timeout, "stall": 60.0 * stall}
                Scheduler(schedule, resources.start(), display, **limits).run(is_pause_wanted)
    for line in outcome(schedule):
        _say(line)
    print_tables(out, list(dict.fromkeys(run.config.setting for run in runs)), profile)
    if schedule.count("stopped"):
        _say("stopped; the same command resumes from there.")
        raise typer.Exit(130)
    if schedule.count("failed"):
        raise typer.Exit(1)


def print_tables(out: Path, settings: Sequence[str], profile: str) -> None:
    """Print the paper's table of every setting that was run at a profile; what was not run is a gap.

    Of a smoke test one number of each setting is enough: one screen in all.
    """
    from rich.console import Console

    from aaren.report.rows import read_results
    from aaren.report.tables import baseline_table, main_tables

    results = read_results(out)
    console = Console(highlight=False) if sys.stdout.isatty() else Console(width=_FILE_WIDTH, highlight=False)
    for setting in settings:
        found: list[Table | None] = [*main_tables(results, setting, profile)]
        if profile == "smoke":
            found = found[:1]
        else:
            found += [
                baseline_table(results, setting, profile, number) for number in results.metrics(setting)
            ]
        if not any(found):
            console.print(f"{setting}, {profile}: nothing was run, so there is no table.")
        for table in found:
            if table is not None:
                console.print(to_rich(table, f"{setting}, {profile}: {table.title}"))
                for note in table.notes:
                    console.print(note, style="dim", markup=False)
    for problem in results.problems:
        print(f"left out {problem.path}: {problem.reason}", file=sys.stderr)


def to_rich(table: "Table", title: str) -> "RichTable":
    """Draw a table for the terminal; gaps are dim."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    drawn = RichTable(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for column in table.columns:
        # Our own models need no group: what stands beside them says that it was published.
        label = f"{column.group}: {column.label}" if column.group.startswith("published") else column.label
        justify: Literal["left", "right"] = "left" if column.kind == "text" else "right"
        width = NAME_WIDTH if not drawn.columns and column.kind == "text" else None
        drawn.add_column(label, justify=justify, min_width=width, overflow="fold")
    for row, is_dim in zip(table.rows, table.is_dim, strict=True):
        drawn.add_row(*map(_text, row), style="dim" if is_dim else None)
    return drawn


def _text(cell: "Cell") -> str:
    from rich.markup import escape

    text = escape(f"{cell.text} ({cell.note})" if cell.note else cell.text)
    return f"[bold]{text}[/]" if cell.is_bold else text


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _say(text: str) -> None:
    from aaren.engine.progress import write_line

    write_line(text, sys.stderr)
