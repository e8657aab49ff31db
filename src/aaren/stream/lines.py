"""`aaren stream`: JSON lines in, JSON lines out, many keyed streams, every line taken in exactly once.

Lines are numbered from 0. A batch is read, answered, written to the output and only then committed, with the
number of the next line. Started again with the same input, a process resumes there; what a killed one
wrote of a batch that it did not commit is cut off the output first. Batches of a file begin at multiples of
their size, so that the arithmetic, too, is that of an undisturbed run.
"""

import json
import mmap
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import IO, Any

from aaren.errors import AarenError, ConfigError, DataError, unknown_name
from aaren.files.strict_json import strict_json
from aaren.stream.pool import StreamPool
from aaren.stream.rows import RowPath, field

EMITS = ("always", "on-alarm", "on-decision")
LARGEST_BATCH = 65_536
CHUNK = 1 << 16
PAUSE_SECONDS = 0.1  # between two reads of a file that is followed


@dataclass(frozen=True, kw_only=True, slots=True)
class LineOptions:
    """How lines are read and answered.

    Args:
        key: the field with the name of the stream.
        time: the field with the time of a row; "": the usual one of the setting.
        emit: which answers are written: "always" all; "on-decision" those whose class or kind is at least
            `threshold` probable; "on-alarm" of these the ones that `alarms` names.
        alarms: classes or kinds.
        threshold: a probability.
        batch: lines that are taken in and committed together.
        capacity: streams in memory.
    """

    key: str = "id"
    time: str = ""
    emit: str = "always"
    alarms: tuple[str, ...] = ()
    threshold: float = 0.9
    batch: int = 512
    capacity: int = 65_536

    def __post_init__(self) -> None:
        if self.emit not in EMITS:
            raise unknown_name("--emit", self.emit, EMITS)
        if self.key == "offset":
            raise ConfigError("--key offset: answers have a field of this name. Rename the key.")
        if not 1 <= self.batch <= LARGEST_BATCH:
            raise ConfigError(f"batch must be from 1 to {LARGEST_BATCH}; got {self.batch}.")
        if not 0.0 <= self.threshold <= 1.0:
            raise ConfigError(f"threshold must be a probability, from 0 to 1; got {self.threshold}.")
        if (self.emit == "on-alarm") != bool(self.alarms):
            raise ConfigError("--emit on-alarm and --alarm NAME go together: say which answers are alarms.")


class Lines:
    """The lines of an input, in batches.

    Args:
        source: a file; None: stdin.
        is_followed: wait for more at the end of the file.
    """

    def __init__(self, source: Path | None, *, is_followed: bool = False) -> None:
        if source is None:
            self._file: IO[bytes] = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115
        else:
            try:
                self._file = source.open("rb", buffering=0)
            except OSError as error:
                raise DataError(f"cannot read {source}: {error.strerror}.") from error
        self._is_file = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        if is_followed and not self._is_file:
            self.close()
            raise ConfigError("--follow needs a file: a pipe is read until it ends anyway.")
        self._source, self._is_followed = source, is_followed
        self._lines: list[bytes] = []  # read, in order; not yet handed out
        self._rest = bytearray()  # of a line whose end has not come
        self._read_bytes = 0

    @property
    def lag_bytes(self) -> int | None:
        """Return how much of a file is not yet handed out; None: unknown."""
        if not self._is_file:
            return None
        held = len(self._rest) + sum(map(len, self._lines))
        return max(os.fstat(self._file.fileno()).st_size - self._read_bytes, 0) + held

    def batches(self, first: int, size: int) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the number of the first line and the lines, from line `first` on.

        A batch ends at a multiple of its size, at the end, or when nothing more is there yet.
        """
        number = 0
        has_more = True
        while has_more or self._lines:
            is_waiting = False
            while has_more and len(self._lines) < size - number % size:
                if self._lines and not self._is_ready():
                    is_waiting = True
                    break
                has_more = self._fill()
                if not has_more and self._is_followed:
                    has_more = True
                    found = number + len(self._lines) + bool(self._rest)
                    self._require_only_grown(found)
                    if found < first:
                        raise _other_input(found, first)
                    if self._lines:
                        is_waiting = True
                        break
                    time.sleep(PAUSE_SECONDS)
            if not (has_more or is_waiting) and self._rest:
                self._lines.append(bytes(self._rest))
                self._rest.clear()
            taken, self._lines = self._lines[: size - number % size], self._lines[size - number % size :]
            begin = number
            number += len(taken)
            if number > max(first, begin):
                skipped = max(first - begin, 0)
                yield begin + skipped, taken[skipped:]
        if number < first:
            raise _other_input(number, first)

    def _require_only_grown(self, found: int) -> None:
        """Raise if a file that is followed is shorter than what was read of it, or another one."""
        assert self._source is not None
        held = os.fstat(self._file.fileno())
        try:
            is_same = os.path.samestat(held, self._source.stat())
        except OSError:
            is_same = False
        if held.st_size < self._read_bytes or not is_same:
            raise DataError(
                f"{self._source} was cut short, removed or replaced after {found} lines: lines are counted "
                f"from the beginning of a file, which may only grow. What the old one still has is taken in "
                f"if you name it, with the same --state."
            )

    def _is_ready(self) -> bool:
        """Tell whether a read would return at once; files always do."""
        if self._is_file or sys.platform == "win32":
            return True
        return bool(select.select([self._file], [], [], 0.0)[0])

    def _fill(self) -> bool:
        chunk = self._file.read(CHUNK)
        if not chunk:
            return False
        self._read_bytes += len(chunk)
        end, *others = chunk.split(b"\n")
        self._rest += end
        if others:
            self._lines += [bytes(self._rest), *others[:-1]]
            self._rest = bytearray(others[-1])
        return True

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


def _other_input(found: int, taken: int) -> DataError:
    return DataError(
        f"the input has {found} lines, but {taken} were taken in before: start again with the same input, "
        f"from its beginning, or with a new --state."
    )


def stream_lines(
    rows: RowPath,
    state: Path,
    source: Path | None,
    *,
    out: Path | None = None,
    is_followed: bool = False,
    options: LineOptions | None = None,
    on_batch: Callable[..., None] | None = None,
) -> int:
    """Take in an input from where the last commit ended, write answers, and return how many lines it took.

    Args:
        rows: the way of the rows.
        state: the file of the pool.
        source: JSON lines; None: stdin.
        out: where answers go, each exactly once; None: stdout, where after a kill those of a batch may come
            twice, with the same offset.
        is_followed: wait for more at the end of the file.
        options: how lines are read and answered.
        on_batch: told of every batch that was committed: its `items`, `outputs` and `seconds`, and how many
            `streams` and `lag_bytes` of the input there are.
    """
    options = options or LineOptions()
    unknown = [name for name in options.alarms if name not in rows.names]
    if unknown:
        raise unknown_name("--alarm", unknown[0], rows.names)
    if options.emit != "always" and not rows.names:
        rows.choice({})
    if out is not None and (out == state or (source is not None and out.exists() and out.samefile(source))):
        raise ConfigError(f"--out {out} is the input or the state: it would be lost. Name another file.")
    pool = StreamPool(rows.model, state, capacity=options.capacity)
    lines: Lines | None = None
    target: IO[bytes] | None = None
    try:
        lines = Lines(source, is_followed=is_followed)
        if out is not None:
            target = _reopen(out, pool, options.batch)
        begun = pool.committed
        for offset, batch in lines.batches(begun, options.batch):
            start = time.perf_counter()
            answers = _answer(rows, pool, offset, batch, options)
            _write(answers, target)
            pool.commit(offset + len(batch))
            if on_batch is not None:
                seconds = time.perf_counter() - start
                sizes = {"items": len(batch), "outputs": len(answers), "streams": len(pool)}
                on_batch(**sizes, seconds=seconds, lag_bytes=lines.lag_bytes)
        return pool.committed - begun
    finally:
        pool.close()
        for file in (lines, target):
            if file is not None:
                file.close()


def read_row(rows: RowPath, row: object, name: str, clock: str) -> tuple[str, Any, dict[str, Any]]:
    """Return the key, the item and what else `push` takes, of a row that somebody sent.

    Args:
        rows: the way of the rows.
        row: as JSON gave it.
        name: of the field with the key.
        clock: of the field with the time.
    """
    if not isinstance(row, dict):
        raise DataError(f"expected an object with fields; got {short(row)}.")
    key = field(row, name)
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise DataError(f"the key {name!r} must be text or a whole number; got {short(key)}.")
    return (str(key), *rows.read(row, clock))


def _answer(
    rows: RowPath, pool: StreamPool, offset: int, batch: Sequence[bytes], options: LineOptions
) -> list[str]:
    """Return the answers of a batch that are to be written."""
    clock = options.time or rows.time
    keys, items, parsed = [], [], []
    extras: dict[str, Any] = {}
    for number, line in enumerate(batch, start=offset):
        try:
            row = json.loads(line)
            key, item, others = read_row(rows, row, options.key, clock)
        except AarenError as error:
            raise DataError(f"line {number}: {error} Nothing of its batch was taken in.") from error
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"line {number}: not JSON ({error}); got {line[:80]!r}. Nothing of its batch was taken in."
            ) from error
        keys.append(key)
        items.append(item)
        parsed.append(row)
        for name, value in others.items():
            extras.setdefault(name, []).append(value)
    try:
        found = pool.push(keys, items, offset=offset, **extras)
    except AarenError as error:
        if error.item is None:
            raise type(error)(f"lines from {offset} on: {error}") from error
        place = f"line {offset + error.item}, stream {short(keys[error.item])}"
        words = f"{place}: {error.__cause__} Nothing of its batch was taken in."
        raise type(error)(words) from error
    answers = []
    named = rows.answers(found, parsed, clock)
    if any(options.key in answer for answer in named[:1]):
        raise ConfigError(f"--key {options.key}: answers have a field of this name. Rename the key.")
    for number, (key, answer) in enumerate(zip(keys, named, strict=True), start=offset):
        if options.emit != "always":
            name, probability = rows.choice(answer)
            is_wanted = options.emit == "on-decision" or name in options.alarms
            if not is_wanted or probability < options.threshold:
                continue
        answers.append(strict_json({"offset": number, options.key: key, **answer}))
    return answers


def _write(answers: Sequence[str], target: IO[bytes] | None) -> None:
    """Write answers; those of a file are on the disk before their batch is committed."""
    text = "".join(f"{answer}\n" for answer in answers)
    if target is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    elif text:
        target.write(text.encode())
        target.flush()
        os.fsync(target.fileno())


def _reopen(out: Path, pool: StreamPool, batch: int) -> IO[bytes]:
    """Open an output at its end, after cutting off what was written of a batch that was not committed.

    Only answers that were written beside this state are cut off: it remembers the name of its output.
    """
    target = out.open("a+b")
    try:
        size = target.seek(0, os.SEEK_END)
        if size:
            with mmap.mmap(target.fileno(), 0, access=mmap.ACCESS_READ) as content:
                end = _end_of_committed(content, pool.committed, batch, out)
                is_whole = end == content.rfind(b"\n") + 1
            if not is_whole and pool.fact("out") != out.name:
                raise DataError(
                    f"{out} holds answers to lines from {pool.committed} on, which --state has not taken in: "
                    f"they were written beside another state. Name that state, or another file."
                )
            target.truncate(end)
        if pool.fact("out") != out.name:
            pool.commit(out=out.name)
    except BaseException:
        target.close()
        raise
    return target


def _end_of_committed(content: mmap.mmap, committed: int, batch: int, out: Path) -> int:
    """Return where the first answer that was not committed begins."""
    end = content.rfind(b"\n") + 1  # behind it: half a line
    while end:
        begin = content.rfind(b"\n", 0, end - 1) + 1
        try:
            offset = int(json.loads(content[begin:end])["offset"])
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{out} is no output of `aaren stream`: name another file.") from error
        if offset < committed:
            break
        if offset >= committed + batch:
            raise DataError(
                f"{out} holds answers up to line {offset}, but --state ends before line {committed}, more "
                f"than a batch of {batch} earlier: they do not belong together. Name the state that was used "
                f"with it, or another file; if a larger --batch was killed, that one."
            )
        end = begin
    return end
