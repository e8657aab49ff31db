"""`aaren bench grid`: what the scheduler of `aaren reproduce` costs."""

from typing import Annotated

import typer

from aaren.cli.bench import PagePath, RecordPath


def grid(
    quick: Annotated[bool, typer.Option("--quick", help="Runs of one second: does it work here?")] = False,
    record: RecordPath = None,
    page: PagePath = None,
) -> None:
    """Run 16 equal runs of 30 s with one worker, then with two; about 12 minutes on a quiet machine."""
    from aaren.bench.progress import progress_bar
    from aaren.bench.publish import Destinations, publish
    from aaren.lab import bench_grid

    destinations = Destinations(record=record, page=page)
    destinations.check(bench_grid.KIND)
    settings = bench_grid.QUICK if quick else bench_grid.GridSettings()
    command = "aaren bench grid" + " --quick" * quick
    with progress_bar("bench grid") as on_step:
        result = bench_grid.measure(settings, command=command, on_step=on_step)
    publish(result, destinations)
