"""The routes of `aaren serve`, and who may use them.

A page in a browser must not reach a server on the loopback: `Host` must name this server (against DNS
rebinding), `Origin`, if there is one, must be its own, rows come as application/json, and no answer allows
other origins. Beyond the loopback a token is required.
"""

import asyncio
import base64
import contextlib
import hmac
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from aaren.engine.record import strict_json
from aaren.errors import AarenError, DataError
from aaren.serve.batcher import Batcher, BusyError
from aaren.stream.metrics import StreamMetrics

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOO_LARGE, UNUSABLE, BUSY = 413, 422, 503


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """Who is let in.

    Args:
        hosts: names and addresses that clients may call the server by.
        token: what they must show; "": nothing.
    """

    hosts: tuple[str, ...] = LOOPBACK
    token: str = ""

    def refusal(self, headers: dict[bytes, bytes]) -> tuple[int, str]:
        """Return why a request is refused, as a status and words; status 0: it is not."""
        host = headers.get(b"host", b"").decode("latin-1")
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            name = ""
        if name not in self.hosts:
            return (
                421,
                f"this server is not called {host[:80]!r}, but {', '.join(self.hosts)}: see --host-name.",
            )
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin not in (f"http://{host}", f"https://{host}"):
            return 403, "pages of other origins may not use this server."
        given = headers.get(b"authorization", b"")
        if self.token and not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            return 401, "a token is required: the header Authorization: Bearer TOKEN."
        return 0, ""


class Guarded:
    """An app that checks who may use it."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through or refuse it."""
        if scope["type"] in ("http", "websocket"):
            status, words = self._access.refusal(dict(scope["headers"]))
            if status and scope["type"] == "http":
                await _error(status, words)(scope, receive, send)
                return
            if status:
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": words[:120]})
                return
        await self._app(scope, receive, send)


def make_app(batcher: Batcher, metrics: StreamMetrics, access: Access) -> ASGIApp:
    """Return the server as an ASGI app, which closes the batcher when it ends."""
    limits = batcher.limits
    described = files("aaren.serve").joinpath("openapi.json").read_bytes()

    async def push(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return _error(415, "send rows as JSON: Content-Type: application/json.")
        try:
            body = await asyncio.wait_for(_read_body(request, limits.body_bytes), limits.seconds)
        except ClientDisconnect:
            return _error(400, "the request was not sent to its end.")
        except TimeoutError:
            return _error(408, f"the request did not come within {limits.seconds:g} s.")
        return _reply(*await answer(body))

    async def answer(body: bytes | None) -> tuple[int, str]:
        if body is None:
            return TOO_LARGE, _words(f"a request has at most {limits.body_bytes} bytes: send fewer rows.")
        try:
            try:
                content = json.loads(body)
            except (ValueError, RecursionError) as error:
                raise DataError(f"expected a row or a list of rows in JSON; {error}.") from error
            pushed = batcher.read(content)
            answers = await batcher.push(pushed)
        except BusyError as error:
            return BUSY, _words(str(error))
        except DataError as error:
            return UNUSABLE, _words(str(error))
        except AarenError as error:  # the disk, a damaged state
            return BUSY, _words(str(error))
        is_once = min(pushed.seqs) >= 0
        delivery = "exactly-once" if is_once else "at-least-once: without seq a retry is taken in again"
        return 200, strict_json({"answers": answers, "delivery": delivery})

    async def stream(socket: WebSocket) -> None:
        await socket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            while (message := await socket.receive())["type"] == "websocket.receive":
                body = message.get("bytes")
                if body is None:
                    body = message["text"].encode(errors="replace")
                _, found = await answer(body if len(body) <= limits.body_bytes else None)
                await socket.send_text(found)

    async def state(request: Request) -> Response:
        key = request.path_params["key"]
        try:
            content, seq = await batcher.look(key)
        except AarenError as error:
            return _error(UNUSABLE if isinstance(error, DataError) else BUSY, str(error))
        if content is None:
            return _error(404, f"there is no stream {key[:80]!r}.")
        shown: dict[str, Any] = {batcher.key: key, "bytes": len(content)}
        shown |= {} if seq < 0 else {"seq": seq}
        return JSONResponse({**shown, "state": base64.b64encode(content).decode()})

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "streams": len(batcher.pool)})

    async def numbers(_: Request) -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(_: Request) -> Response:
        return Response(described, media_type="application/json")

    @contextlib.asynccontextmanager
    async def closing(_: Starlette) -> AsyncIterator[None]:
        yield
        await batcher.close()

    async def failed(_: Request, error: Exception) -> Response:
        del error  # it is in the log; a client gets no traceback
        return _error(500, "the server failed; what it answered before is committed.")

    routes = [
        Route("/push", push, methods=["POST"]),
        WebSocketRoute("/stream", stream),
        Route("/state/{key:path}", state),
        Route("/healthz", health),
        Route("/metrics", numbers),
        Route("/openapi.json", openapi),
    ]
    handlers = {Exception: failed, HTTPException: _no_route}
    app = Starlette(routes=routes, lifespan=closing, exception_handlers=handlers)
    return Guarded(app, access)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        answer = _error(405, f"{request.url.path} does not take {request.method}, but {allowed}.")
        answer.headers["Allow"] = allowed
        return answer
    return _error(404, "there is /push, /stream, /state/KEY, /healthz, /metrics and /openapi.json.")


async def _read_body(request: Request, most: int) -> bytes | None:
    """Return the body, None: it is too large."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        return None
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            return None
        parts.append(part)
    return b"".join(parts)


def _words(text: str) -> str:
    return strict_json({"error": text})


def _error(status: int, text: str) -> Response:
    return _reply(status, _words(text))


def _reply(status: int, content: str) -> Response:
    headers = (
        {"Retry-After": "1"} if status == BUSY else {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    )
    return Response(content, status, media_type="application/json", headers=headers)
