"""`aaren stream`: many keyed streams through a trained run, from a pipe or a file."""

import sys
from pathlib import Path
from typing import Annotated

import typer


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
    time: Annotated[
        str,
        typer.Option(
            metavar="FIELD", help="Field with the time; default: date (forecasting), time (events)."
        ),
    ] = "",
    emit: Annotated[str, typer.Option(metavar="WHEN", help="always, on-decision or on-alarm.")] = "always",
    alarm: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A class or mark that is an alarm; repeatable.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(metavar="P", help="Least probability of a decision or alarm.")
    ] = 0.9,
    batch: Annotated[int, typer.Option(metavar="N", help="Lines that are committed together.")] = 512,
    capacity: Annotated[
        int, typer.Option(metavar="N", help="Streams in memory; others wait in the file.")
    ] = 65_536,
    metrics: Annotated[
        int | None, typer.Option(metavar="PORT", help="Prometheus metrics on 127.0.0.1; 0: a free port.")
    ] = None,
) -> None:
    """Answer JSON lines of many streams, each exactly once; after a kill the same command resumes.

    [bold]aaren stream RUN --state states.db --input rows.jsonl --out answers.jsonl --follow[/]
    """
    from contextlib import nullcontext

    from aaren.engine.lines import LineOptions, open_rows, stream_lines
    from aaren.stream.metrics import StreamMetrics, serving

    options = LineOptions(
        key=key,
        time=time,
        emit=emit,
        alarms=tuple(alarm or ()),
        threshold=threshold,
        batch=batch,
        capacity=capacity,
    )
    rows, counts = open_rows(run), StreamMetrics()
    with nullcontext() if metrics is None else serving(counts.text, metrics) as port:
        if port is not None:
            print(f"metrics http://127.0.0.1:{port}/metrics", file=sys.stderr, flush=True)
        stream_lines(rows, state, source, out=out, is_followed=follow, options=options, metrics=counts)
