"""`aaren check`: every backend, mixer and model against the definition, on this machine."""

from pathlib import Path
from typing import Annotated

import typer


def check(
    device: Annotated[
        str, typer.Option(metavar="NAME", help="cpu, cuda or mps; cuda:1 is the second card.")
    ] = "cpu",
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="PART", help="backends, mixers, models, compile or timings; repeatable."
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all results as JSON, to be shared.")
    ] = None,
) -> None:
    """Compare every backend, mixer and model with the definition in float64; exit code 1 if one is wrong.

    [bold]aaren check --device cuda --json check.json[/] takes minutes; on a CPU it takes under two.
    """
    from aaren.check.run import run

    if not run(device, parts=only or (), json_file=json_file):
        raise typer.Exit(1)
