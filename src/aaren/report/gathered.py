"""All that a report is drawn from: rows of runs, benchmarks, and what had to be left out."""

from dataclasses import dataclass, field
from pathlib import Path

from aaren.bench.record import BenchRecord
from aaren.bench.record import read_record as read_bench
from aaren.errors import DataError
from aaren.lab import published
from aaren.lab.records import Problem, collect
from aaren.report.comparison import Comparison, compare
from aaren.report.names import Metric, metric, papers_name
from aaren.report.rows import Place, Row, arrange

BENCHES = ("stream", "train")  # drawn in the report, from bench/KIND.json in any of the folders


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """Everything at hand."""

    rows: list[Row]
    problems: list[Problem]
    benches: dict[str, BenchRecord] = field(default_factory=dict)

    def settings(self) -> list[str]:
        """Return the settings that something was run of, in the order of the report."""
        return list(dict.fromkeys(row.place.setting for row in self.rows))

    def profiles(self, setting: str) -> list[str]:
        """Return the profiles that something of a setting was run at."""
        return list(dict.fromkeys(row.place.profile for row in self.rows if row.place.setting == setting))

    def variants(self, setting: str, profile: str) -> list[str]:
        """Return the variants at a profile; "" is what the paper did, and comes first."""
        found = {row.place.variant for row in self.select(setting, profile)}
        return sorted(found)

    def select(self, setting: str, profile: str, variant: str | None = None) -> list[Row]:
        """Return the rows of one table."""
        return [
            row
            for row in self.rows
            if row.place.setting == setting
            and row.place.profile == profile
            and variant in (None, row.place.variant)
        ]

    def metrics(self, setting: str) -> list[Metric]:
        """Return the numbers that a setting is judged by, as its records say."""
        records = [record for row in self.rows if row.place.setting == setting for record in row.records]
        names = dict.fromkeys(name for record in records for name in record.reports)
        higher = {name for record in records for name in record.higher_is_better}
        return [metric(name, is_higher_better=name in higher) for name in names]

    def compare(self, setting: str, profile: str, variant: str, number: Metric) -> list[Comparison]:
        """Compare both models in every row that has either, and the paper's rows that have none, as gaps.

        A smoke run has no gaps: nobody wants all of the paper's table run for seconds.
        """
        rows = [
            row
            for row in self.select(setting, profile, variant)
            if {"aaren", "transformer"} & row.runs.keys() and row.is_judged_by(number.report)
        ]
        found = [compare(row, number) for row in rows]
        found = [one for one in found if not one.is_gap]
        if not variant and profile != "smoke":
            found += gaps(setting, profile, number, rows)
        return sorted(found, key=lambda one: one.place.order)


def gather(*folders: Path) -> Gathered:
    """Read run records below some folders, and the benchmarks in their `bench` folders."""
    collected = collect(*folders)
    rows, doubles = arrange(collected.records)
    problems = [*collected.problems, *doubles]
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
    return Gathered(rows=rows, problems=problems, benches=benches)


def gaps(setting: str, profile: str, number: Metric, rows: list[Row]) -> list[Comparison]:
    """Return the places of the paper's table that no row is about."""
    covered = {(papers_name(row.place.dataset), row.place.horizon) for row in rows}
    wanted = dict.fromkeys(
        (cell.dataset, cell.horizon)
        for cell in published.cells()
        if cell.setting == setting and cell.metric == number.name
    )
    found = []
    for dataset, horizon in wanted:
        if (dataset, horizon) in covered:
            continue
        place = Place(setting=setting, profile=profile, variant="", dataset=dataset, horizon=horizon)
        found.append(compare(Row(place=place), number))
    return found
