"""The record of a run whose process died again and again and could not write one itself."""

import contextlib
from dataclasses import replace
from pathlib import Path

from aaren.errors import DataError
from aaren.lab.board import Entry
from aaren.train.record import read_record
from aaren.train.run import RECORD, blank_record


def write_failure(entry: Entry, error: str) -> None:
    """Leave a failed record in a run's folder; where even that fails, the summary still says it.

    A finished run, of which only a sweep was asked, keeps its record, and so does a newer version's.
    """
    path = entry.run.folder / RECORD
    if path.exists() and not _is_of_a_failure(path):
        return
    record = replace(
        blank_record(entry.run.config, command=entry.run.command),
        updates=entry.update,
        resumed=max(0, entry.deaths - 1),
        error=error,
    )
    with contextlib.suppress(OSError):
        record.write(path)


def _is_of_a_failure(path: Path) -> bool:
    try:
        return read_record(path).status == "failed"
    except (DataError, OSError):
        return False
