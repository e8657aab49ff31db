"""BenchRecord: what was measured, with which versions, on which machine, as JSON.

Tables, figures and pages are drawn from records only. A record names no host, user or path.

A progress bar on stderr for long measurements; results on stdout stay clean.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from aaren.engine import record as train_machine
from aaren.engine.record import parse_json
from aaren.errors import ConfigError, DataError
from aaren.files.atomic import write_text

Scalar: TypeAlias = str | int | float | bool | None
Setting: TypeAlias = Scalar | list[int] | list[str]
Row: TypeAlias = dict[str, Scalar]  # one measurement: flat, its units in its names

FORMAT = 1
_FIELDS = {"format", "kind", "command", "date", "versions", "machine", "settings", "measurements"}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def machine() -> dict[str, Scalar]:
    """Describe the processor and memory, and with how many threads torch computes; no host or user names."""
    return {**train_machine.machine(), "threads": torch.get_num_threads()}


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchRecord:
    """One run of one benchmark."""

    kind: str  # the verb: scan, token, ...
    command: str  # what to type to run it again
    settings: dict[str, Setting]
    measurements: list[Row]
    date: str = field(default_factory=_now)
    versions: dict[str, str] = field(default_factory=train_machine.versions)
    machine: dict[str, Scalar] = field(default_factory=machine)

    def write(self, path: Path) -> None:
        """Write as JSON, all at once, so that a killed run leaves no half file."""
        write_text(path, json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")

    def find(self, **wanted: Scalar) -> Row | None:
        """Return the first measurement with these values, or None."""
        for row in self.measurements:
            if all(row.get(name) == value for name, value in wanted.items()):
                return row
        return None


def number(row: Row, name: str) -> float:
    """Return a numeric field of a measurement; a gap or a text there is a fault of the record.

    >>> number({"median_seconds": 0.5}, "median_seconds")
    0.5
    """
    value = row.get(name)
    if not isinstance(value, int | float):
        raise DataError(f"a measurement needs a number as {name!r}; got {value!r}. Measure again.")
    return float(value)


def read_record(path: Path, *, kind: str | None = None) -> BenchRecord:
    """Read a record back, checking that it is one, and of the kind that is wanted."""
    if not path.is_file():
        raise DataError(
            f"no benchmark record at {path}. Make one: aaren bench {kind or 'scan'} --record {path}"
        )
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not JSON ({error}). Measure again with --record {path}.") from error
    if not isinstance(content, dict) or not content.keys() >= _FIELDS:
        missing = sorted(_FIELDS - (content.keys() if isinstance(content, dict) else set()))
        raise DataError(
            f"{path} is no benchmark record: it lacks {', '.join(missing)}. "
            "Records are written by aaren bench ... --record PATH."
        )
    if content["format"] != FORMAT:
        raise DataError(
            f"{path} has format {content['format']!r}; this version of aaren reads format {FORMAT}. "
            "Read it with the version that wrote it, or measure again."
        )
    if kind is not None and content["kind"] != kind:
        raise DataError(f"{path} holds a record of 'bench {content['kind']}', not of 'bench {kind}'.")
    return BenchRecord(**{name: content[name] for name in _FIELDS - {"format"}})


def check_writable(paths: Mapping[str, Path | None]) -> None:
    """Fail before minutes of measuring, not after, when a result could not be written.

    Args:
        paths: option name to file; None is an option that was not given.
    """
    for option, path in paths.items():
        if path is None:
            continue
        if path.is_dir():
            raise ConfigError(f"{option} needs a file name; {path} is a folder.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{option} {path}: its folder cannot be made ({error.strerror}).") from error
        if not os.access(path.parent, os.W_OK):
            raise ConfigError(f"{option} {path}: its folder is not writable. Choose another place.")


def counted(number_of: Scalar, thing: str) -> str:
    """Write a number of things.

    >>> counted(1, "thread"), counted(2, "thread")
    ('1 thread', '2 threads')
    """
    return f"{number_of} {thing}" + "s" * (number_of != 1)


def describe(record: BenchRecord) -> str:
    """Say in one line where the numbers come from."""
    about = record.machine
    return (
        f"{about['cpu']}, {counted(about['cores'], 'core')}, {counted(about['threads'], 'thread')}; "
        + ", ".join(f"{name} {record.versions[name]}" for name in ("python", "torch", "numba", "aaren"))
        + f"; {record.date[:10]}; `{record.command}`"
    )


OnStep: TypeAlias = Callable[[int, int, str], None]  # steps done, steps in all, what comes next


def silent(done: int, total: int, what: str) -> None:
    """Report nothing: for tests and library use."""


@contextmanager
def progress_bar(title: str) -> Iterator[OnStep]:
    """Show a bar while the block runs; it hands out the function that moves it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, what="")

        def on_step(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, what=what)

        yield on_step
