"""`aaren reproduce`: the whole grid, or a part of it, and its tables; the same command resumes it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aaren.cli.own_modules import import_settings
from aaren.errors import MissingDependencyError, require_extra
from aaren.files.stdio import write_line
from aaren.table import print_table

if TYPE_CHECKING:
    from aaren.lab.plan import GridStatus
    from aaren.lab.run import Outcome

SETTINGS_HELP = "forecasting, classification, events, rl; all of them if none is named."


def reproduce(
    settings: Annotated[list[str] | None, typer.Argument(metavar="SETTINGS", help=SETTINGS_HELP)] = None,
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="smoke: seconds a run; cpu: minutes; paper: as published.")
    ] = ("cpu"),
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="How many; default: 5, 1 for smoke.", show_default=False)
    ] = None,
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
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Only part I of N, for other schedulers.")
    ] = "1/1",
    ray: Annotated[
        str, typer.Option(metavar="ADDRESS", help="On a Ray cluster; auto, or local to start one.")
    ] = "",
    show_plan: Annotated[
        bool, typer.Option("--plan", help="Only print what would be run, by which commands.")
    ] = False,
) -> None:
    """Run the paper's grid and print its tables; resumes.

    aaren reproduce forecasting events --profile cpu --seeds 5
    """
    from aaren.lab.plan import Request, find_status, parse_shard, plan

    import_settings(settings or ())
    request = Request(
        settings=tuple(settings or ()),
        profile=profile,
        seeds=seeds,
        models=_names(models),
        datasets=_names(datasets),
        shard=parse_shard(shard),
    )
    runs = plan(request, out)
    status = find_status(runs, out)
    if show_plan:
        print("\n".join([*status.describe(), *(run.command for run in status.waiting)]))
        return
    outcome = _carry_out(status, workers=workers, ray=ray)
    if outcome.stopped:
        _say("stopped; the same command resumes from there.")
        raise typer.Exit(130)
    print_tables(out, list(dict.fromkeys(run.config.setting for run in runs)), profile)
    if outcome.failed:
        raise typer.Exit(1)


def _carry_out(status: "GridStatus", *, workers: int, ray: str) -> "Outcome":
    """Run what waits, here or on a cluster, and say how it ended."""
    from aaren.engine.loop import pausing_on_signals
    from aaren.engine.progress import duration
    from aaren.lab.records import append
    from aaren.lab.run import run_here, run_on_ray

    for line in status.describe():
        _say(line)
    for folder in status.unlisted:
        append(folder)
    with pausing_on_signals() as is_pause_wanted:
        if ray:
            outcome = run_on_ray(
                status.waiting, ray, workers=workers, say=_say, is_pause_wanted=is_pause_wanted
            )
        else:
            outcome = run_here(status.waiting, workers=workers, say=_say, is_pause_wanted=is_pause_wanted)
    _say(f"{outcome.finished} finished, {len(outcome.failed)} failed in {duration(outcome.seconds)}")
    for run, error in outcome.failed:
        _say(f"  failed: {run.name}: {error}")
    return outcome


def print_tables(out: Path, settings: Sequence[str], profile: str) -> None:
    """Print the paper's table of every setting that was run at a profile; what was not run is a gap.

    Of a smoke test one number of each setting is enough.
    """
    try:
        for package in ("scipy", "pandas"):
            require_extra(package, extra="report", purpose="the tables of `aaren reproduce`")
    except MissingDependencyError as error:  # the runs are there all the same
        _say(str(error))
        return
    from aaren.lab.rows import Results, read_results
    from aaren.lab.tables import main_tables

    results = read_results(out) if out.is_dir() else Results(rows=[], problems=[])
    for setting in settings:
        tables = main_tables(results, setting, profile)
        if not tables:
            print(f"{setting}, {profile}: nothing was run, so there is no table.")
        for table in tables[:1] if profile == "smoke" else tables:
            rows = [[str(cell).replace("**", "") for cell in row] for row in table.frame.to_numpy()]
            print_table(list(table.frame), rows, title=f"{setting}, {profile}: {table.title}")
    for problem in results.problems:
        _say(f"left out {problem.path}: {problem.reason}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _say(text: str) -> None:
    write_line(text, sys.stderr)
