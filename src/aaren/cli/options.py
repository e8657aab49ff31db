"""Arguments and options that several verbs have."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Run: TypeAlias = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")]
State: TypeAlias = Annotated[Path, typer.Option("--state", metavar="FILE", help="States; made if need be.")]
Key: TypeAlias = Annotated[str, typer.Option(metavar="FIELD", help="Field with the name of the stream.")]
Time: TypeAlias = Annotated[
    str, typer.Option(metavar="FIELD", help="Field with the time; default: date, or time (events).")
]
Capacity: TypeAlias = Annotated[int, typer.Option(metavar="N", help="Streams in memory, others wait in it.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
