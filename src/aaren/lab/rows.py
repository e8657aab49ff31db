"""From the records of runs to the rows of tables: which runs share a row.

Runs of different profiles, protocols or data never share a row, nor do runs whose keys were changed by hand.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from aaren.datasets.settings import setting_names
from aaren.engine.experiment import Json
from aaren.engine.record import RunRecord
from aaren.engine.setting import Setting, find_setting
from aaren.errors import ConfigError, DataError
from aaren.lab import published
from aaren.lab.names import GROUPS, PAIR, PROFILES, Metric, group_of, metric, names_of, papers_name
from aaren.lab.records import Problem, collect, data_digest, read_identities

TODAY = 0  # the protocol of runs by the numbers that this version has for their models
_SAME_RESULT = ("engine.", "seed")  # keys that do not change what is computed


@dataclass(frozen=True, kw_only=True, slots=True)
class RowKey:
    """What tells a row from all others."""

    setting: str
    profile: str
    variant: str  # "" as published, by today's protocol; else what differs: "rule=clean", "protocol=1"
    dataset: str
    horizon: int | None = None
    group: str = ""  # of runs of one cell; see `names.group_of`
    protocol: int = TODAY  # or the number of another one
    data: str = ""  # eight digits of the checksums of all files that were read
    remark: str = field(default="", compare=False)  # where its data needs saying

    @property
    def name(self) -> str:
        """Return dataset, horizon and group for display.

        >>> RowKey(setting="forecasting", profile="cpu", variant="", dataset="ETTh1", horizon=96).name
        'ETTh1, 96'
        """
        horizon = "" if self.horizon is None else str(self.horizon)
        name = ", ".join(filter(None, (self.dataset, horizon, self.group)))
        return f"{name} ({self.remark})" if self.remark else name

    @property
    def order(self) -> tuple[object, ...]:
        """Return what rows are sorted by: datasets as in the paper, what stands for one in its place."""
        return (
            _index(setting_names(), self.setting),
            self.setting,
            _index(tuple(PROFILES), self.profile),
            self.variant,
            _index(_in_the_paper(self.setting), papers_name(self.dataset)),
            self.dataset,
            self.horizon or 0,
            _index(GROUPS, self.group),
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
        part, _, name = report.rpartition(".")
        numbers = {seed: run.metrics.get(part, {}).get(name) for seed, run in self.by_seed(model)}
        return {seed: float(value) for seed, value in numbers.items() if value is not None and value == value}

    def by_seed(self, model: str) -> list[tuple[int, RunRecord]]:
        """Return a model's runs, each with its seed, in their order."""
        return sorted(self.runs.get(model, {}).items())

    def is_judged_by(self, report: str) -> bool:
        """Tell whether a number is shown here: not where there is one that the setting prefers to it."""
        better = names_of(self.key.setting).only_without.get(report)
        return better is None or not any(self.values(model, better) for model in self.runs)

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
    """All that a report is drawn from: rows of runs, and what had to be left out."""

    rows: list[Row]
    problems: list[Problem]
    identities: dict[str, str] = field(default_factory=dict)  # see `aaren.lab.records.is_stale`
    superseded: int = 0  # records of an older protocol than their row's newest

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
        """Return the numbers that a setting is judged by, as its records say, in today's order."""
        records = [record for row in self.select(setting) for record in row.records]
        known = _installed(setting)
        order = known.reports if known else ()
        names = sorted(
            dict.fromkeys(name for record in records for name in record.reports),
            key=lambda name: _index(order, name),
        )
        higher = {name for record in records for name in record.higher_is_better}
        return [metric(name, is_higher_better=name in higher) for name in names]


def read_results(*folders: Path) -> Results:
    """Read the records of runs below some folders."""
    collected = collect(*folders)
    rows, superseded = _drop_superseded(arrange(collected.records))
    return Results(
        rows=rows,
        problems=collected.problems,
        identities=read_identities(*folders),
        superseded=superseded,
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
        key, model = _key_and_model(record)
        rows.setdefault(key, Row(key=key)).runs.setdefault(model, {})[record.seed] = record
    contents: dict[RowKey, set[str]] = {}
    for key in rows:
        contents.setdefault(replace(key, data=""), set()).add(key.data)
    named = []
    for key, row in rows.items():
        is_one_of_several = len(contents[replace(key, data="")]) > 1
        remark = f"data {key.data or 'none'}" if is_one_of_several else ""
        named.append(replace(row, key=replace(key, remark=remark)))
    return sorted(named, key=lambda row: row.key.order)


def _drop_superseded(rows: list[Row]) -> tuple[list[Row], int]:
    """Leave out rows of an older protocol that a newer one replaces, and make all other old ones variants.

    A newer row replaces an older one as soon as it has whichever of both models the older one has.
    """
    newest: dict[RowKey, Row] = {}
    for row in rows:
        cell = replace(row.key, protocol=TODAY, data="")
        first = newest.setdefault(cell, row)
        newest[cell] = row if _protocol(row) > _protocol(first) else first
    current: list[Row] = []
    superseded = 0
    for row in rows:
        key = row.key
        newer = newest[replace(key, protocol=TODAY, data="")]
        if _protocol(row) < _protocol(newer) and newer.runs.keys() >= row.runs.keys() & set(PAIR):
            superseded += len(list(row.records))
            continue
        if key.protocol != TODAY and any(
            record.protocol < _todays_protocol(record) for record in row.records
        ):
            words = filter(None, (f"protocol={key.protocol}", key.variant))
            row = replace(row, key=replace(key, variant=", ".join(words)))
        current.append(row)
    return sorted(current, key=lambda row: row.key.order), superseded


def _key_and_model(record: RunRecord) -> tuple[RowKey, str]:
    """Say which row a run belongs to, and under which model."""
    cell, names = record.cell, names_of(record.setting)
    model, words = str(cell.get("model", "")), []
    for suffix, meaning in names.model_suffixes.items():
        if model.endswith(suffix):
            model = model.removesuffix(suffix)
            words.append(meaning)
    words += [
        f"{name}={value}"
        for name, value in cell.items()
        if name not in ("dataset", "horizon", "model") and value not in names.usual_cell.get(name, ())
    ]
    named = {word.partition("=")[0] for word in words}
    named |= {key for name, key in names.cell_keys.items() if name in named}
    for key in record.changed:
        name = key.rpartition(".")[2]
        if not key.startswith(_SAME_RESULT) and name not in named and name not in cell:
            words.append(f"{name}={_text(_value(record.config, key))}")
    horizon = cell.get("horizon")
    row_key = RowKey(
        setting=record.setting,
        profile=record.profile,
        variant=", ".join(words),
        dataset=str(cell.get("dataset", "")),
        horizon=None if horizon is None else int(horizon),
        group=group_of(record),
        protocol=TODAY if record.protocol == _todays_protocol(record) else record.protocol,
        data=data_digest(record.data) if record.data else "",
    )
    return row_key, model


def _protocol(row: Row) -> int:
    return max((record.protocol for record in row.records), default=TODAY)


def _todays_protocol(record: RunRecord) -> int:
    """Return the protocol by which this version would run it; of a setting that is not installed its own."""
    setting = _installed(record.setting)
    if setting is None:
        return 1
    return setting.protocol(record.profile, str(record.cell.get("model", "")))


def _installed(name: str) -> Setting[Any, Any] | None:
    """Return a setting that is installed or imported already."""
    try:
        setting: object = find_setting(name)
    except ConfigError:
        return None
    return setting if isinstance(setting, Setting) else None


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
