"""Where each run stands: its setting, profile, variant, dataset and horizon; and all runs of one place.

Runs of different profiles never share a row, nor do runs whose keys were changed by hand.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from aaren.engine.experiment import Json
from aaren.engine.record import RunRecord
from aaren.lab import published
from aaren.lab.records import FoundRecord, Problem
from aaren.report.names import PROFILES, SETTINGS, papers_name

# What a cell says beside dataset, horizon and model when everything is as published.
_USUAL = {"rule": "protocol", "recipe": "radam-halving"}
_SAID_BY = {"rule=clean": "censoring"}  # events: the rule for the end of a sequence is that key
_CAUSAL = "-causal"  # models of classification that can go along a stream
_SAME_RESULT = ("engine.", "seed")  # keys that do not change what is computed
_STILL_MATTERS = ("engine.autocast",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A row of a table."""

    setting: str
    profile: str
    variant: str  # "" as published; else what differs: "rule=clean"
    dataset: str
    horizon: int | None

    @property
    def name(self) -> str:
        """Return dataset and horizon for people.

        >>> Place(setting="forecasting", profile="cpu", variant="", dataset="ETTh1", horizon=96).name
        'ETTh1, 96'
        """
        return self.dataset if self.horizon is None else f"{self.dataset}, {self.horizon}"

    @property
    def order(self) -> tuple[int, int, str, int, str, int]:
        """Return what rows are sorted by: datasets as in the paper, what stands for one in its place."""
        return (
            _index(list(SETTINGS), self.setting),
            _index(list(PROFILES), self.profile),
            self.variant,
            _index(_in_the_paper(self.setting), papers_name(self.dataset)),
            self.dataset,
            self.horizon or 0,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """All runs of one place, by model and seed."""

    place: Place
    runs: dict[str, dict[int, FoundRecord]] = field(default_factory=dict)

    def values(self, model: str, report: str) -> dict[int, float]:
        """Return one of a model's numbers by seed, of the runs where it is finite."""
        found = {}
        for seed, run in sorted(self.runs.get(model, {}).items()):
            group, _, name = report.rpartition(".")
            value = run.record.metrics.get(group, {}).get(name)
            if value is not None and value == value:
                found[seed] = float(value)
        return found

    def is_judged_by(self, report: str) -> bool:
        """Tell whether a number means something here.

        A return is in a unit of its own for every environment: only where there is no normalised score.
        """
        return report != "test.return" or not any(self.values(model, "best.score") for model in self.runs)

    @property
    def records(self) -> Iterator[RunRecord]:
        """Walk through all records of the row."""
        return (run.record for by_seed in self.runs.values() for run in by_seed.values())

    @property
    def facts(self) -> Mapping[str, Json]:
        """Return what a record of this row says of the data."""
        return next((record.facts for record in self.records), {})


def arrange(found: Iterable[FoundRecord]) -> tuple[list[Row], list[Problem]]:
    """Put every run into its row; of two runs of one place and seed the later one counts."""
    rows: dict[Place, Row] = {}
    problems = []
    for run in sorted(found, key=lambda run: (run.record.date, str(run.path))):
        place, model = locate(run.record)
        by_seed = rows.setdefault(place, Row(place=place)).runs.setdefault(model, {})
        older = by_seed.get(run.record.seed)
        if older is not None:
            problems.append(
                Problem(
                    path=older.path,
                    reason=f"a later run of the same place and seed counts: {run.path.parent.name}",
                )
            )
        by_seed[run.record.seed] = run
    return sorted(rows.values(), key=lambda row: row.place.order), problems


def locate(record: RunRecord) -> tuple[Place, str]:
    """Say which row a run belongs to, and under which model."""
    cell = record.cell
    model = str(cell.get("model", ""))
    words = []
    if model.endswith(_CAUSAL):
        model = model.removesuffix(_CAUSAL)
        words.append("embedding=causal")
    words += [
        f"{name}={value}"
        for name, value in cell.items()
        if name not in ("dataset", "horizon", "model") and _USUAL.get(name) != value
    ]
    said = {word.partition("=")[0] for word in words}
    said |= {_SAID_BY[word] for word in words if word in _SAID_BY}
    for key in record.changed:
        name = key.rpartition(".")[2]
        if (
            name not in said
            and name not in cell
            and (key in _STILL_MATTERS or not key.startswith(_SAME_RESULT))
        ):
            words.append(f"{name}={_text(_value(record.config, key))}")
    horizon = cell.get("horizon")
    place = Place(
        setting=record.setting,
        profile=record.profile,
        variant=", ".join(words),
        dataset=str(cell.get("dataset", "")),
        horizon=None if horizon is None else int(horizon),
    )
    return place, model


def _value(config: Mapping[str, Json], key: str) -> Json:
    value: Json = dict(config)
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(value: Json) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if value is None else str(value)


@cache
def _in_the_paper(setting: str) -> list[str]:
    return list(dict.fromkeys(cell.dataset for cell in published.cells() if cell.setting == setting))


def _index(known: list[str], name: str) -> int:
    return known.index(name) if name in known else len(known)
