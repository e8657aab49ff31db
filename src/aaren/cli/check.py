"""`aaren check`: every backend and mixer against the definition, on this machine, and how fast they are."""

from pathlib import Path
from typing import Annotated

import typer


def check(
    device: Annotated[
        str, typer.Option(metavar="NAME", help="cpu, cuda or mps; cuda:1 is the second card.")
    ] = "cpu",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON, to be shared.")
    ] = None,
) -> None:
    """Compare backends and mixers with the definition; time them.

    The exit code is 1 if one is wrong. Then ratios of times: a scan and a training step beside a
    Transformer's, the native engine beside PyTorch.
    """
    from aaren.check import check as check_device

    if not check_device(device, json_file=json_file):
        raise typer.Exit(1)
