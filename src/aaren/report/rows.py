"""From the files of runs to the rows of a report: which runs share a row, and what was kept beside them.

Runs of different profiles, protocols or data never share a row, nor do runs whose keys were changed by hand.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from aaren.datasets.settings import setting_names
from aaren.engine.experiment import Json
from aaren.engine.record import RunRecord
from aaren.errors import DataError
from aaren.lab import published
from aaren.lab.measurements import BenchRecord
from aaren.lab.measurements import read_record as read_bench
from aaren.lab.records import Problem, collect, data_digest, read_identities
from aaren.report.names import (
    PAIR,
    PROFILES,
    Metric,
    metric,
    papers_name,
    setting_of,
)

BENCHES = ("stream", "train")  # drawn in the report, from bench/KIND.json in any of the folders
TODAY = 0  # the protocol of runs by the numbers that this version has for their models
_SAME_RESULT = ("engine.", "seed")  # keys that do not change what is computed


@dataclass(frozen=True, kw_only=True, slots=True)
class RowKey:
    """What tells a row from all others."""

    setting: str
    profile: str
    variant: str  # "" as published, by today's protocol; else what differs: "rule=clean", "protocol=1"
    dataset: str
    horizon: int | None
    protocol: int = TODAY  # or the number of another one
    data: str = ""  # eight digits of the checksums of all files that were read
    remark: str = field(default="", compare=False)  # where its data needs saying

    @property
    def name(self) -> str:
        """Return dataset and horizon for display.

        >>> RowKey(setting="forecasting", profile="cpu", variant="", dataset="ETTh1", horizon=96).name
        'ETTh1, 96'
        """
        name = self.dataset if self.horizon is None else f"{self.dataset}, {self.horizon}"
        return f"{name} ({self.remark})" if self.remark else name

    @property
    def cell(self) -> tuple[str, str, str, str, int | None]:
        """Return what rows have in common that differ by protocol or data only."""
        return self.setting, self.profile, self.variant, self.dataset, self.horizon

    @property
    def order(self) -> tuple[int, str, int, str, int, str, int, bool, int, str]:
        """Return what rows are sorted by: datasets as in the paper, what stands for one in its place."""
        return (
            _index(setting_names(), self.setting),
            self.setting,
            _index(tuple(PROFILES), self.profile),
            self.variant,
            _index(_in_the_paper(self.setting), papers_name(self.dataset)),
            self.dataset,
            self.horizon or 0,
            self.protocol != TODAY,
            -self.protocol,
            self.data,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """All runs of one row, by model and seed."""

    key: RowKey
    runs: dict[str, dict[int, RunRecord]] = field(default_factory=dict)

    def values(self, model: str, report: str) -> dict[int, float]:
        """Return one of a model's numbers by seed, of the runs where it is finite."""
        found = {}
        group, _, name = report.rpartition(".")
        for seed, run in self.by_seed(model):
            value = run.metrics.get(group, {}).get(name)
            if value is not None and value == value:
                found[seed] = float(value)
        return found

    def by_seed(self, model: str) -> list[tuple[int, RunRecord]]:
        """Return a model's runs, each with its seed, in their order."""
        return sorted(self.runs.get(model, {}).items())

    def is_judged_by(self, report: str) -> bool:
        """Tell whether a number is shown here: not where there is one that the setting prefers to it."""
        better = setting_of(self.key.setting).only_without.get(report)
        return better is None or not any(self.values(model, better) for model in self.runs)

    @property
    def protocol(self) -> int:
        """Return the newest protocol of the runs."""
        return max((record.protocol for record in self.records), default=TODAY)

    @property
    def records(self) -> Iterator[RunRecord]:
        """Walk through all records of the row."""
        return (run for by_seed in self.runs.values() for run in by_seed.values())

    @property
    def facts(self) -> Mapping[str, Json]:
        """Return what a record of this row says of the data."""
        return next((record.facts for record in self.records), {})


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """All that a report is drawn from: rows of runs, benchmarks, and what had to be left out."""

    rows: list[Row]
    problems: list[Problem]
    benches: dict[str, BenchRecord] = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)  # see `aaren.lab.records.is_stale`
    superseded: list[RunRecord] = field(default_factory=list)  # of an older protocol than their row's newest

    def settings(self) -> list[str]:
        """Return the settings that something was run of, in the order of the report."""
        return list(dict.fromkeys(row.key.setting for row in self.rows))

    def profiles(self, setting: str) -> list[str]:
        """Return the profiles that something of a setting was run at."""
        return list(dict.fromkeys(row.key.profile for row in self.select(setting)))

    def variants(self, setting: str, profile: str) -> list[str]:
        """Return the variants at a profile; "" is what the paper did, and comes first."""
        return sorted({row.key.variant for row in self.select(setting, profile)})

    def select(self, setting: str, profile: str | None = None, variant: str | None = None) -> list[Row]:
        """Return the rows of a setting, of one profile and variant if they are named."""
        return [
            row
            for row in self.rows
            if row.key.setting == setting
            and profile in (None, row.key.profile)
            and variant in (None, row.key.variant)
        ]

    def metrics(self, setting: str) -> list[Metric]:
        """Return the numbers that a setting is judged by, as its records say."""
        records = [record for row in self.select(setting) for record in row.records]
        known = setting_of(setting).reports  # today's order, whatever a record's was
        names = sorted(
            dict.fromkeys(name for record in records for name in record.reports),
            key=lambda name: _index(known, name),
        )
        higher = {name for record in records for name in record.higher_is_better}
        return [metric(name, is_higher_better=name in higher) for name in names]


def read_results(*folders: Path) -> Results:
    """Read run records below some folders, and the benchmarks in their `bench` folders."""
    collected = collect(*folders)
    rows = arrange(collected.records)
    rows, superseded = drop_superseded(rows)
    rows = set_apart(rows)
    problems = list(collected.problems)
    benches: dict[str, BenchRecord] = {}
    for kind in BENCHES:
        for path in (folder / "bench" / f"{kind}.json" for folder in folders):
            if not path.is_file():
                continue
            try:
                found = read_bench(path, kind=kind)
            except DataError as error:
                problems.append(Problem(path=path, reason=str(error).removeprefix(str(path)).strip()))
                continue
            if benches.setdefault(kind, found) is not found:
                problems.append(Problem(path=path, reason="the benchmark of a folder named before it counts"))
    return Results(
        rows=rows,
        problems=problems,
        benches=benches,
        superseded=superseded,
        identities=read_identities(*folders),
    )


def require_results(folders: list[Path]) -> Results:
    """Read what there is, or say that there is nothing to report."""
    results = read_results(*folders)
    if not results.rows:
        where = ", ".join(map(str, folders))
        reasons = "".join(f"\n  - {problem.path}: {problem.reason}" for problem in results.problems)
        raise DataError(
            f"no finished run below {where}: a report needs at least one. Make some: aaren train SETTING "
            f"DATASET, or aaren reproduce.{reasons}"
        )
    return results


def arrange(records: Iterable[RunRecord]) -> list[Row]:
    """Put every run into its row; of two runs of one row, model and seed the later one counts.

    One of several rows that differ in their data alone says so.
    """
    rows: dict[RowKey, Row] = {}
    for record in records:
        key, model = key_and_model(record)
        rows.setdefault(key, Row(key=key)).runs.setdefault(model, {})[record.seed] = record
    contents: dict[tuple[object, ...], set[str]] = {}
    for key in rows:
        contents.setdefault((*key.cell, key.protocol), set()).add(key.data)
    named = []
    for key, row in rows.items():
        is_one_of_several = len(contents[*key.cell, key.protocol]) > 1
        remark = f"data {key.data or 'none'}" if is_one_of_several else ""
        named.append(replace(row, key=replace(key, remark=remark)))
    return sorted(named, key=lambda row: row.key.order)


def drop_superseded(rows: list[Row]) -> tuple[list[Row], list[RunRecord]]:
    """Tell rows that are shown from records of an older protocol that a newer one has taken the place of.

    That is so as soon as the newer row has Aaren and the Transformer, whichever of them the older one has.
    """
    newest: dict[tuple[object, ...], Row] = {}
    for row in rows:
        first = newest.setdefault(row.key.cell, row)
        if row.protocol > first.protocol:
            newest[row.key.cell] = row
    kept: list[Row] = []
    superseded: list[RunRecord] = []
    for row in rows:
        newer = newest[row.key.cell]
        is_old = row.protocol < newer.protocol and newer.runs.keys() >= row.runs.keys() & set(PAIR)
        if is_old:
            superseded += row.records
        else:
            kept.append(row)
    return kept, superseded


def set_apart(rows: list[Row]) -> list[Row]:
    """Make a protocol before today's a variant: shown, but among the variants, and never judged by."""
    found = []
    for row in rows:
        key = row.key
        if key.protocol != TODAY and any(record.protocol < todays_protocol(record) for record in row.records):
            words = filter(None, (f"protocol={key.protocol}", key.variant))
            row = replace(row, key=replace(key, variant=", ".join(words)))
        found.append(row)
    return sorted(found, key=lambda row: row.key.order)


def key_and_model(record: RunRecord) -> tuple[RowKey, str]:
    """Say which row a run belongs to, and under which model."""
    cell = record.cell
    model = str(cell.get("model", ""))
    words, setting = [], setting_of(record.setting)
    for suffix, meaning in setting.model_suffixes.items():
        if model.endswith(suffix):
            model = model.removesuffix(suffix)
            words.append(meaning)
    words += [
        f"{name}={value}"
        for name, value in cell.items()
        if name not in ("dataset", "horizon", "model") and setting.usual_cell.get(name) != value
    ]
    said = {word.partition("=")[0] for word in words}
    said |= {key for name, key in setting.cell_keys.items() if name in said}
    for key in record.changed:
        name = key.rpartition(".")[2]
        if not key.startswith(_SAME_RESULT) and name not in said and name not in cell:
            words.append(f"{name}={_text(_value(record.config, key))}")
    horizon = cell.get("horizon")
    row_key = RowKey(
        setting=record.setting,
        profile=record.profile,
        variant=", ".join(words),
        dataset=str(cell.get("dataset", "")),
        horizon=None if horizon is None else int(horizon),
        protocol=TODAY if record.protocol == todays_protocol(record) else record.protocol,
        data=data_digest(record.data) if record.data else "",
    )
    return row_key, model


def todays_protocol(record: RunRecord) -> int:
    """Return the protocol by which this version would run it."""
    return setting_of(record.setting).protocol(record.profile, str(record.cell.get("model", "")))


def first_figures(row: Row) -> dict[str, Mapping[str, Json]]:
    """Return both models' figures, of the first seed that has them."""
    figures: dict[str, Mapping[str, Json]] = {}
    for model in PAIR:
        content = next((run.figures for _, run in row.by_seed(model) if run.figures), None)
        if content:
            figures[model] = content
    return figures


def mapping(value: Json) -> Mapping[str, Json]:
    """Read a mapping from JSON; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


def numbers(values: Json) -> list[float | None]:
    """Read a list of numbers from JSON; anything else in it is a gap."""
    if not isinstance(values, list):
        return []
    return [
        float(value) if isinstance(value, int | float) and math.isfinite(value) else None for value in values
    ]


def number_in(values: Mapping[str, Json], name: str) -> float | None:
    """Read a number from a mapping of JSON; None if it is anything else, or not there.

    >>> number_in({"update": 3}, "update"), number_in({"update": "3"}, "update")
    (3.0, None)
    """
    value = values.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _value(config: Mapping[str, Json], key: str) -> Json:
    value: Json = dict(config)
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(value: Json) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if value is None else str(value)


@cache
def _in_the_paper(setting: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cell.dataset for cell in published.cells() if cell.setting == setting))


def _index(known: tuple[str, ...], name: str) -> int:
    return known.index(name) if name in known else len(known)
