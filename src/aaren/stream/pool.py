"""StreamPool: any number of streams by their keys, one small state each; durable, every item taken in once.

States lie side by side in one block of memory. A push gathers those of its keys, steps them together and puts
them back; a commit writes those that changed, with the number of the next item, in one transaction. Streams
that do not fit into memory wait in the file.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.errors import AarenError, ConfigError, DataError, StateError
from aaren.nn import KVCache
from aaren.nn.state import map_tensors
from aaren.stream.session import Session
from aaren.stream.store import Row, StateStore

WORD = 8  # bytes; every part of a state begins at a multiple, so that it can be looked at in its own dtype
Items: TypeAlias = Sequence[Any] | NDArray[np.generic] | Tensor


class Streamable(Protocol):
    """A model or estimator that opens sessions."""

    @property
    def stream(self) -> Callable[..., Session[Any]]:
        """Open a session of so many streams: `stream(batch_size)`."""


class Part(NamedTuple):
    """Where a tensor of the state lies in a stream's bytes."""

    begin: int
    end: int
    dtype: torch.dtype
    shape: tuple[int, ...]  # of one stream


class StateLayout:
    """How the state of one stream becomes bytes of a fixed number, and states of many a block of rows.

    Args:
        like: any state of the model, of one stream.
    """

    def __init__(self, like: object) -> None:
        self.like = like
        self.parts: list[Part] = []
        end = 0
        for tensor in _leaves(like):
            begin = -(-end // WORD) * WORD
            end = begin + tensor[0].numel() * tensor.element_size()
            self.parts.append(Part(begin, end, tensor.dtype, tuple(tensor.shape[1:])))
        self.nbytes = -(-end // WORD) * WORD
        self.empty = self.pack(like)  # (1, nbytes)

    def pack(self, state: object) -> Tensor:
        """Return the states of b streams as bytes, (b, nbytes) uint8."""
        tensors = list(_leaves(state))
        block = torch.zeros(len(tensors[0]), self.nbytes, dtype=torch.uint8)
        for part, place, tensor in zip(self.parts, self._views(block), tensors, strict=True):
            if tensor.dtype != part.dtype or tuple(tensor.shape[1:]) != part.shape:
                raise StateError(
                    f"a pool holds states that keep their size: expected {part.shape} of {part.dtype}, as "
                    f"before the first item; after it came {tuple(tensor.shape[1:])} of {tensor.dtype}."
                )
            place.copy_(tensor)
        return block

    def unpack(self, block: Tensor) -> Any:
        """Return the states in bytes, as the model takes them."""
        views = self._views(block)
        return _rebuild(self.like, (view.clone(memory_format=torch.contiguous_format) for view in views))

    def describe(self) -> str:
        """Return the layout as text, to be kept with the bytes."""
        return json.dumps([[str(part.dtype), *part.shape] for part in self.parts])

    def _views(self, block: Tensor) -> Iterator[Tensor]:
        for begin, end, dtype, shape in self.parts:
            yield block[:, begin:end].view(dtype).view(len(block), *shape)


class StreamPool:
    """Many streams of one model, by their keys.

    Methods may be called from several threads; one process at a time holds the file.

    Args:
        model: anything with `stream()`: a model, an estimator, a policy. Its state must have a constant size.
        path: the file of states, made if need be. It remembers the weights, and refuses others.
        capacity: how many streams are kept in memory; the least recently used ones wait in the file.

    >>> import tempfile
    >>> from aaren.forecasting import StreamingForecaster, StreamingForecasterConfig
    >>> config = StreamingForecasterConfig(num_series=1, num_marks=0, horizon_steps=2, width=8, num_heads=2)
    >>> folder = tempfile.TemporaryDirectory()
    >>> with StreamPool(StreamingForecaster(config), f"{folder.name}/states.db") as pool:
    ...     answers = pool.push(["pump", "valve", "pump"], [[1.0], [7.0], [1.5]])
    >>> answers[2].shape, len(pool), pool.offset
    (torch.Size([2, 1]), 2, 3)
    >>> folder.cleanup()
    """

    def __init__(self, model: Streamable, path: str | Path, *, capacity: int = 65_536) -> None:
        self._begin(model, path, capacity)
        try:
            self._require_same_model()
        except BaseException:
            self._store.close()
            raise

    def _begin(self, model: Streamable, path: str | Path, capacity: int) -> None:
        given: object = capacity  # whatever the type says
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise ConfigError(f"capacity must be a number of streams, at least 1; got {capacity!r}.")
        self.capacity = capacity
        self._session = model.stream(1)
        self._layout = StateLayout(self._session.state)
        self._device = next(iter(self._session.model.parameters())).device
        self._guard = threading.RLock()
        self._store = StateStore(Path(path))
        self._slab = torch.empty(capacity, self._layout.nbytes, dtype=torch.uint8)
        self._return_to_commit()

    def _return_to_commit(self) -> None:
        """Forget what memory holds."""
        self._rows: dict[str, int] = {}  # the row of the slab of each stream; least recently used ones first
        self._free = list(range(self.capacity - 1, -1, -1))
        self._seen = np.zeros(self.capacity)
        self._changed: set[str] = set()  # not yet written; all are in memory
        self._dropped: set[str] = set()  # to be deleted by the next write
        self._count = self._store.count()
        self.offset = self.committed

    def _require_same_model(self) -> None:
        fingerprint, layout = self._session.model.fingerprint(), self._layout.describe()
        known = self._store.read("fingerprint")
        if known is None:
            self._store.write(fingerprint=fingerprint, layout=layout)
            self._store.commit()
        elif known != fingerprint:
            raise StateError(
                f"the states in {self._store.path} belong to the model with fingerprint {known}; yours has "
                f"{fingerprint}. Load the weights that made them, or begin anew: StreamPool.upgrade."
            )
        elif self._store.read("layout") != layout:
            raise StateError(
                f"the states in {self._store.path} are of other sizes or dtypes than those of this model's "
                f"sessions: open the pool as it was opened, or begin anew: StreamPool.upgrade."
            )

    @classmethod
    def upgrade(
        cls,
        model: Streamable,
        path: str | Path,
        *,
        capacity: int = 65_536,
        replay: Iterable[tuple[Sequence[str], Items, Mapping[str, Any]]] = (),
    ) -> Self:
        """Open a file of states with other weights than those that made it; all states are made anew.

        Until the replay is over, the file stays as it was: an error or a kill changes nothing. The offset is
        kept.

        Args:
            model: the new one.
            path: the file.
            capacity: as of the pool.
            replay: batches of past items, (keys, items, what else `push` takes, by name), that the new
                states are to begin from; none: every stream begins with nothing.
        """
        pool = cls.__new__(cls)
        pool._begin(model, path, capacity)
        try:
            offset = pool.offset
            pool._store.forget_all()
            pool._count = 0
            for keys, items, extras in replay:
                pool.push(keys, items, **extras)
            pool._store.write(fingerprint=pool._session.model.fingerprint(), layout=pool._layout.describe())
            pool.commit(offset)
        except BaseException:
            pool.close()
            raise
        return pool

    def push(
        self,
        keys: Sequence[str],
        items: Items,
        *,
        offset: int | None = None,
        at: float | None = None,
        **extras: Items,
    ) -> list[Any]:
        """Take in items of streams, those of one key in their order: all, or none if one is refused.

        Args:
            keys: whose item each is; unknown keys begin a stream.
            items: one per key, as the sessions of the model take them.
            offset: the number of the first one in the input. Items before `pool.offset` have been taken in
                already and change nothing. None: they are the next ones.
            at: when they came, for `expire`; default: now, in seconds.
            **extras: what else the session's `push` takes, one per key: `marks`, `mark`, `reward`.

        Returns:
            The answer after each item, as a session of one stream gives it; None for those that were taken in
            before.
        """
        with self._guard:
            keys = _read_keys(keys)
            for name, given in {"items": items, **extras}.items():
                _require_one_per_key(name, given, len(keys))
            begin = self.offset if offset is None else _read_offset(offset)
            answers: list[Any] = [None] * len(keys)
            first = min(max(self.offset - begin, 0), len(keys))
            if first == len(keys):
                return answers
            streams: dict[str, int] = {}  # of this push: the place of each key
            rounds: list[list[int]] = []  # in each of which a key has one item
            depth: dict[str, int] = {}
            for index in range(first, len(keys)):
                key = keys[index]
                streams.setdefault(key, len(streams))
                turn = depth[key] = depth.get(key, -1) + 1
                if turn == len(rounds):
                    rounds.append([])
                rounds[turn].append(index)
            names = list(streams)
            block, num_new = self._gather(names)
            for chosen in rounds:
                places = torch.tensor([streams[keys[index]] for index in chosen])
                picked = {name: _pick(given, chosen) for name, given in extras.items()}
                found, new = self._step(
                    [keys[i] for i in chosen], chosen, block[places], _pick(items, chosen), picked
                )
                block[places] = new
                for index, answer in zip(chosen, found, strict=True):
                    answers[index] = answer
            self._scatter(names, block, time.time() if at is None else float(at))
            self._count += num_new
            self.offset = begin + len(keys)
            return answers

    def commit(self, offset: int | None = None) -> None:
        """Write all that changed to the disk, with the number of the next item of the input.

        If the disk is full, states stay in memory and `commit` may be tried again; only if some had to be
        moved to the file since the last commit, the pool goes back there. The error says which.

        Args:
            offset: the next item's number; default: `pool.offset`.
        """
        with self._guard:
            wanted = self.offset if offset is None else _read_offset(offset)
            with self._undone():
                self._write(list(self._changed), offset=wanted)
                self._store.commit()
            self._changed.clear()
            self._dropped.clear()
            self.offset = wanted

    @property
    def committed(self) -> int:
        """Return the number of the next item as of the last commit: where the input is to be read on."""
        return int(str(self._store.read("offset")))

    @property
    def path(self) -> Path:
        """Return the file."""
        return self._store.path

    def get(self, key: str) -> Any:
        """Return the state of a stream, as a session's `state`; None: there is no such stream."""
        with self._guard:
            (key,) = _read_keys([key])
            if key in self._rows:
                block = self._slab[self._rows[key]].unsqueeze(0)
            else:
                found = self._load([key])
                if key not in found:
                    return None
                block = found[key].unsqueeze(0)
            return self._unpack(block)

    def __contains__(self, key: object) -> bool:
        with self._guard:
            return isinstance(key, str) and (key in self._rows or self._is_stored(key))

    def __len__(self) -> int:
        return self._count

    def drop(self, keys: Iterable[str]) -> int:
        """Forget streams, in the file from the next commit on, and return how many there were."""
        with self._guard:
            if isinstance(keys, str):
                raise DataError(f"drop takes several keys: drop([{keys!r}]).")
            dropped = 0
            for key in dict.fromkeys(_read_keys(list(keys))):
                if key in self._rows:
                    self._free.append(self._rows.pop(key))
                    self._changed.discard(key)
                elif not self._is_stored(key):
                    continue
                self._dropped.add(key)
                dropped += 1
            self._count -= dropped
            return dropped

    def expire(self, older_than: float, *, now: float | None = None) -> int:
        """Drop the streams whose last item is older, and return how many they were.

        Args:
            older_than: seconds, or the unit of `push(at=...)`.
            now: default: the time, in seconds.
        """
        with self._guard:
            before = (time.time() if now is None else now) - older_than
            stored = self._store.keys_before(before)
            old = {key for key in stored if key not in self._rows and key not in self._dropped}
            old.update(key for key, row in self._rows.items() if self._seen[row] < before)
            return self.drop(old)

    def close(self) -> None:
        """Give the file back; what was pushed since the last commit is forgotten."""
        with self._guard:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()

    def _step(
        self, keys: list[str], numbers: list[int], block: Tensor, items: Items, extras: dict[str, Any]
    ) -> tuple[Iterable[Any], Tensor]:
        """Return the answers of one item per stream, and the new states."""
        session = self._session
        session.batch_size, session.state = len(keys), self._unpack(block)
        try:
            output: Any = session.push(cast("Any", items), **extras)
        except AarenError as error:
            if len(keys) > 1:  # say whose item it is
                for place, key in enumerate(keys):
                    one = {name: _pick(given, [place]) for name, given in extras.items()}
                    self._step([key], numbers[place : place + 1], block[[place]], _pick(items, [place]), one)
                raise
            raise type(error)(
                f"item {numbers[0]} of this push, of stream {keys[0]!r}: {error} Nothing of the push was "
                f"taken in."
            ) from error
        found = output.unbind() if isinstance(output, Tensor) else [output[i] for i in range(len(keys))]
        return found, self._layout.pack(session.state)

    def _unpack(self, block: Tensor) -> Any:
        return self._layout.unpack(block.to(self._device))

    def _gather(self, keys: list[str]) -> tuple[Tensor, int]:
        """Return a copy of the states of streams, (b, nbytes), and how many of them are new: empty."""
        held = [place for place, key in enumerate(keys) if key in self._rows]
        rows = torch.tensor([self._rows[keys[place]] for place in held], dtype=torch.int64)
        if len(held) == len(keys):
            return self._slab[rows], 0
        found = self._load([key for key in keys if key not in self._rows])
        block = self._layout.empty.repeat(len(keys), 1)
        block[torch.tensor(held, dtype=torch.int64)] = self._slab[rows]
        for place, key in enumerate(keys):
            if key in found:
                block[place] = found[key]
        return block, len(keys) - len(held) - len(found)

    def _load(self, keys: list[str]) -> dict[str, Tensor]:
        """Return those of the states that are stored, as bytes."""
        found = {}
        for row in self._store.load([key for key in keys if key not in self._dropped]):
            if len(row.content) != self._layout.nbytes:
                raise StateError(
                    f"{self.path}: the state of stream {row.key!r} has {len(row.content)} bytes; this "
                    f"model's have {self._layout.nbytes}. Restore the file from a backup, or drop the stream."
                )
            found[row.key] = torch.frombuffer(bytearray(row.content), dtype=torch.uint8)
        return found

    def _is_stored(self, key: str) -> bool:
        return key not in self._dropped and self._store.has(key)

    def _scatter(self, keys: list[str], block: Tensor, at: float) -> None:
        """Keep new states: in memory, where the least recently used streams make room."""
        surplus = max(len(keys) - self.capacity, 0)  # go to the file at once
        mine = set(keys)
        staying = keys[surplus:]
        room = len(self._free) + sum(key in self._rows for key in keys)
        lacking = max(len(staying) - room, 0)
        leaving = [
            key for key, _ in zip((k for k in self._rows if k not in mine), range(lacking), strict=False)
        ]
        spilt = [key for key in leaving if key in self._changed]
        if spilt or surplus:
            with self._undone():
                self._write(spilt)
                contents = zip(keys, block[:surplus].numpy(), strict=False)
                self._store.write(Row(key, at, content.tobytes()) for key, content in contents)
            self._dropped.clear()
        for key in [*leaving, *keys[:surplus]]:
            if key in self._rows:
                self._free.append(self._rows.pop(key))
            self._changed.discard(key)
        rows = [self._rows.pop(key) if key in self._rows else self._free.pop() for key in staying]
        self._slab[torch.tensor(rows)] = block[surplus:]
        self._seen[rows] = at
        self._rows.update(zip(staying, rows, strict=True))
        self._changed.update(staying)

    def _write(self, keys: list[str], **facts: object) -> None:
        """Write what was dropped and some of the states in memory, by the next commit."""
        rows = [self._rows[key] for key in keys]
        contents = self._slab[torch.tensor(rows, dtype=torch.int64)].numpy()
        changed = (
            Row(key, float(self._seen[row]), content.tobytes())
            for key, row, content in zip(keys, rows, contents, strict=True)
        )
        self._store.write(changed, dropped=self._dropped, **facts)

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """Undo a writing that fails; memory stays as it is, unless the file held a newer part of it."""
        has_moved = self._store.has_changes
        try:
            yield
        except StateError as error:
            self._store.rollback()
            if not has_moved:
                raise
            self._return_to_commit()
            raise type(error)(
                f"{error} The pool is back at its last commit: push again from item {self.offset} on."
            ) from error


def _leaves(state: object) -> Iterator[Tensor]:
    """Walk through the tensors of a state, which must be all that it holds."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple) and not isinstance(state, KVCache):
        for part in state:
            yield from _leaves(part)
    else:
        raise StateError(
            f"a pool holds states of a constant size; this model's has a {type(state).__name__}, which grows "
            f"or is shared by all streams. Use a model with mixer='aaren', or another recurrent one."
        )


def _rebuild(like: object, tensors: Iterator[Tensor]) -> Any:
    """Return a state of the same structure around other tensors."""
    return map_tensors(lambda _: next(tensors), like)


def _pick(given: Items, chosen: list[int]) -> Any:
    return given[chosen] if isinstance(given, Tensor | np.ndarray) else [given[index] for index in chosen]


def _read_keys(keys: Sequence[str]) -> list[str]:
    """Return keys that are text which can be stored."""
    if isinstance(keys, str):
        raise DataError(f"keys are several, one per item: [{keys!r}].")
    for key in keys:
        given: object = key
        if not isinstance(given, str):
            raise DataError(f"a key is text; got {given!r}. Convert it: str(...).")
        try:
            given.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"the key {given!r} cannot be stored: {error.reason}.") from error
    return list(keys)


def _require_one_per_key(name: str, given: Items, count: int) -> None:
    try:
        size = len(given)
    except TypeError as error:
        raise DataError(f"{name} must be {count}, one per key; got {given!r}.") from error
    if size != count:
        raise DataError(f"{name} must be {count}, one per key; got {size}.")


def _read_offset(offset: object) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise DataError(f"offset must be the number of an item of the input, from 0; got {offset!r}.")
    return offset
