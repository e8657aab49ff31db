"""The record of a run whose process died again and again and could not write one itself."""

import contextlib
from typing import cast

from aaren.lab.board import Entry
from aaren.tasks import find_task
from aaren.tasks.base import Json
from aaren.train.fields import to_mapping
from aaren.train.record import RunRecord
from aaren.train.run import RECORD


def write_failure(entry: Entry, error: str) -> None:
    """Leave a failed record in a run's folder; where even that fails, the summary still says it."""
    config = entry.run.config
    record = RunRecord(
        status="failed",
        setting=config.setting,
        profile=config.profile,
        seed=config.seed,
        cell=dict(config.cell()),
        changed=list(config.changed),
        config=cast("dict[str, Json]", to_mapping(config)),
        command=entry.run.command,
        metrics={},
        reports=list(find_task(config.setting).reports),
        parameters=0,
        updates=entry.update,
        epochs=0.0,
        ended_by="error",
        best_update=None,
        resumed=max(0, entry.deaths - 1),
        seconds={},
        curve=None,
        data={},
        facts={},
        error=error,
    )
    with contextlib.suppress(OSError):
        record.write(entry.run.folder / RECORD)
