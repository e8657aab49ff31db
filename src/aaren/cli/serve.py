"""`aaren serve`: many keyed streams of a trained run, over HTTP and WebSocket."""

from typing import Annotated

import typer

from aaren.cli.options import Capacity, Key, Run, State, Time
from aaren.errors import MissingDependencyError


def serve(
    run: Run,
    state: State,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Not loopback: set AAREN_TOKEN.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="0: a free one.")] = 8000,
    host_name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name clients call it by; repeatable.")
    ] = None,
    key: Key = "id",
    time: Time = "",
    capacity: Capacity = 65_536,
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
