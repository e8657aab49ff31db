"""What a grid will cost: from past records of the same cell, else of its kin, else from a short probe.

Times are of one worker. A run that can stop early (patience) is counted as if it did not, when probed. What
is fitted in one go, such as a reference row, cannot be probed; without a record its time is unknown.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeAlias

from aaren.engine.config import RunConfig
from aaren.engine.loop import PausedError, fit
from aaren.engine.plan import Evaluation, Plan, RunStatus
from aaren.engine.progress import Observer
from aaren.engine.record import RunRecord
from aaren.engine.setting import find_setting
from aaren.lab.plan import PlannedRun
from aaren.lab.records import FoundRecord

PROBE_SECONDS = 1.0  # of updates, after the first ones
PROBE_LIMIT = 20.0  # for all of one probe: data, first updates, and those that count
WARM_UPDATES = 2
ACCOUNTS = ("training", "looking", "saving")

# The same cell with another seed; the same setting, profile and model; a probe; nothing.
Source: TypeAlias = Literal["cell", "kin", "probe", "unknown"]
Probe: TypeAlias = Callable[[RunConfig], float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """Seconds for every run of which anything is known, and how many runs each source told of."""

    seconds: Mapping[Path, float]  # by folder
    sources: Mapping[Source, int]


def seconds_of(record: RunRecord) -> float:
    """Return the time that a run took, without its test."""
    return sum(record.seconds.get(account, 0.0) for account in ACCOUNTS)


def estimate(
    runs: Sequence[PlannedRun], records: Sequence[FoundRecord], *, probe: Probe | None = None
) -> Estimate:
    """Estimate every run.

    Args:
        runs: What is to be run.
        records: What was run before.
        probe: Measures one run of each setting and model of which there is no record; None: leave unknown.
    """
    known: dict[object, list[float]] = {}
    for found in records:
        for place in _places(found.record.setting, found.record.profile, found.record.cell):
            known.setdefault(place, []).append(seconds_of(found.record))
    probed: dict[object, float | None] = {}
    seconds: dict[Path, float] = {}
    sources: Counter[Source] = Counter()
    for run in runs:
        places = _places(run.config.setting, run.config.profile, run.config.cell())
        nearest = next((place for place in places if place in known), None)
        if nearest is not None:
            guess: float | None = fmean(known[nearest])
        else:
            if places[-1] not in probed:
                probed[places[-1]] = None if probe is None else probe(run.config)
            guess = probed[places[-1]]
        if guess is not None:
            seconds[run.folder] = guess
        source: Source = "probe" if nearest is None else "cell" if nearest == places[0] else "kin"
        sources["unknown" if guess is None else source] += 1
    return Estimate(seconds=seconds, sources=sources)


def probe_run(config: RunConfig) -> float | None:
    """Train for a moment, keep nothing, and say how long the whole run would take; None if it cannot tell."""
    watch = _Watch()
    try:
        experiment = find_setting(config.setting).open(config.task, seed=config.seed)
        if experiment.plan.max_updates == 0:
            return None  # fitted in one go: only the whole of it can be timed
        fit(
            experiment,
            seed=config.seed,
            engine=config.engine,
            observer=watch,
            is_pause_wanted=watch.is_enough,
        )
    except PausedError:
        pass
    except Exception:  # whatever it is: the run itself will say why, in its record
        return None
    return watch.total_seconds(experiment.plan)


class _Watch(Observer):
    """Times updates and looks."""

    def __init__(self) -> None:
        self.begin_of_probe = self.last = time.monotonic()
        self.updates: list[float] = []
        self.looks: list[float] = []
        self.has_looked = False

    def updated(self, status: RunStatus, loss: Callable[[], float]) -> None:
        """Book the time since the update before, as a look's if one lay between."""
        del status, loss
        now = time.monotonic()
        (self.looks if self.has_looked else self.updates).append(now - self.last)
        self.last, self.has_looked = now, False

    def evaluated(self, status: RunStatus, evaluation: Evaluation) -> None:
        """Remember that a look came after the last update."""
        del status, evaluation
        self.has_looked = True

    def is_enough(self) -> bool:
        """Say whether the updates so far tell enough."""
        counted = self.updates[WARM_UPDATES:]
        if len(counted) >= 2 and sum(counted) >= PROBE_SECONDS:
            return True
        return bool(counted) and time.monotonic() - self.begin_of_probe >= PROBE_LIMIT

    def total_seconds(self, plan: Plan) -> float | None:
        """Extrapolate to all updates, and to all looks if one was seen."""
        counted = self.updates[WARM_UPDATES:] or self.updates
        if not counted:
            return None
        update = fmean(counted)
        look = max(0.0, fmean(self.looks) - update) if self.looks else 0.0
        return plan.max_updates * update + -(-plan.max_updates // plan.evaluate_every) * look


def _places(setting: str, profile: str, cell: Mapping[str, str | int]) -> list[object]:
    """List where records would say something of a cell, nearest first.

    >>> len(_places("forecasting", "cpu", {"dataset": "ETTh1", "horizon": 96, "model": "aaren"}))
    3
    """
    without_dataset = {name: value for name, value in cell.items() if name != "dataset"}
    by_model = {name: value for name, value in cell.items() if name == "model"}
    return [(setting, profile, frozenset(part.items())) for part in (dict(cell), without_dataset, by_model)]
