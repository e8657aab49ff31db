"""`aaren reproduce`: the whole grid, or a part of it, and its tables; the same command resumes it."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aaren.cli.own_modules import import_settings
from aaren.files.stdio import write_line

if TYPE_CHECKING:
    from aaren.lab.plan import GridStatus, PlannedRun, Request
    from aaren.table import Table

_FILE_WIDTH = 140  # columns when stdout is no terminal
SETTINGS_HELP = "forecasting, classification, events, rl; all of them if none is named."
SET_HELP = (
    "Repeatable: threads (of a run), timeout (minutes of a run), stall (minutes without progress), "
    "retry_failed=true, main_rows=true (no variants), shard=I/N (this part only), "
    "ray (a cluster's address, or local)."
)


def reproduce(
    settings: Annotated[list[str] | None, typer.Argument(metavar="SETTINGS", help=SETTINGS_HELP)] = None,
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="smoke: seconds a run; cpu: minutes; paper: as published.")
    ] = ("cpu"),
    seeds: Annotated[
        str, typer.Option(metavar="N|auto", help="How many; 5, 1 for smoke. auto: 3, or 5 if that decides.")
    ] = "",
    models: Annotated[
        str, typer.Option(metavar="A,B", help="Only these rows, such as aaren,transformer.")
    ] = "",
    datasets: Annotated[
        str, typer.Option(metavar="A,B", help="Only these datasets; see: aaren data list.")
    ] = "",
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the runs go.")] = Path("runs"),
    workers: Annotated[
        int, typer.Option(metavar="N", min=0, max=1024, help="Runs at once; 0: as many as cores.")
    ] = 0,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SET_HELP)
    ] = None,
    show_plan: Annotated[
        bool, typer.Option("--plan", help="Only print what would be run, by which commands, and its cost.")
    ] = False,
) -> None:
    """Run the paper's grid and print its tables; resumes.

    aaren reproduce forecasting events --profile cpu --seeds 5
    """
    from aaren.engine.loop import pausing_on_signals
    from aaren.lab.display import announcement, choose_display, outcome
    from aaren.lab.plan import Request, chosen_settings, find_status, parse_seeds, parse_shard, plan
    from aaren.lab.records import append
    from aaren.lab.schedule import Schedule, Scheduler, holding
    from aaren.lab.workers import Resources

    import_settings(settings or ())
    limits = Resources.of(workers, assignments or ())
    request = Request(
        settings=tuple(settings or ()),
        profile=profile,
        seeds=parse_seeds(seeds),
        models=_names(models),
        datasets=_names(datasets),
        shard=parse_shard(limits.shard),
        main_rows=limits.main_rows,
    )
    with nullcontext() if show_plan else holding(out, chosen_settings(request), request.shard):
        while True:
            runs = plan(request, out)
            status = find_status(runs, out, retry_failed=limits.retry_failed)
            resources = limits.sized(len(status.waiting))
            announced = announcement(status, resources)
            if show_plan:
                print_plan(request, runs, status, out)
                print("\n".join([*announced, *(run.command for run in status.waiting)]))
                return
            for line in announced:
                _say(line)
            for folder in status.unlisted:
                append(folder)
            schedule = Schedule.of(
                status.waiting,
                estimates=status.estimates,
                workers=resources.workers,
                done_before=len(status.finished),
            )
            if status.waiting:
                with choose_display() as display, pausing_on_signals() as is_pause_wanted:
                    Scheduler(
                        schedule,
                        resources.start(),
                        display,
                        timeout=60.0 * resources.timeout,
                        stall=60.0 * resources.stall,
                    ).run(is_pause_wanted)
            for line in outcome(schedule):
                _say(line)
            # What has just finished may say which cells need more seeds.
            if request.seeds != "auto" or not schedule.count("finished") or schedule.count("stopped"):
                break
    print_tables(out, list(dict.fromkeys(run.config.setting for run in runs)), profile)
    if schedule.count("stopped"):
        _say("stopped; the same command resumes from there.")
        raise typer.Exit(130)
    if schedule.count("failed"):
        raise typer.Exit(1)


def print_plan(request: "Request", runs: "Sequence[PlannedRun]", status: "GridStatus", out: Path) -> None:
    """Print by dataset what is done and what the rest would cost, and which records are superseded."""
    from rich.console import Console

    from aaren.lab.cost import dataset_costs
    from aaren.report.rows import Results, read_results
    from aaren.table import Cell, Column, Table, to_rich

    results = read_results(out) if out.is_dir() else Results(rows=[], problems=[])
    records = [record for row in results.rows for record in row.records]
    costs = dataset_costs(runs, status, [*records, *results.superseded])
    columns = [Column(label=label, kind="text") for label in ("setting", "dataset")]
    columns += [Column(label=label) for label in ("runs", "done", "core-hours left")]
    table = Table(name="plan", title="", columns=[*columns, Column(label="from", kind="text")])
    for one in costs:
        if one.without_data == one.runs:
            continue
        numbers = [str(one.runs), str(one.done), f"{one.hours:.2f}"]
        table.add(*(Cell(text=text) for text in (one.setting, one.dataset, *numbers, one.basis)))
    console = Console(highlight=False) if sys.stdout.isatty() else Console(width=_FILE_WIDTH, highlight=False)
    console.print(to_rich(table, title=f"profile {request.profile}: {len(runs)} runs"))
    done, hours = sum(one.done for one in costs), sum(one.hours for one in costs)
    unknown = sum(one.unknown for one in costs)
    console.print(f"{done} of {len(runs)} runs are done; the rest costs about {hours:.1f} core-hours", end="")
    console.print(f", without {unknown} runs of unknown cost." if unknown else ".")
    missing = [one.dataset for one in costs if one.without_data == one.runs]
    if missing:
        console.print(f"No data on disk, in no estimate: {', '.join(missing)}.")
    console.print(
        "Measured: CPU seconds of records of the same cell (wall time in older records). Estimated: all "
        "updates of the plan at the rate of other cells; runs that stop early cost less.",
        style="dim",
    )
    if results.superseded:
        print(f"{len(results.superseded)} records are superseded by a newer protocol:")
        print("\n".join(record.command for record in results.superseded))


def print_tables(out: Path, settings: Sequence[str], profile: str) -> None:
    """Print the paper's table of every setting that was run at a profile; what was not run is a gap.

    Of a smoke test one number of each setting is enough: one screen in all.
    """
    from rich.console import Console

    from aaren.report.rows import read_results
    from aaren.report.tables import baseline_table, main_tables
    from aaren.table import to_rich

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
                console.print(to_rich(table, title=f"{setting}, {profile}: {table.title}"))
    for problem in results.problems:
        print(f"left out {problem.path}: {problem.reason}", file=sys.stderr)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _say(text: str) -> None:
    write_line(text, sys.stderr)
