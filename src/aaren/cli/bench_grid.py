"""`aaren bench grid`: what the scheduler of `aaren reproduce` costs."""

from pathlib import Path
from typing import Annotated

import typer


def grid(
    quick: Annotated[bool, typer.Option("--quick", help="Runs of one second: does it work here?")] = False,
    record: Annotated[Path | None, typer.Option("--record", help="Write the measurements, as JSON.")] = None,
) -> None:
    """Run 16 equal runs of 30 s with one worker, then with two; about 12 minutes on a quiet machine."""
    from rich.console import Console

    from aaren.bench.progress import progress_bar
    from aaren.bench.record import check_writable, describe
    from aaren.lab import bench_grid

    check_writable({"--record": record})
    settings = bench_grid.QUICK if quick else bench_grid.GridSettings()
    with progress_bar("bench grid") as on_step:
        result = bench_grid.measure(
            settings, command="aaren bench grid" + " --quick" * quick, on_step=on_step
        )
    if record is not None:
        result.write(record)
    console = Console(highlight=False)
    for sheet in bench_grid.sheets(result):
        console.print(sheet.to_rich())
    console.print(describe(result), soft_wrap=True)
