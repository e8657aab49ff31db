"""Collect the records of runs from folders; what cannot be used is named and left out.

Reads `record.json` files and nothing else.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aaren.engine.record import FORMAT, KIND, RunRecord, parse_json, read_record
from aaren.engine.run import RECORD
from aaren.errors import DataError

_ACCOUNTS = ("training", "evaluation", "saving")
_INSIDE_RUNS = ("checkpoints", "model")  # folders of a run that hold no run


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundRecord:
    """A record of a finished run, and where it lies."""

    path: Path
    record: RunRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A record that is left out, and why, in one line."""

    path: Path
    reason: str
    is_failure: bool = False  # the record is sound: its run failed


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """What was found in some folders, in the order of their paths."""

    records: list[FoundRecord]
    problems: list[Problem]


def collect(*folders: Path) -> Collected:
    """Read every run record below some folders: finished ones, and what is wrong with the others.

    A record that was cut off, that something else wrote, that a newer version wrote, or whose run failed, is
    a problem. Records of benchmarks are neither. A run that is still running has no record yet.
    """
    records: list[FoundRecord] = []
    problems: list[Problem] = []
    seen: set[Path] = set()  # one folder may be named twice, or lie in another
    for folder in folders:
        if not folder.is_dir():
            raise DataError(
                f"no folder {folder}: name one that holds runs, such as the one that "
                "`aaren reproduce` or `aaren train` wrote to (runs)."
            )
        for path in sorted(_record_files(folder)):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            try:
                record = read_record(path)
            except DataError as error:
                problems.append(Problem(path=path, reason=_reason(path, error)))
            except OSError as error:
                problems.append(Problem(path=path, reason=f"cannot be read: {error.strerror or error}"))
            else:
                if record.status == "finished":
                    records.append(FoundRecord(path=path, record=record))
                else:
                    reason = f"the run failed: {first_line(record.error or '')}"
                    problems.append(Problem(path=path, reason=reason, is_failure=True))
    return Collected(records=records, problems=problems)


def wall_seconds(record: RunRecord) -> float:
    """Return the wall time that a run took, without its test."""
    return sum(record.seconds.get(account, 0.0) for account in _ACCOUNTS)


def core_seconds(record: RunRecord) -> float:
    """Return the CPU seconds of a run, without its test; of records that have none the wall time."""
    return record.seconds.get("cpu") or wall_seconds(record)


def seconds_of(record: RunRecord) -> float:
    """Return the time that a run takes on a quiet machine, as far as its record tells."""
    return wall_seconds(record) if record.threads > 1 else core_seconds(record)


def data_digest(checksums: Mapping[str, str]) -> str:
    """Return eight digits that tell sets of files apart."""
    return hashlib.sha256(json.dumps(checksums, sort_keys=True).encode()).hexdigest()[:8]


def first_line(text: str) -> str:
    """Return the first line of an error's text.

    >>> first_line("DataError: no such column"), first_line("")
    ('DataError: no such column', 'it left no error')
    """
    return text.splitlines()[0] if text.strip() else "it left no error"


def _record_files(folder: Path) -> Iterator[Path]:
    for place, inside, files in os.walk(folder):
        inside[:] = [name for name in inside if name not in _INSIDE_RUNS and not name.startswith(".")]
        if RECORD in files:
            yield Path(place) / RECORD


def _reason(path: Path, error: DataError) -> str:
    """Shorten what `read_record` says, whose path is shown beside it, and tell newer from foreign."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "it is not JSON: cut off, or something else wrote it"
    if isinstance(content, dict) and content.get("kind") == KIND:
        version = content.get("format")
        if isinstance(version, int) and version > FORMAT:
            return (
                f"a newer version of aaren wrote it (format {version}; this one reads {FORMAT}): "
                "read it with that version"
            )
        return str(error).removeprefix(str(path)).strip()
    return "it is no record of a run: something else wrote it"
