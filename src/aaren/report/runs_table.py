"""What was run, where, for how long, on which data, and the command for every number."""

from collections.abc import Iterable

from aaren.report.gathered import Gathered
from aaren.report.names import PROFILES, SETTINGS, metric, model_label
from aaren.report.rows import Row
from aaren.report.table import Cell, Column, Table
from aaren.train.record import RunRecord


def runs_table(gathered: Gathered, setting: str) -> Table:
    """List every run of a setting with the command that repeats it."""
    table = Table(
        name=f"runs-{setting}",
        title="",
        columns=[
            Column(label="dataset", kind="text"),
            Column(label="model", kind="text"),
            Column(label="profile", kind="text"),
            Column(label="seed"),
            Column(label="number"),
            Column(label="epochs"),
            Column(label="ended by", kind="text"),
            Column(label="minutes"),
            Column(label="parameters"),
            Column(label="command", kind="text"),
        ],
    )
    for row in (row for row in gathered.rows if row.place.setting == setting):
        for model, by_seed in sorted(row.runs.items()):
            for seed, run in sorted(by_seed.items()):
                table.add(*_cells(row, model, seed, run.record))
    return table


def work_table(gathered: Gathered) -> Table:
    """Say how many runs of each kind there are and how long they took together."""
    table = Table(
        name="work",
        title="",
        columns=[
            Column(label="setting", kind="text"),
            Column(label="profile", kind="text"),
            Column(label="runs"),
            Column(label="datasets"),
            Column(label="most seeds"),
            Column(label="hours in all"),
            Column(label="longest, minutes"),
        ],
    )
    for setting in gathered.settings():
        for profile in gathered.profiles(setting):
            rows = gathered.select(setting, profile)
            records = [record for row in rows for record in row.records]
            minutes = [total_seconds(record) / 60.0 for record in records]
            seeds = max(len(by_seed) for row in rows for by_seed in row.runs.values())
            datasets = {row.place.dataset for row in rows}
            table.add(
                Cell(text=SETTINGS.get(setting, setting), key=setting),
                Cell(text=profile, key=PROFILES.index(profile) if profile in PROFILES else len(PROFILES)),
                Cell.of(len(records)),
                Cell.of(len(datasets)),
                Cell.of(seeds),
                Cell(text=f"{sum(minutes) / 60.0:.2f}", key=sum(minutes)),
                Cell(text=f"{max(minutes):.1f}", key=max(minutes)),
            )
    return table


def data_table(gathered: Gathered) -> Table:
    """List every data file that a run read, with its checksum."""
    table = Table(
        name="data",
        title="Data files",
        columns=[
            Column(label="file", kind="text"),
            Column(label="sha256 of its content", kind="text"),
            Column(label="runs"),
        ],
        notes=["Generated datasets need no file: their seed is in the code."],
    )
    counts: dict[tuple[str, str], int] = {}
    for record in _records(gathered):
        for item in record.data.items():
            counts[item] = counts.get(item, 0) + 1
    for (name, digest), count in sorted(counts.items()):
        table.add(
            Cell.of(name),
            Cell.of(digest, is_code=True),
            Cell.of(count),
        )
    return table


def machine_table(gathered: Gathered) -> Table:
    """List the machines and versions that runs and benchmarks were made on."""
    table = Table(
        name="machines",
        title="Machines and versions",
        columns=[
            Column(label="processor", kind="text"),
            Column(label="cores"),
            Column(label="memory, GB"),
            Column(label="versions", kind="prose"),
            Column(label="runs"),
            Column(label="from", kind="text"),
            Column(label="to", kind="text"),
        ],
    )
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for record in _records(gathered):
        about = record.machine
        memory = about.get("memory_bytes")
        gigabytes = f"{memory / 1e9:.0f}" if isinstance(memory, int | float) else "\u2013"
        versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
        where = (str(about.get("cpu")), str(about.get("cores")), gigabytes, versions)
        groups.setdefault(where, []).append(record.date[:10])
    for (cpu, cores, gigabytes, versions), dates in groups.items():
        table.add(
            Cell.of(cpu),
            Cell.of(cores),
            Cell.of(gigabytes),
            Cell.of(versions),
            Cell.of(len(dates)),
            Cell.of(min(dates)),
            Cell.of(max(dates)),
        )
    return table


def total_seconds(record: RunRecord) -> float:
    """Return how long a run took, looks and checkpoints included."""
    return sum(record.seconds.get(name, 0.0) for name in ("training", "looking", "saving"))


def _cells(row: Row, model: str, seed: int, record: RunRecord) -> list[Cell]:
    number = metric(next(iter(record.reports), ""))
    value = row.values(model, number.report).get(seed)
    minutes = total_seconds(record) / 60.0
    key = f"{row.place.dataset} {row.place.horizon or 0:05d}"
    return [
        Cell(text=row.place.name, key=key, note=row.place.variant),
        Cell.of(model_label(model)),
        Cell.of(record.profile),
        Cell.of(seed),
        Cell(text=number.show(value), key=value),
        Cell(text=f"{record.epochs:g}", key=record.epochs),
        Cell(text=record.ended_by.replace("_", " "), key=record.ended_by),
        Cell(text=f"{minutes:.1f}", key=minutes),
        Cell(text=f"{record.parameters:,}", key=record.parameters),
        Cell.of(record.command, is_code=True),
    ]


def _records(gathered: Gathered) -> Iterable[RunRecord]:
    return (record for row in gathered.rows for record in row.records)
