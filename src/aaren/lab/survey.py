"""Compare a plan with what is on disk: finished, failed, unreadable, without data, or still to be run."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aaren.data.dataset import Dataset
from aaren.data.registry import lookup
from aaren.data.source import on_disk
from aaren.errors import ConfigError
from aaren.lab.planning import PlannedRun, identity
from aaren.lab.records import Collected, FoundRecord, collect
from aaren.tasks import TASKS
from aaren.train.config import from_mapping
from aaren.train.run import MODEL


@dataclass(kw_only=True, slots=True)
class Survey:
    """Every planned run stands in exactly one of the lists."""

    finished: list[PlannedRun] = field(default_factory=list)
    failed: list[tuple[PlannedRun, str]] = field(default_factory=list)  # earlier, and why
    unreadable: list[tuple[PlannedRun, str]] = field(default_factory=list)  # a record that must not be lost
    without_data: dict[str, list[PlannedRun]] = field(default_factory=dict)  # by dataset
    waiting: list[PlannedRun] = field(default_factory=list)
    collected: Collected = field(default_factory=lambda: Collected(records=[], problems=[]))


def survey(runs: Sequence[PlannedRun], out: Path, *, retry_failed: bool = False) -> Survey:
    """Look at a results folder and at the data.

    A record counts for every planned run that computes the same, whatever its folder is called and with
    however many threads it was run; where only a sweep is missing, the run waits for that. A record that
    cannot be read is never overwritten: it may be a newer version's.
    """
    found = Survey(collected=collect(out) if out.is_dir() else Collected(records=[], problems=[]))
    done = {_identity(item): item for item in found.collected.records}
    problems = {problem.path.parent: problem for problem in found.collected.problems}
    is_there: dict[str, bool] = {}
    for run in runs:
        problem = problems.get(run.folder)
        record = done.get(run.identity())
        if record is not None and _is_owed_a_sweep(run, record) and _has_data(run):
            found.waiting.append(_continued(run, record))
        elif record is not None:
            found.finished.append(run)
        elif problem is not None and not problem.is_failure:
            found.unreadable.append((run, problem.reason))
        elif problem is not None and not retry_failed:
            found.failed.append((run, problem.reason))
        elif is_there.setdefault(run.dataset, _has_data(run)):
            found.waiting.append(run)
        else:
            found.without_data.setdefault(run.dataset, []).append(run)
    return found


def how_to_get(dataset: Dataset) -> str:
    """Say in a few words how to come by a dataset's files.

    >>> how_to_get(lookup("ETTh1"))
    'aaren data fetch ETTh1'
    """
    if dataset.urls:
        return f"aaren data fetch {dataset.name}"
    if dataset.source.startswith("aaren "):
        return dataset.source
    return f"no download is known: {dataset.remark or dataset.source}"


def _has_data(run: PlannedRun) -> bool:
    if run.config.setting not in TASKS:
        return True  # a user's own setting knows its own data
    dataset = lookup(run.dataset)
    return dataset.is_generated or bool(on_disk(dataset, or_shipped=True))


def _is_owed_a_sweep(run: PlannedRun, found: FoundRecord) -> bool:
    """Tell whether a finished run can still be asked what it was not; one without its weights cannot."""
    folder = found.path.parent
    return (folder / MODEL).is_dir() and not all(sweep.file(folder).is_file() for sweep in run.sweeps)


def _continued(run: PlannedRun, found: FoundRecord) -> PlannedRun:
    """Return the planned run where, and as, it was carried out."""
    return replace(run, folder=found.path.parent, config=from_mapping(found.record.config))


def _identity(item: FoundRecord) -> str:
    """Return what a record's run computed; one whose config this version cannot build matches nothing."""
    try:
        return identity(from_mapping(item.record.config))
    except ConfigError:
        return ""
