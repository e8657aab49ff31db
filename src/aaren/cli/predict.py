"""`aaren predict`: let a finished run speak about new data."""

from pathlib import Path
from typing import Annotated

import typer


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    data: Annotated[
        Path, typer.Option("--data", metavar="FILE", help="New data, as the run was trained on.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where the answer goes.")],
) -> None:
    """Read new data and write what the model says about it."""
    from aaren.train.use import predict_run

    predict_run(run, source=data, target=out)
    print(out)
