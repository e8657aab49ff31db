"""The record of a run whose process died again and again and could not write one itself."""

import contextlib
from dataclasses import replace

from aaren.lab.board import Entry
from aaren.train.run import RECORD, blank_record


def write_failure(entry: Entry, error: str) -> None:
    """Leave a failed record in a run's folder; where even that fails, the summary still says it."""
    record = replace(
        blank_record(entry.run.config, command=entry.run.command),
        updates=entry.update,
        resumed=max(0, entry.deaths - 1),
        error=error,
    )
    with contextlib.suppress(OSError):
        record.write(entry.run.folder / RECORD)
