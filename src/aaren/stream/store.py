"""StateStore: the states of many streams in one SQLite file, with how far the input has been taken in.

States and offset change together, in one transaction: a process that is killed leaves the last commit, whole.
Every state has a checksum, which SQLite's own pages lack, and the number of the commit that wrote it: one
that is newer than the store shows that the write-ahead log beside the file was taken away.
"""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from aaren.errors import StateError, UnwritableError
from aaren.files.lock import locked_file

FORMAT_VERSION = 2
APPLICATION_ID = 0x41415245  # "AARE", in the head of the file
KEYS_PER_QUERY = 900  # SQLite of before 2020 takes 999 variables
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# Keys come in any order, so a commit writes about a page for each stream that changed: small ones. The log is
# folded in at about 64 MB, so that a commit seldom waits for it.
PAGE_BYTES = 4096
LOG_PAGES = 16384
# What is kept of the file: the tree of 300,000 keys or so, and the pages of a commit. Without it every stream
# that is written costs a read, and a commit of 512 is written twice.
CACHE_BYTES = 8 << 20

SCHEMA = """
create table state(
    id integer primary key, key text unique, saved integer, seen real, seq integer, note blob,
    checksum integer, content blob
);
create table meta(name text primary key, value) without rowid;
"""
# Many streams in one statement: SQLite works through it without asking for Python's lock in between, which
# a server's other thread would take each time.
UPSERT = """
insert into state(key, saved, seen, seq, note, checksum, content) values {}
on conflict(key) do update set saved=excluded.saved, seen=excluded.seen, seq=excluded.seq, note=excluded.note,
checksum=excluded.checksum, content=excluded.content
"""
UPSERTS = {count: UPSERT.format(",".join(["(?,?,?,?,?,?,?)"] * count)) for count in (128, 16, 1)}


class Row(NamedTuple):
    """A stream as it is stored."""

    key: str
    seen: float  # when its last item came
    seq: int  # the number of that item among those of the stream; -1: it had none
    note: bytes | None  # what the pool's user keeps with the state
    content: bytes | memoryview  # of its state


class StateStore:
    """The file, held by one process: another one is refused.

    Args:
        path: of the file, which is made if need be. Beside it lie a lock, and SQLite's `-wal` and `-shm`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = ExitStack()
        try:
            self._held.enter_context(locked_file(path.resolve(), wait_seconds=0.0))  # one by every name
        except OSError as error:
            raise UnwritableError(f"cannot write to {path}: {error}. Choose another file.") from error
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        with self._explained():
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self._held.callback(self._db.close)
            found = self._db.execute("pragma application_id").fetchone()[0]
            is_new = not self._db.execute("select count(*) from sqlite_master").fetchone()[0]
            if not is_new and found != APPLICATION_ID:
                raise StateError(
                    f"{self.path} is a database of another program: give a new file, or one a pool made."
                )
            self._db.execute(f"pragma page_size={PAGE_BYTES}")  # of a new file
            self._db.execute(f"pragma cache_size=-{CACHE_BYTES >> 10}")
            self._db.execute("pragma journal_mode=wal")
            self._db.execute(f"pragma wal_autocheckpoint={LOG_PAGES}")
            self._db.execute("pragma synchronous=full")  # a commit survives a power cut
            if is_new:
                self._db.executescript(
                    f"begin;{SCHEMA}insert into meta values('format', {FORMAT_VERSION}), ('saved', 0), "
                    f"('offset', 0);pragma application_id={APPLICATION_ID};commit;"
                )
            version = self.read("format")
            if version != FORMAT_VERSION:
                raise StateError(
                    f"{self.path} has format version {version}; this aaren reads {FORMAT_VERSION}. Read it "
                    f"with the aaren that wrote it, or begin with a new file."
                )
            self.saved = int(str(self.read("saved")))  # commits so far

    def read(self, name: str) -> object:
        """Return a fact about the whole store, None: it has none of this name."""
        with self._explained():
            found = self._db.execute("select value from meta where name=?", (name,)).fetchone()
        return None if found is None else found[0]

    def count(self) -> int:
        """Return how many streams are stored."""
        with self._explained():
            return int(self._db.execute("select count(*) from state").fetchone()[0])

    def has(self, key: str) -> bool:
        """Tell whether a stream is stored."""
        with self._explained():
            return self._db.execute("select 1 from state where key=?", (key,)).fetchone() is not None

    def load(self, keys: Sequence[str]) -> Iterator[Row]:
        """Return those of the streams that are stored, in any order, after checking each."""
        for first in range(0, len(keys), KEYS_PER_QUERY):
            some = keys[first : first + KEYS_PER_QUERY]
            marks = ",".join("?" * len(some))
            with self._explained():
                found = self._db.execute(
                    f"select key, saved, seen, seq, note, checksum, content from state "
                    f"where key in ({marks})",
                    some,
                ).fetchall()
            for key, saved, seen, seq, note, checksum, content in found:
                if saved > self.saved + self.has_changes:
                    raise StateError(
                        f"{self.path}: stream {key!r} was saved by commit {saved}, but the store ends with "
                        f"{self.saved}: its write-ahead log ({self.path.name}-wal) was removed. Restore both "
                        f"files from one backup, or drop the stream."
                    )
                if _checksum(key, seq, note, content) != checksum:
                    raise StateError(
                        f"{self.path}: the state of stream {key!r} is damaged: its checksum does not match. "
                        f"Restore the file from a backup, or drop the stream: pool.drop([{key!r}])."
                    )
                yield Row(key, seen, seq, note, content)

    def keys_before(self, time: float) -> list[str]:
        """Return the streams whose last item came before a time, as far as is stored."""
        with self._explained():
            return [key for (key,) in self._db.execute("select key from state where seen < ?", (time,))]

    def write(self, rows: Iterable[Row] = (), *, dropped: Iterable[str] = (), **facts: object) -> None:
        """Change streams and facts; all changes since the last commit are kept together or not at all."""
        with self._explained():
            if not self._db.in_transaction:
                self._db.execute("begin immediate")
            self._db.executemany("delete from state where key=?", ((key,) for key in dropped))
            self._upsert(sorted(rows, key=_by_key))  # as in the tree of the keys
            self._db.executemany("insert or replace into meta values(?,?)", facts.items())

    def _upsert(self, rows: list[Row]) -> None:
        number, first = self.saved + 1, 0
        for count, words in UPSERTS.items():
            while len(rows) - first >= count:
                given: list[object] = []
                for key, seen, seq, note, content in rows[first : first + count]:
                    given += (key, number, seen, seq, note, _checksum(key, seq, note, content), content)
                self._db.execute(words, given)
                first += count

    def forget_all(self) -> None:
        """Drop all streams, by the next commit."""
        self.write()
        with self._explained():
            self._db.execute("delete from state")

    @property
    def has_changes(self) -> bool:
        """Tell whether something was written that is not committed."""
        return self._db.in_transaction

    def commit(self) -> None:
        """Keep what was written, on the disk."""
        self.write(saved=self.saved + 1)
        with self._explained():
            self._db.execute("commit")
        self.saved += 1

    def rollback(self) -> None:
        """Go back to the last commit."""
        if self._db.in_transaction:
            self._db.execute("rollback")

    def close(self) -> None:
        """Give the file back; what was not committed is gone."""
        self._held.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say in our words what SQLite found."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise StateError(f"the pool of {self.path} is closed: open it again.") from error
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED or not isinstance(
                error, sqlite3.OperationalError
            ):
                raise StateError(
                    f"{self.path} is damaged, or no file of states ({error}). Restore it from a backup, or "
                    f"begin with a new file."
                ) from error
            raise UnwritableError(
                f"cannot read or write {self.path}: {error}. Free space or give permission; what was "
                f"committed is safe."
            ) from error


def _by_key(row: Row) -> str:
    return row.key


def _checksum(key: str, seq: int, note: bytes | None, content: bytes | memoryview) -> int:
    head = zlib.crc32(b"%b %d" % (key.encode(), seq))
    return zlib.crc32(content, head if note is None else zlib.crc32(note, head))
