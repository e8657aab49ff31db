"""StreamPool: any number of streams by their keys, one small state each; durable, every item taken in once.

States lie side by side in one block of memory. A push gathers those of its keys, steps them together and puts
them back; a commit writes those that changed, with the number of the next item, in one transaction. Streams
that do not fit into memory wait in the file.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from reprlib import repr as short
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from aaren.errors import AarenError, ConfigError, DataError, StateError
from aaren.nn.blocks import Layout, Words, seal, words_from_bytes
from aaren.stream.keyed import (
    Items,
    is_text,
    pick,
    read_keys,
    read_offset,
    read_time,
    read_whole,
    require_one_per_key,
    slice_from,
    turns,
)
from aaren.stream.session import Session, Steppable
from aaren.stream.store import Row, StateStore

LEAVING_SHARE = 16  # when streams must make room, one in so many of those in memory leave together


class Streamable(Protocol):
    """A model or estimator that opens sessions."""

    @property
    def stream(self) -> Callable[..., Session[Any]]:
        """Open a session of so many streams: `stream(batch_size)`."""


class StreamPool:
    """Many streams of one model, by their keys.

    Methods may be called from several threads; one process at a time holds the file.

    Args:
        model: anything with `stream()`: a model, an estimator, a policy; or a module with the verbs of
            `Steppable`, such as an `Encoder`. Its state must have a constant size.
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

    def __init__(
        self, model: Streamable | Steppable[Any], path: str | Path, *, capacity: int = 65_536
    ) -> None:
        with self._begun(model, path, capacity):
            self._require_same_model()

    @contextlib.contextmanager
    def _begun(self, model: Streamable | Steppable[Any], path: str | Path, capacity: int) -> Iterator[None]:
        """Open the file, and give it back if what follows fails."""
        value: object = capacity  # whatever the type says
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"capacity must be a number of streams, at least 1; got {capacity!r}.")
        self.capacity = capacity
        self._session = open_session(model)
        self._layout = Layout(self._session.state)
        self._lock = threading.RLock()
        self._fingerprint = self._session.fingerprint
        self._empty = self._layout.pack(self._session.state)[0]
        # The system gives a page when it is written to.
        self._slab = np.empty((capacity, len(self._empty)), np.uint64)
        self._store = StateStore(Path(path))
        try:
            self._return_to_commit()
            yield
        except BaseException:
            self._store.close()
            raise

    @property
    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """Let one thread in, of the process that opened the file."""
        self._store.require_process()
        with self._lock:
            yield

    def _return_to_commit(self) -> None:
        """Forget what memory holds."""
        self._rows: dict[str, int] = {}  # the row of the slab of each stream
        self._keys = np.full(self.capacity, None, dtype=object)  # whose a row is
        self._num_used = 0  # rows that have ever been taken
        self._free: list[int] = []  # of them, those that were given back
        self._seen = np.zeros(self.capacity)  # when the last item of a row came, for `expire`
        self._used = np.zeros(self.capacity, np.int64)  # in which push, from 1; 0: the row is free
        self._seq = np.full(self.capacity, -1)  # the number of the last item, as `push(seq=...)` gave it
        self._notes = np.full(self.capacity, None, dtype=object)
        self._changed = np.zeros(self.capacity, np.bool_)  # rows that are not yet written
        self._pushes = 0
        self._dropped: set[str] = set()  # to be deleted by the next write
        self._count = int(self._store.facts["count"])
        self.offset = self.committed

    def _require_same_model(self) -> None:
        fingerprint, layout = self._fingerprint, self._layout.text
        known = self._store.facts.get("fingerprint")
        if known is None:
            self._store.commit(fingerprint=fingerprint, layout=layout)
        elif known != fingerprint:
            raise StateError(
                f"the states in {self._store.path} belong to the model with fingerprint {known}; yours has "
                f"{fingerprint}. Load the weights that made them, or begin anew: StreamPool.upgrade."
            )
        elif self._store.facts["layout"] != layout:
            raise StateError(
                f"the states in {self._store.path} are of other sizes or dtypes than those of this model's "
                f"sessions: open the pool as it was opened, or begin anew: StreamPool.upgrade."
            )

    @classmethod
    def upgrade(
        cls,
        model: Streamable | Steppable[Any],
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
        with pool._begun(model, path, capacity):
            offset = pool.offset
            pool._store.forget_all()
            pool._count = pool.offset = 0
            for keys, items, extras in replay:
                pool.push(keys, items, **extras)
            pool.commit(offset, fingerprint=pool._fingerprint, layout=pool._layout.text)
        return pool

    def push(
        self,
        keys: Sequence[str],
        items: Items,
        *,
        offset: int | None = None,
        at: float | None = None,
        seq: Sequence[int] | None = None,
        **extras: Items,
    ) -> list[Any]:
        """Take in items of streams, those of one key in their order: all, or none if one is refused.

        Args:
            keys: whose item each is; unknown keys begin a stream.
            items: one per key, as the sessions of the model take them.
            offset: the number of the first one in the input. Items before `pool.offset` have been taken in
                already and change nothing; a gap is an error. None: they are the next ones.
            at: when they came, for `expire`; default: now, in seconds.
            seq: the number of each item among those of its key, which must grow; one that is not beyond the
                key's last has been taken in already and changes nothing. -1: the item has none.
            **extras: what else the session's `push` takes, one per key: `marks`, `mark`, `reward`.

        Returns:
            The answer after each item, as a session of one stream gives it; None for those that were taken in
            before.
        """
        with self._guard:
            keys = read_keys(keys)
            for name, values in {"items": items, **extras}.items():
                require_one_per_key(name, values, len(keys))
            begin = self._begin(offset)
            now = time.time() if at is None else read_time(at)
            answers: list[Any] = [None] * len(keys)
            first = min(max(self.offset - begin, 0), len(keys))
            if first == len(keys):
                return answers
            named: dict[str, Any] = {
                name: slice_from(values, first) for name, values in {"": items, **extras}.items()
            }
            numbers = list(range(first, len(keys)))
            last: dict[str, int] = {}
            if seq is not None:
                require_one_per_key("seq", seq, len(keys))
            if seq is not None and any(number != -1 for number in seq):
                numbers, last = self._unseen(keys, seq, numbers)
                chosen = np.array(numbers, np.int64) - first
                named = {name: pick(values, chosen) for name, values in named.items()}
            if numbers:
                new, states, num_new = self._advance([keys[number] for number in numbers], named, numbers)
                for number, answer in zip(numbers, new, strict=True):
                    answers[number] = answer
                self._keep(*states, now, last)
                self._count += num_new
            self.offset = begin + len(keys)
            return answers

    def _begin(self, offset: int | None) -> int:
        """Return the number of the first item of a push in the input; a gap is an error."""
        begin = self.offset if offset is None else read_offset(offset)
        if begin > self.offset:
            raise DataError(
                f"the next item of the input is number {self.offset}; this push begins with {begin}, and the "
                f"{begin - self.offset} items before it were never taken in. Push them first, or leave them "
                f"out on purpose: pool.commit({begin})."
            )
        return begin

    def prepare(self, item: Any, **extras: Any) -> Any:
        """Run one item through the model, keep nothing of it, and return the answer (None: it was refused).

        What cannot run on this machine is found now, and the first push does not wait for the native engine's
        program.

        Args:
            item: one, as `push` takes several.
            **extras: what else `push` takes, of the one item.
        """
        with self._guard, contextlib.suppress(DataError):  # an item need not be a sensible one
            named = {name: slice_from([value], 0) for name, value in {"": item, **extras}.items()}
            return self._advance([""], named, [0])[0][0]
        return None

    def _unseen(
        self, keys: list[str], seq: Sequence[int], numbers: list[int]
    ) -> tuple[list[int], dict[str, int]]:
        """Return which items have not been taken in, and the number of the last of each stream."""
        last = {key: int(self._seq[row]) for key in keys if (row := self._rows.get(key, -1)) >= 0}
        stored = [key for key in dict.fromkeys(keys) if key not in last]
        last |= {key: row.seq for key, row in self._load(stored).items()} if stored else {}
        new = []
        for number in numbers:
            value = read_whole(seq[number])
            if value is None:
                raise DataError(
                    f"seq must be a whole number of at least 0, or -1 for none; got {short(seq[number])} of "
                    f"stream {short(keys[number])}."
                )
            if value == -1 or value > last.get(keys[number], -1):
                new.append(number)
                last[keys[number]] = max(value, last.get(keys[number], -1))
        return new, last

    def _advance(
        self, keys: list[str], named: dict[str, Any], item_numbers: list[int]
    ) -> tuple[list[Any], tuple[list[str], list[int], Words, dict[str, Row]], int]:
        """Step the streams of a push, and keep nothing yet.

        Args:
            keys: of the items.
            named: the items, by the name "", and what else the session takes.
            item_numbers: the number of each item in the push.

        Returns:
            The answers; the streams, their rows (-1: none), new states and what was stored of them; how many
            streams are new.
        """
        numbers: dict[str, int] = {}
        of_key = np.array([numbers.setdefault(key, len(numbers)) for key in keys])
        names = list(numbers)
        order, sizes, of_item = None, [len(keys)], keys
        if len(names) < len(keys):
            streams, order, sizes = turns(of_key)
            names = [names[stream] for stream in streams.tolist()]
            named = {name: pick(values, order) for name, values in named.items()}
            item_numbers, of_item = (
                [part[place] for place in order.tolist()] for part in (item_numbers, keys)
            )
        extras = dict(named)
        items = extras.pop("")
        rows = [self._rows.get(key, -1) for key in names]
        block, loaded, num_new = self._gather(names, rows)
        try:
            answers = self._session.run(block, sizes, items, **extras)
        except AarenError as error:
            if error.item is None:
                raise
            number = item_numbers[error.item]
            refused = type(error)(
                f"item {number} of this push, of stream {short(of_item[error.item])}: {error} Nothing of the "
                f"push was taken in."
            )
            refused.item = number
            raise refused from error
        if order is not None:
            ordered: list[Any] = [None] * len(keys)
            for place, answer in zip(order.tolist(), answers, strict=True):
                ordered[place] = answer
            answers = ordered
        return answers, (names, rows, block, loaded), num_new

    def commit(self, offset: int | None = None, **facts: str) -> None:
        """Write all that changed to the disk, with the number of the next item of the input.

        If the disk is full, states stay in memory and `commit` may be tried again; only if some had to be
        moved to the file since the last commit, the pool goes back there. The error says which.

        Args:
            offset: the next item's number; default: `pool.offset`.
            **facts: about the whole pool, to be kept with it: `fact` gives them back.
        """
        with self._guard:
            wanted = self.offset if offset is None else read_offset(offset)
            with self._undone():
                self._store.write(self._stored(np.flatnonzero(self._changed)), dropped=self._dropped)
                self._store.commit(**facts, offset=wanted, count=self._count)
            self._changed[:] = False
            self._dropped.clear()
            self.offset = wanted

    @property
    def committed(self) -> int:
        """Return the number of the next item as of the last commit: where the input is to be read on."""
        return int(self._store.facts["offset"])

    @property
    def fingerprint(self) -> str:
        """Return the name of the weights that the states belong to."""
        return str(self._store.facts["fingerprint"])

    def fact(self, name: str) -> str | None:
        """Return what `commit` kept about the whole pool, None: nothing of this name."""
        return self._store.facts.get(name)

    @property
    def state_bytes(self) -> int:
        """Return the size of a stream's state."""
        return self._layout.nbytes

    @property
    def path(self) -> Path:
        """Return the file."""
        return self._store.path

    def get(self, key: str) -> Any:
        """Return the state of a stream, as a session's `state`; None: there is no such stream."""
        with self._guard:
            (key,) = read_keys([key])
            block, _, num_new = self._gather([key], [self._rows.get(key, -1)])
            return None if num_new else self._layout.unpack(block)

    def keep_notes(self, notes: Mapping[str, bytes]) -> None:
        """Keep something of your own with states, such as the last answer, until the next note of a stream.

        It is committed with the states. Streams that there are not have no notes.
        """
        value: object = notes  # whatever the type says
        if not isinstance(value, Mapping) or not all(isinstance(note, bytes) for note in value.values()):
            raise DataError(f"notes are bytes by key, {{key: b'...'}}; got {short(notes)}.")
        with self._guard:
            for key, note in notes.items():
                row = self._rows.get(key, -1)
                if row >= 0:
                    self._notes[row] = note
                    self._changed[row] = True
                elif key in self:
                    (stored,) = self._load([key]).values()
                    with self._undone():
                        content = self._seal(np.frombuffer(stored.content, np.uint64))
                        self._store.write([stored._replace(note=note, content=content)])

    def note(self, key: str) -> tuple[int, bytes | None]:
        """Return the last `seq` of a stream (-1: none) and what was kept with it."""
        with self._guard:
            (key,) = read_keys([key])
            row = self._rows.get(key, -1)
            if row >= 0:
                return int(self._seq[row]), self._notes[row]
            stored = self._load([key]).get(key)
            return (-1, None) if stored is None else (stored.seq, stored.note)

    def __contains__(self, key: object) -> bool:
        with self._guard:
            return isinstance(key, str) and (key in self._rows or (is_text(key) and self._is_stored(key)))

    def __len__(self) -> int:
        return self._count

    def drop(self, keys: Iterable[str]) -> int:
        """Forget streams, in the file from the next commit on, and return how many there were."""
        with self._guard:
            dropped = 0
            for key in dict.fromkeys(read_keys(keys)):
                if key in self._rows:
                    self._release([self._rows[key]])
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
        age = read_time(older_than, "older_than")
        if age < 0.0:
            raise DataError(
                f"older_than must be 0 or more; got {older_than!r}, which would drop every stream."
            )
        with self._guard:
            before = (time.time() if now is None else read_time(now, "now")) - age
            stored = self._store.keys_before(before)
            old = {key for key in stored if key not in self._rows and key not in self._dropped}
            old.update(key for key, row in self._rows.items() if self._seen[row] < before)
            return self.drop(old)

    def close(self) -> None:
        """Give the file back; what was pushed since the last commit is forgotten."""
        with self._lock:
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

    def _gather(self, keys: list[str], rows: list[int]) -> tuple[Words, dict[str, Row], int]:
        """Return a copy of the states of streams, what is stored of them, and how many are new: empty."""
        places = np.array(rows)
        block = self._slab.take(places, axis=0, mode="clip")
        away = np.flatnonzero(places < 0).tolist()
        if not away:
            return block, {}, 0
        stored = self._load([keys[place] for place in away])
        for place in away:
            row = stored.get(keys[place])
            block[place] = self._empty if row is None else np.frombuffer(row.content, np.uint64)
        return block, stored, len(away) - len(stored)

    def _load(self, keys: list[str]) -> dict[str, Row]:
        """Return those of the states that are stored."""
        stored = {}
        for row in self._store.load([key for key in keys if key not in self._dropped]):
            try:
                words, _ = words_from_bytes(row.content, self._layout, fingerprint=self._fingerprint)
            except StateError as error:
                raise StateError(
                    f"{self.path}: the state of stream {row.key!r} is damaged: {error} Restore the file from "
                    f"a backup, or drop the stream: pool.drop([{row.key!r}])."
                ) from error
            stored[row.key] = row._replace(content=memoryview(words[0]))
        return stored

    def _is_stored(self, key: str) -> bool:
        return key not in self._dropped and self._store.has(key)

    def _keep(
        self,
        keys: list[str],
        rows: list[int],
        block: Words,
        loaded: Mapping[str, Row],
        at: float,
        last: Mapping[str, int],
    ) -> None:
        """Keep new states: in memory, where the least recently used streams make room."""
        self._pushes += 1
        here = np.array([row for row in rows if row >= 0], np.int64)
        self._used[here] = self._pushes
        surplus = max(len(keys) - self.capacity, 0)  # go to the file at once
        lacking = len(keys) - surplus - len(here) - len(self._free) - (self.capacity - self._num_used)
        leaving = self._least_used(lacking) if lacking > 0 else here[:0]
        notes = {key: row.note for key, row in loaded.items()}
        seqs = {**{key: row.seq for key, row in loaded.items()}, **last}
        if surplus:  # then nothing that was in memory before stays
            leaving = np.flatnonzero(self._used)
            for key, row in zip(keys, rows, strict=True):
                if row >= 0:
                    notes[key], seqs[key] = self._notes[row], last.get(key, int(self._seq[row]))
        spilt = leaving[self._changed[leaving]]
        if surplus or len(spilt):
            with self._undone():
                self._store.write(self._stored(spilt), dropped=self._dropped)
                self._store.write(
                    Row(key, at, seqs.get(key, -1), notes.get(key), self._seal(content))
                    for key, content in zip(keys[:surplus], block[:surplus], strict=True)
                )
            self._dropped.clear()
        self._release(leaving.tolist())
        keys, block = keys[surplus:], block[surplus:]
        rows = [-1] * len(keys) if surplus else rows
        for place, row in enumerate(rows):
            if row < 0:
                key = keys[place]
                rows[place] = row = self._take_row()
                self._rows[key], self._keys[row] = row, key
                self._seq[row], self._notes[row] = seqs.get(key, -1), notes.get(key)
        self._slab[rows] = block
        self._seen[rows] = at
        self._used[rows] = self._pushes
        self._changed[rows] = True
        if last:
            self._seq[rows] = [last.get(key, -1) for key in keys]

    def _least_used(self, count: int) -> NDArray[np.int64]:
        """Return the rows that make room: at least so many, none of them of this push."""
        held = np.flatnonzero((self._used > 0) & (self._used < self._pushes))
        count = min(len(held), max(count, self.capacity // LEAVING_SHARE))
        return held[np.argpartition(self._used[held], count - 1)[:count]]

    def _take_row(self) -> int:
        if self._free:
            return self._free.pop()
        self._num_used += 1
        return self._num_used - 1

    def _release(self, rows: list[int]) -> None:
        """Give rows back."""
        for row in rows:
            del self._rows[self._keys[row]]
        self._keys[rows] = None
        self._changed[rows], self._used[rows] = False, 0
        self._free += rows

    def _stored(self, rows: NDArray[np.int64]) -> Iterator[Row]:
        """Return states in memory as the file keeps them."""
        parts = (part[rows].tolist() for part in (self._keys, self._seen, self._seq, self._notes))
        for row, key, seen, seq, note in zip(rows.tolist(), *parts, strict=True):
            yield Row(key, seen, seq, note, self._seal(self._slab[row]))

    def _seal(self, words: Words) -> bytes:
        """Return the block of a stream; a pool does not count its items."""
        return seal(words.tobytes(), fingerprint=self._fingerprint, layout=self._layout.checksum)

    @contextlib.contextmanager
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


def open_session(model: Streamable | Steppable[Any]) -> Session[Any]:
    """Open a session of one stream: of anything with `stream()`, or of any module that can be stepped."""
    if hasattr(model, "stream"):
        return model.stream(1)
    folded = model.fold() if hasattr(model, "fold") else model
    return Session(folded, batch_size=1, engine="auto")
