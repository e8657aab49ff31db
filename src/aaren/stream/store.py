"""StateStore: the states of many streams in one SQLite file, with how far the input has been taken in.

States and offset change together, in one transaction: a process that is killed leaves the last commit, whole.
SQLite's pages have no checksums, so what matters has its own: every stream, and the one row of facts about
the whole file. A key stands in two indexes: one that only the second has was lost by damage to the first, and
is no new stream. A stream's row has the number of the commit that wrote it: one that is newer than the file
shows that the write-ahead log beside it was taken away.
"""

import json
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from aaren.errors import AarenError, StateError, UnwritableError
from aaren.files.lock import locked_file
from aaren.nn.blocks import HEAD

FORMAT_VERSION = 3
APPLICATION_ID = 0x41415245  # "AARE", in the head of the file
KEYS_PER_QUERY = 900  # SQLite of before 2020 takes 999 variables
DAMAGED = (
    0,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,
)  # 0: Python cannot decode it
# Keys come in any order, so a commit writes about a page for each stream that changed: small ones. The log is
# folded in at about 64 MB, so that a commit seldom waits for it.
PAGE_BYTES = 4096
LOG_PAGES = 16384
# What is kept of the file: the tree of 300,000 keys or so, and the pages of a commit. Without it every stream
# that is written costs a read, and a commit of 512 is written twice.
CACHE_BYTES = 8 << 20

SCHEMA = """
create table state(
    id integer primary key, key text not null, saved integer, seen real, seq integer, note blob,
    checksum integer, content blob
);
create unique index state_by_key on state(key);
create index state_by_key_again on state(key);
create table facts(id integer primary key, checksum integer, content text);
"""
INDEXES = ("state_by_key", "state_by_key_again")
# Many streams in one statement: SQLite works through it without asking for Python's lock in between, which
# a server's other thread would take each time.
UPSERT = """
insert into state(key, saved, seen, seq, note, checksum, content) values {}
on conflict(key) do update set saved=excluded.saved, seen=excluded.seen, seq=excluded.seq, note=excluded.note,
checksum=excluded.checksum, content=excluded.content
"""
UPSERTS = {count: UPSERT.format(",".join(["(?,?,?,?,?,?,?)"] * count)) for count in (128, 16, 1)}
NUMBERS = struct.Struct("<dqq")  # seen, seq, saved


class Row(NamedTuple):
    """A stream as it is stored."""

    key: str
    seen: float  # when its last item came
    seq: int  # the number of that item among those of the stream; -1: it had none
    note: bytes | None  # what the pool's user keeps with the state
    content: bytes | memoryview  # the block of its state


class StateStore:
    """The file, held by one process: another one is refused, and so is a copy of this one after a fork.

    Args:
        path: of the file, which is made if need be. Beside it lie a lock, and SQLite's `-wal` and `-shm`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process = os.getpid()
        self._held = ExitStack()
        try:
            self._held.enter_context(locked_file(path.resolve(), wait_seconds=0.0))  # one by every symlink
            if path.is_file() and path.stat().st_nlink > 1:
                raise StateError(
                    f"{path} has a second name (a hard link), by which another process could write to it "
                    f"unseen. Copy it, or remove the other name."
                )
        except AarenError:
            self.close()
            raise
        except (OSError, ValueError) as error:
            raise UnwritableError(f"cannot write to {path}: {error}. Choose another file.") from error
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        with self._translated():
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self._held.callback(self._db.close)
            application = self._db.execute("pragma application_id").fetchone()[0]
            is_new = not self._db.execute("select count(*) from sqlite_master").fetchone()[0]
            if not is_new and application != APPLICATION_ID:
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
                    f"begin;{SCHEMA}pragma user_version={FORMAT_VERSION};"
                    f"pragma application_id={APPLICATION_ID};commit;"
                )
                self._write_facts({"saved": 0, "offset": 0, "count": 0})
            self.facts = self._read_facts()

    def _read_facts(self) -> dict[str, Any]:
        """Return what is known of the whole file, after checking that it is whole and of this format."""
        version = self._db.execute("pragma user_version").fetchone()[0]
        if version != FORMAT_VERSION:
            raise StateError(
                f"{self.path} has format version {version}; this aaren reads {FORMAT_VERSION}. Read it "
                f"with the aaren that wrote it, or begin with a new file."
            )
        if self._db.execute(MASTER).fetchall() != _schema():
            raise self._damaged("its tables are not those of a pool")
        ((checksum, content),) = self._db.execute("select checksum, content from facts").fetchall() or [
            (0, "")
        ]
        if not isinstance(content, str) or zlib.crc32(content.encode()) != checksum:
            raise self._damaged("the checksum of what it says of itself does not match")
        facts: dict[str, Any] = json.loads(content)
        for index in INDEXES:
            (count,) = self._db.execute(f"select count(*) from state indexed by {index}").fetchone()
            if count != facts["count"]:
                raise self._damaged(f"it has {count} streams in an index, and had {facts['count']}")
        return facts

    def _write_facts(self, facts: dict[str, Any]) -> None:
        content = json.dumps(facts)
        row = (zlib.crc32(content.encode()), content)
        self._db.execute("insert or replace into facts values(1, ?, ?)", row)

    def has(self, key: str) -> bool:
        """Tell whether a stream is stored."""
        with self._translated():
            return bool(self._find([key]))

    def load(self, keys: Sequence[str]) -> Iterator[Row]:
        """Return those of the streams that are stored, in any order, after checking each."""
        for first in range(0, len(keys), KEYS_PER_QUERY):
            part = keys[first : first + KEYS_PER_QUERY]
            with self._translated():
                rows = self._find(part, "key, saved, seen, seq, note, checksum, content")
            for row in rows:
                yield self._checked(*row)

    def _find(self, keys: Sequence[str], columns: str = "key") -> list[Any]:
        """Return columns of the streams of these keys that are stored."""

        def select(what: str, index: str, wanted: Sequence[str]) -> list[Any]:
            marks = ",".join("?" * len(wanted))
            query = f"select {what} from state indexed by {index} where key in ({marks})"
            return self._db.execute(query, wanted).fetchall()

        rows = select(columns, INDEXES[0], keys)
        if len(rows) < len(keys):
            present = {row[0] for row in rows}
            lost = select("key", INDEXES[1], [key for key in keys if key not in present])
            if lost:
                raise self._damaged(f"stream {lost[0][0]!r} is in one of its indexes and not in the other")
        return rows

    def _checked(
        self, key: str, saved: Any, seen: Any, seq: Any, note: Any, checksum: Any, content: Any
    ) -> Row:
        """Return a stored row; Any: damage may have changed the types."""
        if isinstance(saved, int) and saved > self.facts["saved"] + self.has_changes:
            raise StateError(
                f"{self.path}: stream {key!r} was saved by commit {saved}, but the store ends with "
                f"{self.facts['saved']}: its write-ahead log ({self.path.name}-wal) was removed. Restore "
                f"both files from one backup, or drop the stream."
            )
        try:
            is_whole = _checksum(key, (seen, seq, saved), note, content) == checksum
        except (AttributeError, TypeError, struct.error):  # of other types
            is_whole = False
        if not is_whole:
            raise StateError(
                f"{self.path}: the state of stream {key!r} is damaged: its checksum does not match. "
                f"Restore the file from a backup, or drop the stream: pool.drop([{key!r}])."
            )
        return Row(key, seen, seq, note, content)

    def keys_before(self, time: float) -> list[str]:
        """Return the streams whose last item came before a time, as far as is stored."""
        with self._translated():
            keys = [key for (key,) in self._db.execute("select key from state where seen < ?", (time,))]
        return [row.key for row in self.load(keys)]

    def write(self, rows: Iterable[Row] = (), *, dropped: Iterable[str] = ()) -> None:
        """Change streams; all changes since the last commit are kept together or not at all."""
        with self._translated():
            if not self._db.in_transaction:
                self._db.execute("begin immediate")
            self._db.executemany("delete from state where key=?", ((key,) for key in dropped))
            self._upsert(sorted(rows, key=_by_key))  # as in the tree of the keys

    def _upsert(self, rows: list[Row]) -> None:
        number, first = self.facts["saved"] + 1, 0
        for count, words in UPSERTS.items():
            while len(rows) - first >= count:
                values: list[object] = []
                for key, seen, seq, note, content in rows[first : first + count]:
                    checksum = _checksum(key, (seen, seq, number), note, content)
                    values += (key, number, seen, seq, note, checksum, content)
                self._db.execute(words, values)
                first += count

    def forget_all(self) -> None:
        """Drop all streams, by the next commit."""
        self.write()
        with self._translated():
            self._db.execute("delete from state")

    @property
    def has_changes(self) -> bool:
        """Tell whether something was written that is not committed."""
        return self._db.in_transaction

    def commit(self, **facts: object) -> None:
        """Keep what was written, and facts about the whole file, on the disk."""
        new = {**self.facts, **facts, "saved": self.facts["saved"] + 1}
        self.write()
        with self._translated():
            self._write_facts(new)
            self._db.execute("commit")
        self.facts = new

    def rollback(self) -> None:
        """Go back to the last commit."""
        if self._db.in_transaction:
            self._db.execute("rollback")

    def require_process(self) -> None:
        """Raise in a process that was forked from the one that opened the file."""
        if os.getpid() != self._process:
            raise StateError(
                f"the pool of {self.path} was opened by process {self._process}, and this is a copy of it "
                f"(a fork): two would write to one file. Open pools after the fork."
            )

    def close(self) -> None:
        """Give the file back; what was not committed is gone."""
        if os.getpid() == self._process:
            self._held.close()

    def _damaged(self, reason: object) -> StateError:
        return StateError(
            f"{self.path} is damaged, or no file of states ({reason}). Restore it from a backup, or begin "
            f"with a new file."
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate SQLite's errors."""
        self.require_process()
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise StateError(f"the pool of {self.path} is closed: open it again.") from error
        except (sqlite3.Error, MemoryError, OverflowError, UnicodeDecodeError) as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in DAMAGED or not isinstance(error, sqlite3.OperationalError):
                raise self._damaged(error) from error
            raise UnwritableError(
                f"cannot read or write {self.path}: {error}. Free space or give permission; what was "
                f"committed is safe."
            ) from error


MASTER = "select type, name, tbl_name, sql from sqlite_master order by name"


@cache
def _schema() -> list[Any]:
    """Return the tables of a new file."""
    db = sqlite3.connect(":memory:")
    try:
        db.executescript(SCHEMA)
        return db.execute(MASTER).fetchall()
    finally:
        db.close()


def _by_key(row: Row) -> str:
    return row.key


def _checksum(
    key: str, numbers: tuple[float, int, int], note: bytes | None, content: bytes | memoryview
) -> int:
    head = zlib.crc32(key.encode(), zlib.crc32(NUMBERS.pack(*numbers)))
    head = head if note is None else zlib.crc32(note, zlib.crc32(b"note", head))
    return zlib.crc32(content[: HEAD.size], head)  # the head of a block has the checksum of the rest
