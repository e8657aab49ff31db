"""`aaren serve`: many keyed streams of a trained run, over HTTP and WebSocket."""

from pathlib import Path
from typing import Annotated

import typer

from aaren.errors import MissingDependencyError


def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    state: Annotated[Path, typer.Option("--state", metavar="FILE", help="States; made if need be.")],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Not loopback: set AAREN_TOKEN.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="0: a free one.")] = 8000,
    host_name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name clients call it by; repeatable.")
    ] = None,
    key: Annotated[str, typer.Option(metavar="FIELD", help="Field with the name of the stream.")] = "id",
    time: Annotated[
        str,
        typer.Option(metavar="FIELD", help="Field with the time; default: date, or time (events)."),
    ] = "",
    capacity: Annotated[int, typer.Option(metavar="N", help="Streams in memory.")] = 65_536,
    max_streams: Annotated[int, typer.Option(metavar="N", min=1, help="Streams in all.")] = 10_000_000,
) -> None:
    """Answer rows of many streams over HTTP.

    POST /push, WS /stream, /state/KEY, /metrics; /docs describes them.
    """
    from aaren.engine.use import open_rows

    try:
        from aaren.serve.run import serve as run_server
    except ImportError as error:
        raise MissingDependencyError("`aaren serve` needs: pip install 'aaren[serve]'") from error

    run_server(
        open_rows(run),
        state,
        host=host,
        port=port,
        host_names=tuple(host_name or ()),
        key=key,
        time=time,
        capacity=capacity,
        max_streams=max_streams,
    )
