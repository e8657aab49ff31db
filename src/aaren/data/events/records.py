"""Events from EasyTPP's JSON record: one object per sequence with `time_since_start` and `type_event`.

The file is a list of such objects or has one per line; `dim_process` is the number of kinds. Their splits are
files of their own, so nothing is split here. Knows no other format.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import numpy as np

from aaren.data.events.grouping import LooseEvents, Repairs, group
from aaren.data.events.sequences import MAX_MARKS, EventSequences, Integers, offsets_from_lengths
from aaren.data.files.packed import parsing, read_bytes
from aaren.data.numbers import LARGEST_WHOLE
from aaren.errors import DataError


def read_records(path: Path, *, repairs: Repairs, unit: str = "") -> EventSequences:
    """Read EasyTPP's JSON or JSON-lines file, plain or behind .gz or .xz."""
    times: list[list[float]] = []
    marks: list[list[float]] = []
    num_marks = 1
    for label, record in _records(path):
        record_times = _numbers(record, "time_since_start", label)
        record_marks = _numbers(record, "type_event", label)
        if len(record_times) != len(record_marks):
            raise DataError(f"{label}: {len(record_times)} times but {len(record_marks)} marks.")
        kinds = record.get("dim_process", 1)
        if not isinstance(kinds, int) or not 1 <= kinds <= MAX_MARKS:
            raise DataError(
                f"{label}: 'dim_process' must be a whole number of kinds, 1 to {MAX_MARKS:,}; got "
                f"{str(kinds)[:80] if not isinstance(kinds, int) else 'another one'}."
            )
        num_marks = max(num_marks, kinds)
        if record_times:
            times.append(record_times)
            marks.append(record_marks)
    if not times:
        raise DataError(
            f"{path}: no record holds an event. Expected EasyTPP's JSON: one object per sequence."
        )
    offsets = offsets_from_lengths([len(item) for item in times])
    flat_marks = np.concatenate([np.asarray(item, dtype=np.float64) for item in marks])
    is_whole = np.isfinite(flat_marks) & (flat_marks == np.floor(flat_marks)) & (flat_marks < LARGEST_WHOLE)
    for event in np.flatnonzero(~is_whole)[:1]:
        raise DataError(
            f"{_place(path, offsets, int(event))}: expected a whole mark; got {flat_marks[event]}."
        )
    loose = LooseEvents(
        sequence=np.repeat(np.arange(len(times)), np.diff(offsets)),
        times=np.concatenate([np.asarray(item, dtype=np.float64) for item in times]),
        marks=flat_marks.astype(np.int64),
        names=[str(index) for index in range(len(times))],
    )
    return group(
        loose,
        repairs,
        path=str(path),
        where=lambda event: _place(path, offsets, event),
        num_marks=num_marks,
        unit=unit or "time units",
    )


def _place(path: Path, offsets: Integers, event: int) -> str:
    sequence = int(np.searchsorted(offsets, event, side="right")) - 1
    return f"{path}, record {sequence}, event {event - int(offsets[sequence])}"


def _records(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield every record with the words for its place."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a JSON file ({error}).") from error
    if not text.strip():
        raise DataError(f"{path}: the file is empty. Expected EasyTPP's JSON: one object per sequence.")
    if text.lstrip().startswith("["):
        found = _parse(text, str(path), 1)
        items = enumerate(found) if isinstance(found, list) else enumerate([found])
        labelled = ((f"{path}, record {number}", item) for number, item in items)
    else:
        lines = ((number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip())
        labelled = ((f"{path}, line {number}", _parse(line, str(path), number)) for number, line in lines)
    for label, item in labelled:
        if not isinstance(item, dict):
            raise DataError(f"{label}: expected an object with time_since_start and type_event.")
        yield label, item


def _parse(text: str, path: str, first_line: int) -> object:
    with parsing(path, "a JSON record of events"):  # nested too deep, numbers of thousands of digits
        try:
            parsed: object = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path}, line {error.lineno + first_line - 1}: not valid JSON ({error.msg})."
            ) from error
    return parsed


def _numbers(record: dict[str, object], key: str, label: str) -> list[float]:
    if key not in record:
        raise DataError(f"{label}: no {key!r}; it has {', '.join(sorted(record)) or 'nothing'}.")
    values = record[key]
    if not _is_numbers(values):
        raise DataError(f"{label}: {key!r} must be a list of numbers.")
    return [_number(value) for value in values]


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond every float
        return math.inf


def _is_numbers(values: object) -> TypeGuard[list[float]]:
    return isinstance(values, list) and all(
        isinstance(v, (int, float)) and not isinstance(v, bool) for v in values
    )
