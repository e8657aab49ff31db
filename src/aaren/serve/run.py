"""Run the server until it is told to stop; what was answered is committed."""

import gc
import ipaddress
import os
import socket
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from aaren.errors import ConfigError
from aaren.files.stdio import write_line
from aaren.files.strict_json import strict_json
from aaren.serve.access import LOOPBACK, Access, PromptProtocol
from aaren.serve.app import make_app
from aaren.serve.batcher import Batcher, Limits
from aaren.serve.metrics import StreamMetrics
from aaren.stream.pool import StreamPool
from aaren.stream.rows import RowPath

TOKEN_VARIABLE = "AAREN_TOKEN"
LEAST_TOKEN = 16  # characters
LAST_PORT = 65_535
BACKLOG = 2048  # connections, and as many that wait
GARBAGE_OBJECTS = 50_000  # new ones that the garbage collector waits for; Python's own choice is 700
SWITCH_SECONDS = (
    0.0005  # a thread waits for the interpreter; Python's own choice would be a tenth of an answer
)


def serve(
    rows: RowPath,
    state: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    host_names: tuple[str, ...] = (),
    key: str = "id",
    time: str = "",
    capacity: int = 65_536,
    max_streams: int = 10_000_000,
) -> None:
    """Serve a model.

    Args:
        rows: the way of its rows.
        state: the file of states.
        host: the address to listen at; any but a loopback one needs a token, in AAREN_TOKEN.
        port: 0: a free one. It is printed to stderr.
        host_names: names that clients call the server by, beside its address.
        key: the field with the name of the stream.
        time: the field with the time of a row; "": the usual one of the setting.
        capacity: streams in memory.
        max_streams: streams in all.
    """
    token = _read_token(host)
    if key in ("seq", "repeated"):
        raise ConfigError(f"--key {key}: rows or answers are marked by a field of this name. Rename the key.")
    with _listen(host, port) as listening, closing(StreamPool(rows.model, state, capacity=capacity)) as pool:
        limits, example = _try_out(rows, pool, key, time or rows.time, replace(Limits(), streams=max_streams))
        metrics = StreamMetrics()
        batcher = Batcher(rows, pool, key=key, time=time, limits=limits, metrics=metrics)
        hosts = tuple(name.lower() for name in (*LOOPBACK, host, *host_names))
        app = make_app(batcher, Access(hosts=hosts, token=token), metrics.text, example)
        _avoid_pauses()
        address = listening.getsockname()
        name = f"[{address[0]}]" if ":" in address[0] else address[0]
        listening.listen(BACKLOG)  # whoever reads the next line may connect
        write_line(f"serving http://{name}:{address[1]}", sys.stderr)
        write_line(f"POST /push takes rows such as {strict_json(example)}", sys.stderr)
        uvicorn.Server(_server_config(app, limits)).run(sockets=[listening])


def _read_token(host: str) -> str:
    token = os.environ.get(TOKEN_VARIABLE, "")
    if token and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable()):
        raise ConfigError(f"{TOKEN_VARIABLE} must have at least {LEAST_TOKEN} printable ASCII characters.")
    if not _is_loopback(host) and not token:
        raise ConfigError(
            f"--host {host} is open to other machines: set {TOKEN_VARIABLE} to a secret of at least "
            f"{LEAST_TOKEN} characters, which clients send as Authorization: Bearer ..., or listen at "
            f"127.0.0.1."
        )
    return token


def _try_out(
    rows: RowPath, pool: StreamPool, key: str, clock: str, limits: Limits
) -> tuple[Limits, dict[str, Any]]:
    """Run the model once, keeping nothing; return the limits for answers of this size, and a row."""
    if pool.state_bytes > limits.state_bytes:
        raise ConfigError(
            f"the states of this {type(rows.model).__name__} have {pool.state_bytes} bytes; a server holds "
            f"up to {limits.state_bytes} for a stream. Choose a smaller model."
        )
    example = rows.example(clock)
    item, extras = rows.read(example, clock)
    answer = pool.prepare(item, **extras)
    if answer is not None:
        named = rows.answers([answer], [example], clock)[0]
        if key in named:
            raise ConfigError(f"--key {key}: answers have a field of this name. Rename the key.")
        most = limits.answer_bytes // len(strict_json(named))
        limits = replace(limits, items=max(1, min(limits.items, most)))
    return limits, {key: "s1", **example, "seq": 0}


def _server_config(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=PromptProtocol,
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        ws_max_size=limits.body_bytes,
        ws_max_queue=1,  # a message waits, the others stay with their sender
        limit_concurrency=BACKLOG,
        backlog=BACKLOG,
        timeout_graceful_shutdown=int(limits.seconds),
    )


def _avoid_pauses() -> None:
    """Let the garbage collector look at new objects only, and rarely: rows have no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, 10, 10)
    sys.setswitchinterval(SWITCH_SECONDS)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= LAST_PORT:
        raise ConfigError(f"--port {port}: a port is a number from 0 to {LAST_PORT}.")
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # With its protocol: asyncio sends small answers at once (TCP_NODELAY) only where it is named.
        opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
    except OSError as error:
        raise ConfigError(f"cannot listen at {host}, port {port}: {error}. Choose another --port.") from error
    return opened
