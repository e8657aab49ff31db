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
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

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


class Item(NamedTuple):
    """A row of a request, read."""

    key: str
    item: Any
    extras: dict[str, Any]  # what else `pool.push` takes
    seq: int  # -1: none
    row: Mapping[str, Any]


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
        self._waiting: list[tuple[list[Item], asyncio.Future[list[dict[str, Any]]]]] = []
        self._num_waiting = 0
        self._task: asyncio.Task[None] | None = None

    def read(self, rows: Sequence[Mapping[str, Any]], seqs: Sequence[int | None]) -> list[Item]:
        """Read the rows of a request, which have numbers or None."""
        items: list[Item] = []
        for number, (row, seq) in enumerate(zip(rows, seqs, strict=True)):
            try:
                key, item, extras = read_row(self._rows, row, self.key, self._clock)
                if len(key.encode(errors="replace")) > self.limits.key_bytes:
                    raise DataError(f"a key has at most {self.limits.key_bytes} bytes; got {key[:40]!r}...")
                if items and extras.keys() != items[0].extras.keys():
                    raise DataError("all rows of a request have the same fields.")
            except AarenError as error:
                raise DataError(f"row {number}: {error} Nothing of the request was taken in.") from error
            items.append(Item(key, item, extras, -1 if seq is None else seq, row))
        return items

    async def push(self, items: list[Item]) -> list[dict[str, Any]]:
        """Take in rows, with those of other requests that wait, and return their answers once committed."""
        if self._num_waiting + len(items) > self.limits.waiting_items:
            raise BusyError(f"{self._num_waiting} rows wait already: try again, with the same seq.")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[dict[str, Any]]] = loop.create_future()
        self._waiting.append((items, done))
        self._num_waiting += len(items)
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
                size += len(self._waiting[count][0])
                count += 1
            taken, self._waiting = self._waiting[:count], self._waiting[count:]
            self._num_waiting -= size
            outcomes = await loop.run_in_executor(self._worker, self._work, [items for items, _ in taken])
            for (_, done), outcome in zip(taken, outcomes, strict=True):
                if done.cancelled():
                    continue
                if isinstance(outcome, BaseException):
                    done.set_exception(outcome)
                    done.exception()  # whoever waited may have gone
                else:
                    done.set_result(outcome)

    def _work(self, requests: Sequence[list[Item]]) -> list[list[dict[str, Any]] | Exception]:
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
        count = sum(len(request) for request, _ in taken)
        seconds = time.perf_counter() - start
        self._metrics.count(items=count, outputs=count, seconds=seconds, streams=len(self.pool))
        return [one if isinstance(one, Exception) else next(answers) for one in outcomes]

    def _take_in(self, requests: Sequence[list[Item]]) -> list[list[Any] | Exception]:
        """Push requests together or, if that is refused, one by one; return what came of each."""
        try:
            answers = iter(self._push(requests))
            return [list(islice(answers, len(request))) for request in requests]
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

    def _push(self, requests: Sequence[list[Item]]) -> list[Any]:
        items = list(chain.from_iterable(requests))
        names = items[0].extras.keys()
        if any(request[0].extras.keys() != names for request in requests):
            raise DataError("all rows of a request have the same fields.")
        pool, keys = self.pool, [item.key for item in items]
        if len(pool) + len(set(keys)) > self.limits.streams:
            new = sum(key not in pool for key in set(keys))
            if len(pool) + new > self.limits.streams:
                raise FullError(f"there are {len(pool)} streams, and room for {self.limits.streams}.")
        extras: dict[str, Any] = {name: [item.extras[name] for item in items] for name in names}
        return pool.push(keys, [item.item for item in items], seq=[item.seq for item in items], **extras)

    def _name_all(
        self, requests: Sequence[list[Item]], outputs: Sequence[Sequence[Any]]
    ) -> list[list[dict[str, Any]]]:
        """Return the answers of each request, and note those that a retry would ask for."""
        new = [
            (output, item.row)
            for output, item in zip(chain.from_iterable(outputs), chain.from_iterable(requests), strict=True)
            if output is not None
        ]
        rows = [row for _, row in new]
        named = iter(self._rows.answers([output for output, _ in new], rows, self._clock) if new else ())
        notes: dict[str, bytes] = {}
        answers = [
            self._name(request, [None if output is None else next(named) for output in outputs_of_it], notes)
            for request, outputs_of_it in zip(requests, outputs, strict=True)
        ]
        self.pool.keep_notes(notes)
        return answers

    def _name(
        self, request: list[Item], answers: Sequence[dict[str, Any] | None], notes: dict[str, bytes]
    ) -> list[dict[str, Any]]:
        """Return the answers of a request with their keys, and note them all for a retry."""
        named = []
        noted: dict[str, dict[str, dict[str, Any]]] = {}  # by key and seq: answers of this request
        earlier: dict[str, dict[str, dict[str, Any]]] = {}  # of the key's last request
        has_new = set()
        for item, answer in zip(request, answers, strict=True):
            key, seq = item.key, str(item.seq)
            head: dict[str, Any] = {self.key: key} if item.seq < 0 else {self.key: key, "seq": item.seq}
            known = noted.setdefault(key, {})
            if answer is not None:
                named.append({**head, **answer})
                if item.seq >= 0:
                    known[seq] = answer
                    has_new.add(key)
                continue
            if seq not in known:
                if key not in earlier:
                    earlier[key] = json.loads(notes.get(key) or self.pool.note(key)[1] or b"{}")
                if seq in earlier[key]:
                    known[seq] = earlier[key][seq]
            named.append({**head, "repeated": True, **known.get(seq, {})})
        notes |= {key: strict_json(noted[key]).encode() for key in has_new}
        return named

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
