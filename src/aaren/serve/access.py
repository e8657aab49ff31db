"""Who may use the server, and how large and slow a request may be.

A page in a browser must not reach a server on the loopback: `Host` must name this server (against DNS
rebinding), `Origin`, if there is one, must be its own, rows come as application/json, and no answer allows
other origins. Beyond the loopback a token is required.
"""

import asyncio
import hmac
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from aaren.serve.batcher import Limits

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ONCE = (b"host", b"origin", b"authorization", b"content-type")  # headers that a request has once at most


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """Who is let in.

    Args:
        hosts: names and addresses that clients may call the server by.
        token: what they must show; "": nothing.
    """

    hosts: tuple[str, ...] = LOOPBACK
    token: str = ""

    def check(self, scope: Scope) -> None:
        """Raise if a request is refused."""
        sent = [header for header, _ in scope["headers"]]
        for header in ONCE:
            if sent.count(header) > 1:
                raise HTTPException(400, f"the header {header.decode()} came {sent.count(header)} times.")
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            name = ""
        if name not in self.hosts:
            hosts = ", ".join(self.hosts)
            raise HTTPException(
                421, f"this server is not called {host[:80]!r}, but {hosts}: see --host-name."
            )
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin not in (f"http://{host}", f"https://{host}"):
            raise HTTPException(403, "pages of other origins may not use this server.")
        token = headers.get(b"authorization", b"")
        if self.token and not hmac.compare_digest(token, f"Bearer {self.token}".encode()):
            raise HTTPException(401, "a token is required: the header Authorization: Bearer TOKEN.")
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip()
        if scope.get("method") == "POST" and kind != b"application/json":
            raise HTTPException(415, "send rows as JSON: Content-Type: application/json.")


class Guard:
    """An app that checks who may use it, and limits what they send."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits) -> None:
        self._app, self._access, self._limits = app, access, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through or refuse it."""
        try:
            if scope["type"] in ("http", "websocket"):
                self._access.check(scope)
        except HTTPException as error:
            if scope["type"] == "http":
                headers = {"WWW-Authenticate": "Bearer"} if error.status_code == 401 else {}
                response = JSONResponse({"error": error.detail}, error.status_code, headers)
                await response(scope, receive, send)
            else:
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": error.detail[:120]})
            return
        await self._app(scope, self._limited(receive) if scope["type"] == "http" else receive, send)

    def _limited(self, receive: Receive) -> Receive:
        """Raise for a body that is too large, or that does not come in time."""
        limits, size = self._limits, 0
        deadline = asyncio.get_running_loop().time() + limits.seconds

        async def limited() -> Message:
            nonlocal size
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the request did not come within {limits.seconds:g} s.") from None
            size += len(message.get("body", b""))
            if size > limits.body_bytes:
                raise HTTPException(413, f"a request has at most {limits.body_bytes} bytes: send fewer rows.")
            return message

        return limited

    @staticmethod
    async def next_message(socket: WebSocket, limits: Limits) -> bytes | None:
        """Return a WebSocket's next message; None: it is closed. A TimeoutError ends a silent one."""
        async with asyncio.timeout(limits.idle_seconds):
            message = await socket.receive()
        if message["type"] != "websocket.receive":
            return None
        body = message.get("bytes")
        return bytes(message["text"].encode(errors="replace") if body is None else body)


class PromptProtocol(HttpToolsProtocol):
    """uvicorn's HTTP, with an end for connections that do not send the head of a request in time."""

    head_seconds = 10.0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._stop_timer()
        self._head_timer = self.loop.call_later(self.head_seconds, self.timeout_keep_alive_handler)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
