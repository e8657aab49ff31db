"""`aaren stream`: many keyed streams through a trained run, from a pipe or a file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from aaren.cli.options import Capacity, Key, Run, State, Time
from aaren.errors import require_extra
from aaren.files.stdio import write_line


def stream(
    run: Run,
    state: State,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", metavar="FILE", help="JSON lines; default: stdin.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Answers; default: stdout.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more at the end of the file.")] = False,
    key: Key = "id",
    emit: Annotated[str, typer.Option(metavar="WHEN", help="always, on-decision or on-alarm.")] = "always",
    alarm: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A class or mark that is an alarm; repeatable.")
    ] = None,
    time: Time = "",
    threshold: Annotated[
        float, typer.Option(metavar="P", help="Least probability of a decision or alarm.")
    ] = 0.9,
    batch: Annotated[int, typer.Option(metavar="N", help="Lines committed together.")] = 512,
    capacity: Capacity = 65_536,
    metrics: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=0, max=65535, help="For Prometheus; 0: a free one."),
    ] = None,
) -> None:
    """Answer JSON lines of many streams, each exactly once; resumes.

    aaren stream RUN --state states.db -i rows.jsonl -o answers.jsonl --follow
    """
    from contextlib import ExitStack

    from aaren.engine.use import open_rows
    from aaren.stream.lines import LineOptions, stream_lines

    options = LineOptions(
        key=key,
        time=time,
        emit=emit,
        alarms=tuple(alarm or ()),
        threshold=threshold,
        batch=batch,
        capacity=capacity,
    )
    rows, on_batch = open_rows(run), None
    with ExitStack() as stack:
        if metrics is not None:
            require_extra("prometheus_client", extra="serve", purpose="--metrics")
            from aaren.serve.metrics import StreamMetrics

            counts = StreamMetrics()
            on_batch = counts.count
            port = stack.enter_context(counts.serving(metrics))
            write_line(f"metrics http://127.0.0.1:{port}/metrics", sys.stderr)
        stream_lines(rows, state, source, out=out, is_followed=follow, options=options, on_batch=on_batch)
