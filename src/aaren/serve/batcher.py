"""Batcher: requests that wait are taken in together, committed together, and only then answered.

A row may carry `seq`, its number among those of its key. One that is not beyond the key's last was delivered
before: it changes nothing, and if it is of the key's last request its answer is given again, since that is
committed with the state. So a client that repeats what it got no answer to has every item taken in exactly
once.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from aaren.errors import AarenError, DataError
from aaren.files.strict_json import strict_json
from aaren.nn.blocks import state_to_bytes
from aaren.serve.metrics import StreamMetrics
from aaren.stream.lines import read_row
from aaren.stream.pool import StreamPool
from aaren.stream.rows import RowPath


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a client may ask for."""

    body_bytes: int = 1 << 20
    items: int = 4096  # of one request; fewer where answers are long
    answer_bytes: int = 8 << 20  # of one request, about
    key_bytes: int = 256
    streams: int = 10_000_000  # in all
    state_bytes: int = 1 << 20  # of one stream
    waiting_items: int = 65_536
    seconds: float = 30.0  # until a request is answered
    idle_seconds: float = 600.0  # between two messages of a WebSocket


class BusyError(AarenError):
    """The server has too much to do: the client may try again."""


class FullError(AarenError):
    """There is no room for another stream until one is reset, or the server started with --max-streams."""


@dataclass(slots=True)
class Pushed:
    """The rows of one request, read."""

    keys: list[str] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)
    extras: dict[str, list[Any]] = field(default_factory=dict)
    seqs: list[int] = field(default_factory=list)
    rows: list[Mapping[str, Any]] = field(default_factory=list)


class Batcher:
    """The pool of a server, and the one thread that pushes to it.

    Args:
        rows: the way of the rows.
        pool: an open pool; it is closed by `close`.
        key: the field with the name of the stream.
        time: the field with the time of a row; "": the usual one of the setting.
        limits: what a client may ask for.
        metrics: told of every batch.
    """

    def __init__(
        self, rows: RowPath, pool: StreamPool, *, key: str, time: str, limits: Limits, metrics: StreamMetrics
    ) -> None:
        self.pool, self.limits, self.key = pool, limits, key
        self._rows, self._clock, self._metrics = rows, time or rows.time, metrics
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="aaren-serve")
        self._waiting: list[tuple[Pushed, asyncio.Future[list[dict[str, Any]]]]] = []
        self._num_waiting = 0
        self._task: asyncio.Task[None] | None = None

    def read(self, rows: Sequence[Mapping[str, Any]], seqs: Sequence[int | None]) -> Pushed:
        """Read the rows of a request, which have numbers or None."""
        pushed = Pushed(rows=list(rows), seqs=[-1 if seq is None else seq for seq in seqs])
        for number, row in enumerate(rows):
            try:
                key, item, others = read_row(self._rows, row, self.key, self._clock)
                if len(key.encode(errors="replace")) > self.limits.key_bytes:
                    raise DataError(f"a key has at most {self.limits.key_bytes} bytes; got {key[:40]!r}...")
                if pushed.keys and set(others) != set(pushed.extras):
                    raise DataError("all rows of a request have the same fields.")
            except AarenError as error:
                raise DataError(f"row {number}: {error} Nothing of the request was taken in.") from error
            pushed.keys.append(key)
            pushed.items.append(item)
            for name, value in others.items():
                pushed.extras.setdefault(name, []).append(value)
        return pushed

    async def push(self, pushed: Pushed) -> list[dict[str, Any]]:
        """Take in rows, with those of other requests that wait, and return their answers once committed."""
        if self._num_waiting + len(pushed.keys) > self.limits.waiting_items:
            raise BusyError(f"{self._num_waiting} rows wait already: try again, with the same seq.")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[dict[str, Any]]] = loop.create_future()
        self._waiting.append((pushed, done))
        self._num_waiting += len(pushed.keys)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        try:
            return await asyncio.wait_for(asyncio.shield(done), self.limits.seconds)
        except TimeoutError:
            raise BusyError(
                f"no answer within {self.limits.seconds:g} s; rows may still be taken in: try again with "
                f"the same seq."
            ) from None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            count, size = 0, 0
            while count < len(self._waiting) and (not count or size < self.limits.items):
                size += len(self._waiting[count][0].keys)
                count += 1
            taken, self._waiting = self._waiting[:count], self._waiting[count:]
            self._num_waiting -= size
            outcomes = await loop.run_in_executor(self._worker, self._work, [pushed for pushed, _ in taken])
            for (_, done), outcome in zip(taken, outcomes, strict=True):
                if done.cancelled():
                    continue
                if isinstance(outcome, BaseException):
                    done.set_exception(outcome)
                    done.exception()  # whoever waited may have gone
                else:
                    done.set_result(outcome)

    def _work(self, requests: Sequence[Pushed]) -> list[list[dict[str, Any]] | Exception]:
        """Take in requests, commit them together, and answer each or say why not."""
        start = time.perf_counter()
        outcomes = self._take_in(requests)
        taken = [pair for pair in zip(requests, outcomes, strict=True) if not isinstance(pair[1], Exception)]
        if not taken:
            return outcomes
        try:
            answers = iter(self._name_all(*zip(*taken, strict=True)))
            self.pool.commit()
        except Exception as error:
            return [one if isinstance(one, Exception) else error for one in outcomes]
        count = sum(len(request.keys) for request, _ in taken)
        seconds = time.perf_counter() - start
        self._metrics.count(items=count, outputs=count, seconds=seconds, streams=len(self.pool))
        return [one if isinstance(one, Exception) else next(answers) for one in outcomes]

    def _take_in(self, requests: Sequence[Pushed]) -> list[list[Any] | Exception]:
        """Push requests together or, if that is refused, one by one; return what came of each."""
        try:
            answers = iter(self._push(requests))
            return [list(islice(answers, len(request.keys))) for request in requests]
        except Exception as error:  # nothing was taken in
            if len(requests) == 1:
                return [error]
        outcomes: list[list[Any] | Exception] = []
        for request in requests:
            before = self.pool.offset
            (outcome,) = self._take_in([request])
            if isinstance(outcome, Exception) and self.pool.offset < before:
                # The disk is full and the pool back at its last commit, without the requests before.
                outcomes = [one if isinstance(one, Exception) else outcome for one in outcomes]
            outcomes.append(outcome)
        return outcomes

    def _push(self, requests: Sequence[Pushed]) -> list[Any]:
        whole = requests[0]
        if len(requests) > 1:
            whole = Pushed()
            for request in requests:
                if whole.keys and set(request.extras) != set(whole.extras):
                    raise DataError("all rows of a request have the same fields.")
                whole.keys += request.keys
                whole.items += request.items
                whole.seqs += request.seqs
                whole.rows += request.rows
                for name, values in request.extras.items():
                    whole.extras.setdefault(name, []).extend(values)
        pool = self.pool
        if len(pool) + len(set(whole.keys)) > self.limits.streams:
            new = sum(key not in pool for key in set(whole.keys))
            if len(pool) + new > self.limits.streams:
                raise FullError(f"there are {len(pool)} streams, and room for {self.limits.streams}.")
        extras: dict[str, Any] = dict(whole.extras)
        return pool.push(whole.keys, whole.items, seq=whole.seqs, **extras)

    def _name_all(
        self, requests: Sequence[Pushed], outputs: Sequence[Sequence[Any]]
    ) -> list[list[dict[str, Any]]]:
        """Return the answers of each request, and note those that a retry would ask for."""
        pairs = [
            (answer, row)
            for request, answers in zip(requests, outputs, strict=True)
            for answer, row in zip(answers, request.rows, strict=True)
            if answer is not None
        ]
        new, rows = [answer for answer, _ in pairs], [row for _, row in pairs]
        named = iter(self._rows.answers(new, rows, self._clock) if pairs else ())
        notes: dict[str, bytes] = {}
        results = [
            self._name(request, [None if answer is None else next(named) for answer in answers], notes)
            for request, answers in zip(requests, outputs, strict=True)
        ]
        self.pool.keep_notes(notes)
        return results

    def _name(
        self, request: Pushed, outputs: Sequence[dict[str, Any] | None], notes: dict[str, bytes]
    ) -> list[dict[str, Any]]:
        """Return the answers of a request with their keys, and note them all for a retry."""
        answers = []
        notes_of_key: dict[str, dict[str, dict[str, Any]]] = {}  # by key and seq
        earlier: dict[str, dict[str, dict[str, Any]]] = {}
        has_new = set()
        for key, seq, answer in zip(request.keys, request.seqs, outputs, strict=True):
            head: dict[str, Any] = {self.key: key} if seq < 0 else {self.key: key, "seq": seq}
            known = notes_of_key.setdefault(key, {})
            if answer is not None:
                answers.append({**head, **answer})
                if seq >= 0:
                    known[str(seq)] = answer
                    has_new.add(key)
                continue
            if str(seq) not in known:
                if key not in earlier:
                    earlier[key] = json.loads(notes.get(key) or self.pool.note(key)[1] or b"{}")
                known |= {name: old for name, old in earlier[key].items() if name == str(seq)}
            answers.append({**head, "repeated": True, **known.get(str(seq), {})})
        notes |= {key: strict_json(notes_of_key[key]).encode() for key in has_new}
        return answers

    async def look(self, key: str) -> tuple[bytes | None, int]:
        """Return the state of a stream (None: there is none) and its last `seq`, both as of one commit."""

        def read() -> tuple[bytes | None, int]:  # in the thread that pushes and commits
            held, (seq, _) = self.pool.get(key), self.pool.note(key)
            return None if held is None else state_to_bytes(held, fingerprint=self.pool.fingerprint), seq

        return await asyncio.get_running_loop().run_in_executor(self._worker, read)

    async def reset(self, key: str) -> bool:
        """Forget a stream, on the disk too, and tell whether there was one."""

        def forget() -> bool:
            dropped = self.pool.drop([key])
            self.pool.commit()
            return bool(dropped)

        return await asyncio.get_running_loop().run_in_executor(self._worker, forget)

    async def close(self) -> None:
        """Answer what waits, commit, and give the file back."""
        if self._task is not None:
            await self._task
        self._worker.shutdown()
        try:
            self.pool.commit()
        finally:
            self.pool.close()
