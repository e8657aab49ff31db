"""What the rest of a grid would cost in core-hours: from records where there are any, else estimated.

Measured: CPU seconds of earlier runs of the same cell. Estimated: the plan's updates, at most, times the CPU
seconds per update of other cells at the same profile, scaled by how both cells compare at another profile.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Literal, TypeAlias

from aaren.engine.record import RunRecord
from aaren.engine.setting import find_setting
from aaren.errors import AarenError
from aaren.lab.plan import GridStatus, PlannedRun, cell_key
from aaren.lab.records import core_seconds

Basis: TypeAlias = Literal["measured", "estimated", "unknown"]


@dataclass(kw_only=True, slots=True)
class DatasetCost:
    """What a dataset of a grid still costs."""

    setting: str
    dataset: str
    runs: int = 0
    done: int = 0
    seconds: dict[Basis, float] = field(default_factory=lambda: {"measured": 0.0, "estimated": 0.0})
    unknown: int = 0  # runs of which nothing is known
    without_data: int = 0

    @property
    def hours(self) -> float:
        """Return the core-hours left, of the runs whose cost is known."""
        return sum(self.seconds.values()) / 3600.0

    @property
    def basis(self) -> str:
        """Say where the hours come from."""
        words: list[str] = [name for name, seconds in self.seconds.items() if seconds]
        words += [f"{self.unknown} unknown"] * bool(self.unknown)
        words += [f"{self.without_data} without data"] * bool(self.without_data)
        return ", ".join(words) or "done"


def dataset_costs(
    runs: Sequence[PlannedRun], status: GridStatus, records: Sequence[RunRecord]
) -> list[DatasetCost]:
    """Sum up a grid by dataset, in the order of its runs."""
    costs = Costs(records)
    done = {run.folder for run in status.finished}
    missing = {run.folder for found in status.without_data.values() for run in found}
    table: dict[tuple[str, str], DatasetCost] = {}
    for run in runs:
        key = (run.config.setting, run.dataset)
        row = table.setdefault(key, DatasetCost(setting=key[0], dataset=key[1]))
        row.runs += 1
        if run.folder in done:
            row.done += 1
            continue
        row.without_data += run.folder in missing
        seconds, basis = costs.of(run, has_data=run.folder not in missing)
        if basis == "unknown":
            row.unknown += 1
        else:
            row.seconds[basis] += seconds
    return list(table.values())


class Costs:
    """What runs cost, from records."""

    def __init__(self, records: Sequence[RunRecord]) -> None:
        self._seconds: dict[str, list[float]] = {}  # by cell and profile
        # CPU seconds per update: by setting, profile and model, then by all else that tells cells apart.
        self._rates: dict[tuple[str, str, str], dict[str, float]] = {}
        self._updates: dict[str, int | None] = {}
        for record in records:
            self._seconds.setdefault(cell_key(record.setting, record.profile, record.cell), []).append(
                core_seconds(record)
            )
            if record.updates:
                group = (record.setting, record.profile, str(record.cell.get("model")))
                rate = core_seconds(record) / record.updates
                self._rates.setdefault(group, {})[_place(record.cell)] = rate

    def of(self, run: PlannedRun, *, has_data: bool = True) -> tuple[float, Basis]:
        """Return the CPU seconds of a run, and where they come from."""
        config = run.config
        cell = config.cell()
        known = self._seconds.get(cell_key(config.setting, config.profile, cell))
        if known:
            return fmean(known), "measured"
        rate = self.rate(config.setting, config.profile, cell)
        updates = self._planned_updates(run) if rate is not None and has_data else None
        return (0.0, "unknown") if rate is None or updates is None else (rate * updates, "estimated")

    def rate(self, setting: str, profile: str, cell: Mapping[str, str | int]) -> float | None:
        """Estimate the CPU seconds of one update of a cell that was never run at a profile."""
        model, place = str(cell.get("model")), _place(cell)
        here = self._rates.get((setting, profile, model), {})
        if not here:
            return None
        scaled = []
        for (other_setting, other_profile, other_model), rates in self._rates.items():
            is_peer = (other_setting, other_model) == (setting, model) and other_profile != profile
            if is_peer and place in rates:
                scaled += [rate * rates[place] / rates[peer] for peer, rate in here.items() if peer in rates]
        return median(scaled or here.values())

    def _planned_updates(self, run: PlannedRun) -> int | None:
        """Open the run's data and read off its plan; cells differ by dataset and choices, hardly by model."""
        key = json.dumps([run.config.setting, run.config.profile, _place(run.config.cell())])
        if key not in self._updates:
            try:
                experiment = find_setting(run.config.setting).open(run.config.task, seed=0)
                self._updates[key] = experiment.plan.max_updates
            except AarenError:
                self._updates[key] = None
        return self._updates[key]


def _place(cell: Mapping[str, str | int]) -> str:
    return json.dumps({name: value for name, value in cell.items() if name != "model"}, sort_keys=True)
