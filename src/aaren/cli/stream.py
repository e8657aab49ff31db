"""`aaren stream`: many keyed streams through a trained run, from a pipe or a file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from aaren.files.stdio import write_line

SET_HELP = (
    "Repeatable: time (field with the time; default: date in forecasting, time in events), threshold (least "
    "probability of a decision or alarm; 0.9), batch (lines committed together; 512), capacity (streams in "
    "memory; 65536), metrics (port of 127.0.0.1 for Prometheus; 0: a free one)."
)


def stream(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    state: Annotated[
        Path, typer.Option("--state", metavar="FILE", help="File of the states; created if missing.")
    ],
    source: Annotated[
        Path | None, typer.Option("--input", "-i", metavar="FILE", help="JSON lines; default: stdin.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Answers; default: stdout.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more at the end of the file.")] = False,
    key: Annotated[str, typer.Option(metavar="FIELD", help="Field with the name of the stream.")] = "id",
    emit: Annotated[str, typer.Option(metavar="WHEN", help="always, on-decision or on-alarm.")] = "always",
    alarm: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A class or mark that is an alarm; repeatable.")
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SET_HELP)
    ] = None,
) -> None:
    """Answer JSON lines of many streams, each exactly once; after a kill the same command resumes.

    [bold]aaren stream RUN --state states.db --input rows.jsonl --out answers.jsonl --follow[/]
    """
    from contextlib import nullcontext

    from aaren.engine.lines import LineOptions, open_rows, stream_lines
    from aaren.fields import build_assigned
    from aaren.stream.metrics import StreamMetrics, serving

    alarms = tuple(alarm or ())
    options = build_assigned(LineOptions, assignments or (), key=key, emit=emit, alarms=alarms)
    rows, counts = open_rows(run), StreamMetrics()
    with nullcontext() if options.metrics is None else serving(counts.text, options.metrics) as port:
        if port is not None:
            write_line(f"metrics http://127.0.0.1:{port}/metrics", sys.stderr)
        stream_lines(rows, state, source, out=out, is_followed=follow, options=options, metrics=counts)
