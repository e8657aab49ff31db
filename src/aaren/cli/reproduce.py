"""`aaren reproduce`: the whole grid, or a part of it; the same command goes on after anything."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from aaren.cli.own_modules import import_settings
from aaren.cli.tables import print_tables

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
    plain: Annotated[bool, typer.Option("--plain", help="Log lines instead of the live board.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
) -> None:
    """Run dataset x horizon x model x seed, skip what is finished, print tables beside the paper's.

    Killed or stopped, the same command goes on where it was.

    [bold]aaren reproduce forecasting events --profile cpu --seeds 5[/]
    """
    from aaren.lab.planning import Request, parse_shard
    from aaren.lab.reproduce import Means, announcement, holding, look_ahead, outcome, run_grid
    from aaren.lab.view import choose_view
    from aaren.train.endings import pausing_on_signals

    import_settings(settings or ())
    request = Request(
        settings=tuple(settings or ()),
        profile=profile,
        seeds=seeds,
        models=_names(models),
        datasets=_names(datasets),
        shard=parse_shard(shard),
    )
    means = Means(workers=workers, threads=threads, ray=ray)
    if dry_run:
        prospect = look_ahead(request, out, means=means, retry_failed=retry_failed, say=_say)
        for line in [*announcement(prospect), *(run.command for run in prospect.survey.waiting)]:
            print(line)
        return
    with holding(out, request.shard):
        prospect = look_ahead(request, out, means=means, retry_failed=retry_failed, say=_say)
        for line in announcement(prospect):
            _say(line)
        with choose_view(plain=plain) as view, pausing_on_signals() as is_pause_wanted:
            board = run_grid(prospect, view, is_pause_wanted)
    for line in outcome(board):
        _say(line)
    print_tables(out, list(dict.fromkeys(run.config.setting for run in prospect.runs)), profile)
    if board.count("stopped"):
        _say("stopped; the same command goes on from there.")
        raise typer.Exit(130)
    if board.count("failed"):
        raise typer.Exit(1)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _say(text: str) -> None:
    from aaren.train.observe import write_line

    write_line(text, sys.stderr)
