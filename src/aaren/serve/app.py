"""The routes of `aaren serve`: requests are validated by pydantic's models, and `/openapi.json` is generated.

Refusals are one line of reason: 4xx will be refused again, 503 may be tried again with the same `seq`.
"""

import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StrictInt,
    StrictStr,
    Tag,
    TypeAdapter,
    ValidationError,
)
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect

from aaren.errors import AarenError, DataError, UnwritableError
from aaren.files.strict_json import strict_json
from aaren.serve.access import Access, Guard
from aaren.serve.batcher import Batcher, BusyError
from aaren.version import __version__

BAD, MISSING, CONFLICT, TOO_LARGE, UNUSABLE, FAILED, BUSY = 400, 404, 409, 413, 422, 500, 503
ROUTER = APIRouter()
MOST_FAULTS = 3  # of a request that are named


class Answers(BaseModel):
    """What the model says after each row."""

    answers: list[dict[str, Any]]
    delivery: str = Field(description="exactly-once where every row had a seq, else at-least-once")


class State(BaseModel):
    """The state of a stream, as `session.restore` takes it, in base64."""

    model_config = ConfigDict(extra="allow")
    bytes: int
    state: str
    seq: int | None = None


class Fault(BaseModel):
    """Why a request was refused."""

    error: str


def make_app(
    batcher: Batcher, access: Access, metrics: Callable[[], bytes], example: dict[str, Any]
) -> ASGIApp:
    """Return the server as an ASGI app, which closes the batcher when it ends.

    Args:
        batcher: of the pool.
        access: who is let in.
        metrics: returns what /metrics answers.
        example: a row, for the description.
    """
    content: Any = _content_type(batcher, example)

    @contextlib.asynccontextmanager
    async def closing(_: FastAPI) -> AsyncIterator[None]:
        yield
        await batcher.close()

    async def push(rows: content) -> Response:
        """Take in a row or a list of rows; the answers are sent once they are committed."""
        return _reply(200, await _push(batcher, rows))

    faults: dict[int | str, dict[str, Any]] = {
        status: {"model": Fault} for status in (BAD, CONFLICT, TOO_LARGE, UNUSABLE, BUSY)
    }
    app = FastAPI(
        title="aaren serve", version=__version__, lifespan=closing, redoc_url=None, responses=faults
    )
    app.state.batcher, app.state.metrics, app.state.adapter = batcher, metrics, TypeAdapter(content)
    app.add_api_route("/push", push, methods=["POST"], response_model=Answers)
    app.include_router(ROUTER)
    for kind in (AarenError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _refused)
    return Guard(app, access, batcher.limits)


@ROUTER.websocket("/stream")
async def stream(socket: WebSocket) -> None:
    """Take in rows message by message, and answer each."""
    state = socket.app.state
    await socket.accept()
    with contextlib.suppress(WebSocketDisconnect, TimeoutError):
        while (body := await Guard.next_message(socket, state.batcher.limits)) is not None:
            try:
                words = await _push(state.batcher, state.adapter.validate_json(body))
            except (ValidationError, AarenError) as error:
                words = strict_json({"error": _reason(error)})
            await socket.send_text(words)


@ROUTER.get("/state/{key:path}", response_model=State)
async def state(key: str, request: Request) -> Response:
    """Return the state of a stream."""
    batcher: Batcher = request.app.state.batcher
    content, seq = await batcher.look(key)
    if content is None:
        raise HTTPException(MISSING, f"there is no stream {key[:80]!r}.")
    shown: dict[str, Any] = {batcher.key: key, "bytes": len(content)} | ({} if seq < 0 else {"seq": seq})
    return _reply(200, strict_json({**shown, "state": base64.b64encode(content).decode()}))


@ROUTER.delete("/state/{key:path}")
async def reset(key: str, request: Request) -> dict[str, Any]:
    """Forget a stream: its next row, with any seq, begins it anew."""
    if not await request.app.state.batcher.reset(key):
        raise HTTPException(MISSING, f"there is no stream {key[:80]!r}.")
    return {request.app.state.batcher.key: key, "reset": True}


@ROUTER.get("/healthz")
async def health(request: Request) -> dict[str, Any]:
    """Tell that the server is there, and how many streams it has."""
    return {"status": "ok", "streams": len(request.app.state.batcher.pool)}


@ROUTER.get("/metrics", response_class=Response)
async def numbers(request: Request) -> Response:
    """Return counts and latencies as Prometheus reads them."""
    return Response(request.app.state.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _content_type(batcher: Batcher, example: dict[str, Any]) -> Any:
    """Return the type of a request's body: a row, or a list of rows."""

    class Row(BaseModel):
        """A row: the stream's key, its number among those of the key, and the fields of the setting."""

        model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [example]})
        key: StrictStr | StrictInt = Field(alias=batcher.key)  # type: ignore[literal-required]  # --key
        seq: StrictInt | None = Field(None, ge=0, description="must grow within a stream; makes retries safe")

    def form(content: object) -> str:
        return "rows" if isinstance(content, list) else "row"

    many = Annotated[list[Row], Field(min_length=1, max_length=batcher.limits.items), Tag("rows")]
    return Annotated[Annotated[Row, Tag("row")] | many, Discriminator(form)]


async def _push(batcher: Batcher, content: Any) -> str:
    rows = content if isinstance(content, list) else [content]
    named = [{batcher.key: row.key, **row.model_extra} for row in rows]
    items = batcher.read(named, [row.seq for row in rows])
    answers = await batcher.push(items)
    is_once = all(item.seq >= 0 for item in items)
    delivery = "exactly-once" if is_once else "at-least-once: without seq a retry is taken in again"
    return strict_json({"answers": answers, "delivery": delivery})


async def _refused(_: Request, error: Exception) -> Response:
    return _reply(_status(error), strict_json({"error": _reason(error)}))


def _status(error: Exception) -> int:
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, BusyError | UnwritableError):
        return BUSY
    if isinstance(error, DataError | RequestValidationError):
        return UNUSABLE
    return CONFLICT if isinstance(error, AarenError) else FAILED


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError | RequestValidationError):
        return f"{_faults(error.errors())} Nothing of the request was taken in."
    if _status(error) == FAILED:  # it is in the log; a client gets no traceback
        return "the server failed; what it answered before is committed."
    if _status(error) == CONFLICT:
        return f"{error} DELETE /state/KEY begins a stream anew."
    return str(error.detail if isinstance(error, HTTPException) else error)


def _faults(errors: Sequence[Any]) -> str:
    """Name the first faults of a request, each with its row and field, without what the client sent."""
    words = []
    for error in errors[:MOST_FAULTS]:
        place = [part for part in error["loc"] if part not in ("body", "row", "rows")]
        number = f"row {place.pop(0)}: " if place and isinstance(place[0], int) else ""
        field = f"{str(place[0])[:80]}: " if place else ""
        words.append(f"{number}{field}{error['msg']}")
    return "; ".join(words) + "."


def _reply(status: int, content: str) -> Response:
    headers = {"Retry-After": "1"} if status == BUSY else {}
    return Response(content, status, media_type="application/json", headers=headers)
