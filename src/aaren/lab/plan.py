"""The grid: which runs there are, in which folders, and which of them are done.

One seed of every cell comes first, then the next seed: a grid that is stopped early has no missing cells.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from aaren.datasets.catalogue import lookup
from aaren.datasets.dataset import Dataset
from aaren.datasets.fetch import on_disk
from aaren.datasets.settings import BUILT_IN, setting_names
from aaren.datasets.verify import checksums
from aaren.engine.config import PROFILES, RunConfig, from_mapping
from aaren.engine.presets import make_run
from aaren.engine.record import RunRecord
from aaren.engine.run import MODEL, RECORD
from aaren.engine.setting import CellGroup, find_setting, import_setting
from aaren.engine.use import Sweep
from aaren.errors import ConfigError, UnwritableError, unknown_name
from aaren.fields import flatten, to_mapping
from aaren.lab.records import NOT_OF_CELL, Collected, collect, data_digest

MAX_SEEDS = 1000
SEEDS = {"smoke": 1, "cpu": 5, "paper": 5}  # as many as the paper's, but for a smoke test


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What part of the grid is wanted; empty means all."""

    settings: tuple[str, ...] = ()
    profile: str = "cpu"
    seeds: int | None = None  # how many; None: as many as the profile has
    models: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    shard: tuple[int, int] = (1, 1)  # part i of n

    def __post_init__(self) -> None:
        """Check what needs no registry."""
        if self.profile not in PROFILES:
            raise unknown_name("profile", self.profile, PROFILES)
        if self.seeds is not None and not 1 <= self.seeds <= MAX_SEEDS:
            raise ConfigError(f"--seeds must be 1 to {MAX_SEEDS}; got {self.seeds}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """One run of the grid: what to compute, and in which folder."""

    config: RunConfig
    folder: Path
    command: str  # what to type to run it alone
    dataset: str  # as named in the request: its files must be there
    sweeps: tuple[Sweep, ...] = ()  # further evaluations of the trained model

    @property
    def name(self) -> str:
        """Name it for display: `forecasting ETTh1 96 aaren, seed 0`."""
        cell = " ".join(map(str, self.config.cell().values()))
        return f"{self.config.setting} {cell}, seed {self.config.seed}"


@dataclass(kw_only=True, slots=True)
class GridStatus:
    """The state of every planned run: each is in exactly one of the first four lists."""

    finished: list[PlannedRun] = field(default_factory=list)
    waiting: list[PlannedRun] = field(default_factory=list)
    without_data: dict[str, list[PlannedRun]] = field(default_factory=dict)  # by dataset
    unreadable: list[tuple[PlannedRun, str]] = field(default_factory=list)  # a record that must not be lost
    unlisted: list[Path] = field(default_factory=list)  # folders of finished runs whose line is to be written

    def describe(self) -> list[str]:
        """Say what there is and what will be done, a line each."""
        absent = sum(map(len, self.without_data.values()))
        total = len(self.finished) + len(self.waiting) + absent + len(self.unreadable)
        lines = [
            f"{total} runs: {len(self.finished)} finished already, {len(self.waiting)} to run, "
            f"{absent} without data, {len(self.unreadable)} not to be touched"
        ]
        for dataset, runs in self.without_data.items():
            lines.append(f"  no data for {dataset} ({len(runs)} runs): {how_to_get(lookup(dataset))}")
        for run, reason in self.unreadable:
            path = run.folder / RECORD
            lines.append(f"  {path} is left alone: {reason}. To run it again, remove the file")
        return lines


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cell:
    setting: str
    dataset: str
    model: str
    choices: tuple[str, ...]
    is_seedless: bool


def plan(request: Request, out: Path) -> list[PlannedRun]:
    """List the runs of a request, one seed of every cell first.

    A shard takes every n-th run of the whole list, finished or not, so that shards never overlap.
    """
    cells = _cells(request)
    if not cells:
        raise ConfigError(
            f"no row of the grid has {' or '.join(request.models) or 'any model'} on "
            f"{' or '.join(request.datasets) or 'any dataset'} at profile {request.profile}: "
            "leave out --models or --datasets."
        )
    count = request.seeds or SEEDS[request.profile]
    runs = [
        _planned(cell, sweeps, profile=request.profile, seed=seed, out=out)
        for seed in range(count)
        for cell, sweeps in cells.items()
        if seed == 0 or not cell.is_seedless
    ]
    part, parts = request.shard
    return runs[part - 1 :: parts]


def parse_shard(text: str) -> tuple[int, int]:
    """Read `i/n`.

    >>> parse_shard("2/8")
    (2, 8)
    """
    first, _, second = text.partition("/")
    if first.isdecimal() and second.isdecimal() and len(text) < 20 and 1 <= int(first) <= int(second):
        return int(first), int(second)
    raise ConfigError(f"--shard must be I/N with 1 <= I <= N, such as 1/4; got {text!r}.")


def find_status(runs: Sequence[PlannedRun], out: Path) -> GridStatus:
    """Compare planned runs with the records in a folder and with the data on disk.

    A record counts for every planned run that computes the same by the same protocol from the same data,
    whatever its folder was called; where only a sweep is missing, and the run's folder still has the model,
    the run waits for that. A run that failed waits again. A record that cannot be read is never overwritten:
    it may be a newer version's.
    """
    try:
        collected = collect(out) if out.is_dir() else Collected(records=[], problems=[], unlisted=[])
    except PermissionError as error:
        raise UnwritableError(f"cannot write to {out}: {error}. Choose another place.") from error
    done: dict[str, list[RunRecord]] = {}
    for record in collected.records:
        done.setdefault(_record_identity(record), []).append(record)
    problems = {problem.path.parent: problem for problem in collected.problems if not problem.is_failure}
    status = GridStatus(unlisted=collected.unlisted)
    digests: dict[str, dict[str, str]] = {}  # checksums by dataset
    for run in runs:
        records = done.get(_identity(run.config), [])
        if records and run.dataset not in digests:
            digests[run.dataset] = _checksums(run)
        on_disk_now = digests.get(run.dataset, {})
        finished = next((record for record in reversed(records) if _is_of_data(record, on_disk_now)), None)
        if finished is None and records and (run.folder / RECORD).is_file() and run.folder not in problems:
            # The folder holds a run of other data, which must not be lost.
            digest = data_digest(on_disk_now)
            run = replace(run, folder=run.folder.with_name(f"{run.folder.name}-data{digest}"))
        if finished is not None and not (_lacks_a_sweep(run, finished) and _has_data(run)):
            status.finished.append(run)
        elif finished is None and run.folder in problems:
            status.unreadable.append((run, problems[run.folder].reason))
        elif _has_data(run):
            status.waiting.append(run)
        else:
            status.without_data.setdefault(run.dataset, []).append(run)
    return status


def how_to_get(dataset: Dataset) -> str:
    """Say in a few words how to get a dataset's files.

    >>> how_to_get(lookup("ETTh1"))
    'aaren data fetch ETTh1'
    """
    if dataset.urls:
        return f"aaren data fetch {dataset.name}"
    if dataset.source.startswith(("aaren ", "python ")):
        return dataset.source
    return f"no download is known: {dataset.remark or dataset.source}"


def chosen_settings(request: Request) -> list[str]:
    """Choose the settings: those named, else those of the named datasets, else all that have a grid."""
    if request.settings:
        for name in request.settings:
            import_setting(name)
        return list(dict.fromkeys(request.settings))
    of_datasets = dict.fromkeys(lookup(name).setting for name in request.datasets)
    names = [name for name in setting_names() if find_setting(name).grid(request.profile)]
    return list(of_datasets) or sorted(names, key=lambda name: find_setting(name).grid_place)


def _cells(request: Request) -> dict[_Cell, tuple[str, ...]]:
    """Return every cell once, with the sweeps of all groups that it is in."""
    groups = {setting: _groups(setting, request.profile) for setting in chosen_settings(request)}
    known = {model for listed in groups.values() for group in listed for model in group.models}
    for model in request.models:
        if model not in known:
            raise unknown_name("model", model, known)
    if request.datasets:
        chosen = _datasets(request.datasets, groups)
        groups = {setting: _narrowed(listed, chosen[setting]) for setting, listed in groups.items()}
    cells: dict[_Cell, tuple[str, ...]] = {}
    for setting, listed in groups.items():
        for group in listed:
            for cell in _product(setting, group, request):
                cells[cell] = tuple(dict.fromkeys((*cells.get(cell, ()), *group.sweeps)))
    return cells


def _groups(setting: str, profile: str) -> list[CellGroup]:
    groups = import_setting(setting).grid(profile)
    if not groups:
        raise ConfigError(
            f"the setting {setting!r} has no grid(profile): run its cells one by one with `aaren train`."
        )
    return list(groups)


def _datasets(names: Sequence[str], groups: Mapping[str, Sequence[CellGroup]]) -> dict[str, list[str]]:
    """Sort the wanted datasets by setting, in the registry's spelling."""
    chosen: dict[str, list[str]] = {setting: [] for setting in groups}
    for name in names:
        others = [setting for setting in groups if setting not in BUILT_IN and _is_in(groups[setting], name)]
        row = None if others else lookup(name)
        setting, spelled = (others[0], name) if row is None else (row.setting, row.name)
        if setting not in chosen:
            raise ConfigError(
                f"{spelled} is a dataset of {setting}, and only {', '.join(groups)} was asked for: "
                f"aaren reproduce {setting} --datasets {spelled}"
            )
        chosen[setting].append(spelled)
    return chosen


def _narrowed(groups: Sequence[CellGroup], datasets: Sequence[str]) -> list[CellGroup]:
    """Narrow every group to the wanted datasets; one that is in none is run as the first group's are."""
    others = [name for name in datasets if not _is_in(groups, name)]
    return [
        replace(group, datasets=tuple(name for name in datasets if name in (*group.datasets, *added)))
        for group, added in zip(groups, [others, *[[]] * len(groups)], strict=False)
    ]


def _is_in(groups: Sequence[CellGroup], dataset: str) -> bool:
    return any(dataset in group.datasets for group in groups)


def _product(setting: str, group: CellGroup, request: Request) -> Iterator[_Cell]:
    models = [model for model in group.models if not request.models or model in request.models]
    for choices, dataset, model in product(group.choices, group.datasets, models):
        yield _Cell(
            setting=setting,
            dataset=dataset,
            model=model,
            choices=choices,
            is_seedless=model in group.seedless,
        )


def _planned(cell: _Cell, sweeps: Sequence[str], *, profile: str, seed: int, out: Path) -> PlannedRun:
    config = make_run(
        cell.setting, cell.dataset, model=cell.model, profile=profile, seed=seed, assignments=cell.choices
    )
    words = ["aaren", "train", cell.setting, cell.dataset, "--model", cell.model]
    words += ["--profile", profile, "--seed", str(seed)]
    words += [word for choice in cell.choices for word in ("--set", choice)]
    return PlannedRun(
        config=config,
        folder=out / config.setting / config.folder_name(),
        command=shlex.join(words),
        dataset=cell.dataset,
        sweeps=tuple(map(Sweep.parse, sweeps)),
    )


def _identity(config: RunConfig) -> str:
    """Return what two runs share that compute the same numbers, whatever their folders are called."""
    values = flatten(to_mapping(config))
    return json.dumps({key: value for key, value in values.items() if key not in NOT_OF_CELL}, sort_keys=True)


def _record_identity(record: RunRecord) -> str:
    """Return what a record's run computed; one whose config this version cannot build matches nothing."""
    try:
        config = from_mapping(record.config)
    except ConfigError:
        return ""
    return _identity(config) if config.protocol == record.protocol else ""


def _is_of_data(record: RunRecord, digests: Mapping[str, str]) -> bool:
    """Tell whether a run read these files; a file that is not on disk now is not compared."""
    return all(digests.get(name, digest) == digest for name, digest in record.data.items())


def _has_data(run: PlannedRun) -> bool:
    if run.config.setting not in BUILT_IN:
        return True  # a user's own setting knows its own data
    dataset = lookup(run.dataset)
    return dataset.is_generated or bool(on_disk(dataset, or_shipped=True))


def _checksums(run: PlannedRun) -> dict[str, str]:
    return checksums(lookup(run.dataset)) if run.config.setting in BUILT_IN and _has_data(run) else {}


def _lacks_a_sweep(run: PlannedRun, record: RunRecord) -> bool:
    """Tell whether a finished run still has to be swept; one without its weights cannot be."""
    return (run.folder / MODEL).is_dir() and any(sweep.key not in record.sweeps for sweep in run.sweeps)
