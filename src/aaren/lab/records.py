"""Results: one line of `runs.jsonl` per finished run, and the records that runs keep in their own folders.

A run owns its folder while it runs. When it has finished, its line is appended to `runs.jsonl` beside that
folder; the line is all that tables and figures need, so folders may be deleted.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from aaren.engine.record import RunRecord, parse_record, read_record
from aaren.engine.run import RECORD
from aaren.errors import DataError
from aaren.fields import flatten
from aaren.files.lock import locked_file
from aaren.files.strict_json import parse_json
from aaren.lab.published import MODELS

RUNS, IDENTITIES = "runs.jsonl", "identity.json"
# Keys that do not tell cells of a table apart: how a run was computed and kept, not what.
NOT_OF_CELL = ("changed", "engine.threads", "engine.checkpoint_seconds", "engine.predictions")
_ACCOUNTS = ("training", "evaluation", "saving")
_INSIDE_RUNS = ("checkpoints", "model")  # folders of a run that hold no run


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A record that is left out, and why, in one line."""

    path: Path
    reason: str
    is_failure: bool = False  # the record is sound: its run failed


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """The records of finished runs, oldest first, and what was left out."""

    records: list[RunRecord]
    problems: list[Problem]
    unlisted: list[Path]  # folders of finished runs without a line in `runs.jsonl`


def collect(*folders: Path) -> Collected:
    """Read every `runs.jsonl` and every run's `record.json` below some folders.

    Of several records of one cell and seed by the same protocol from the same data the latest counts; so
    the parts of a grid that was run in shards are merged by naming all their folders. A record that
    something else or a newer version wrote, or whose run failed, is a problem. A last line that was cut off
    is not: its run is unfinished, as is one that still runs.
    """
    records: dict[str, RunRecord] = {}
    problems: list[Problem] = []
    unlisted: list[Path] = []
    lines: dict[Path, set[str]] = {}  # by folder
    for path in _files(folders):
        try:
            if path.name == RUNS:
                texts = _whole_lines(path)
                lines[path.parent] = set(texts)
            else:
                texts = [path.read_text(encoding="utf-8")]
        except (OSError, ValueError) as error:
            problems.append(Problem(path=path, reason=f"cannot be read: {error}"))
            continue
        for number, text in enumerate(texts, 1):
            place = f"line {number}: " if path.name == RUNS else ""
            try:
                record = parse_record(text)
                _require_text(text)
            except DataError as error:
                problems.append(Problem(path=path, reason=f"{place}{error}"))
                continue
            if record.status != "finished":
                reason = f"{place}the run failed: {first_line(record.error or '')}"
                problems.append(Problem(path=path, reason=reason, is_failure=True))
                continue
            key = _cell(record)
            if key not in records or records[key].date <= record.date:
                records[key] = record
            if path.name == RECORD and to_line(record) not in lines.get(path.parent.parent, ()):
                unlisted.append(path.parent)
    return Collected(
        records=sorted(records.values(), key=lambda record: (record.date, _cell(record))),
        problems=problems,
        unlisted=unlisted,
    )


def to_line(record: RunRecord) -> str:
    """Return a record as its line of `runs.jsonl`: figures are drawn of the first seed of the main models."""
    is_drawn = record.seed == 0 and record.cell.get("model") in MODELS
    return (record if is_drawn else replace(record, figures={})).to_json()


def append(folder: Path) -> None:
    """Append the line of a finished run to the `runs.jsonl` beside its folder, unless it is there.

    A last line that was cut off, because its process was killed, is removed.
    """
    line = f"{to_line(read_record(folder / RECORD))}\n".encode()
    path = folder.parent / RUNS
    with locked_file(path), path.open("a+b") as file:
        file.seek(0)
        content = file.read()
        if line not in content:
            file.truncate(content.rfind(b"\n") + 1)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def read_identities(*folders: Path) -> dict[str, str]:
    """Read what today's code computes for each "SETTING MODEL", as `benchmarks/identity.py` wrote it."""
    identities: dict[str, str] = {}
    for path in (folder / IDENTITIES for folder in folders):
        try:
            content = parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(content, dict):
            identities |= {name: digest for name, digest in content.items() if isinstance(digest, str)}
    return identities


def is_stale(record: RunRecord, identities: Mapping[str, str]) -> bool:
    """Tell whether a run's code computed other numbers than today's, or nobody knows."""
    name = f"{record.setting} {record.cell.get('model')}"
    return record.identity is None or record.identity != identities.get(name)


def wall_seconds(record: RunRecord) -> float:
    """Return the wall time that a run took, without its test."""
    return sum(record.seconds.get(account, 0.0) for account in _ACCOUNTS)


def core_seconds(record: RunRecord) -> float:
    """Return the CPU seconds of a run, without its test; of records that have none the wall time."""
    return record.seconds.get("cpu") or wall_seconds(record)


def data_digest(checksums: Mapping[str, str]) -> str:
    """Return eight digits that tell sets of files apart."""
    return hashlib.sha256(json.dumps(checksums, sort_keys=True).encode()).hexdigest()[:8]


def first_line(text: str) -> str:
    """Return the first line of an error's text.

    >>> first_line("DataError: no such column"), first_line("")
    ('DataError: no such column', 'it left no error')
    """
    return text.splitlines()[0] if text.strip() else "it left no error"


def _files(folders: tuple[Path, ...]) -> Iterator[Path]:
    """Walk through the files with records, each once; a folder's `runs.jsonl` before what lies in it."""
    seen: set[Path] = set()  # one folder may be named twice, or lie in another
    for folder in folders:
        if not folder.is_dir():
            raise DataError(
                f"no folder {folder}: name one that holds runs, such as the one that "
                "`aaren reproduce` or `aaren train` wrote to (runs)."
            )
        for place, inside, files in os.walk(folder):
            inside[:] = sorted(
                name for name in inside if name not in _INSIDE_RUNS and not name.startswith(".")
            )
            for name in (RUNS, RECORD):
                path = Path(place) / name
                if name in files and path.resolve() not in seen:
                    seen.add(path.resolve())
                    yield path


def _require_text(text: str) -> None:
    """Refuse half a character, which JSON can name and no file can hold."""
    if "\\ud" in text.lower():
        try:
            json.dumps(json.loads(text), ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise DataError("it holds half a character.") from error


def _whole_lines(path: Path) -> list[str]:
    """Read the lines of a file; not a last one without its end."""
    return [line.decode(errors="replace") for line in path.read_bytes().split(b"\n")[:-1]]


def _cell(record: RunRecord) -> str:
    """Return what two records share of which only one counts."""
    config = {key: value for key, value in flatten(record.config).items() if key not in NOT_OF_CELL}
    cell = [record.setting, record.profile, record.seed, record.protocol, record.cell, config, record.data]
    return json.dumps(cell, sort_keys=True)
