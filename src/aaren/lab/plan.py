"""The grid: which runs there are, in which folders, which of them are done, and how long the rest may take.

One seed of every cell comes first, then the next seed: a grid that is stopped early has no missing cells.
"""

import json
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Literal

from aaren.datasets.catalogue import lookup
from aaren.datasets.dataset import Dataset
from aaren.datasets.fetch import on_disk
from aaren.datasets.settings import BUILT_IN, setting_names
from aaren.datasets.verify import checksums
from aaren.engine.config import PROFILES, RunConfig, from_record
from aaren.engine.presets import make_run
from aaren.engine.record import RunRecord
from aaren.engine.run import MODEL, RECORD
from aaren.engine.setting import CellGroup, find_setting, import_setting
from aaren.engine.use import Sweep
from aaren.errors import ConfigError, unknown_name
from aaren.fields import flatten, to_mapping
from aaren.lab.margins import fixed_margin
from aaren.lab.published import MODELS
from aaren.lab.records import NOT_OF_CELL, Collected, collect, data_digest, seconds_of
from aaren.lab.statistics import half_width, interval, judge, summarise

MAX_SEEDS = 1000
FIRST_SEEDS, AUTO_SEEDS = 3, 5  # of --seeds auto
SEEDS = {"smoke": 1, "cpu": 5, "paper": 5}  # as many as the paper's, but for a smoke test


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What part of the grid is wanted; empty means all."""

    settings: tuple[str, ...] = ()
    profile: str = "cpu"
    seeds: int | Literal["auto"] | None = None  # how many; None: as many as the profile has; auto: see `plan`
    models: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    shard: tuple[int, int] = (1, 1)  # part i of n
    main_rows: bool = False  # only the first group of each setting's grid: no variants, no sweeps of them

    def __post_init__(self) -> None:
        """Check what needs no registry."""
        if self.profile not in PROFILES:
            raise unknown_name("profile", self.profile, PROFILES)
        if self.seeds not in (None, "auto") and not 1 <= int(self.seeds) <= MAX_SEEDS:
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


def identity(config: RunConfig) -> str:
    """Return what two runs share that compute the same numbers, whatever their folders are called."""
    values = flatten(to_mapping(config))
    return json.dumps({key: value for key, value in values.items() if key not in NOT_OF_CELL}, sort_keys=True)


def plan(request: Request, out: Path) -> list[PlannedRun]:
    """List the runs of a request, one seed of every cell first.

    With `seeds="auto"` Aaren and the Transformer get three seeds, and five where the records in `out` say
    that five can decide what three do not (`needs_more_seeds`); all other models get one.

    A shard takes every n-th run of the whole list, finished or not, so that shards never overlap.
    """
    cells = _cells(request)
    if not cells:
        raise ConfigError(
            f"no row of the grid has {' or '.join(request.models) or 'any model'} on "
            f"{' or '.join(request.datasets) or 'any dataset'} at profile {request.profile}: "
            "leave out --models or --datasets."
        )

    def planned(cell: _Cell, seed: int) -> PlannedRun:
        return _planned(cell, cells[cell], profile=request.profile, seed=seed, out=out)

    if request.seeds == "auto":
        counts = _auto_seeds(cells, planned, out)
    else:
        counts = dict.fromkeys(cells, request.seeds or SEEDS[request.profile])
    counts = {cell: 1 if cell.is_seedless else count for cell, count in counts.items()}
    runs = [
        planned(cell, seed) for seed in range(max(counts.values())) for cell in cells if seed < counts[cell]
    ]
    part, parts = request.shard
    return runs[part - 1 :: parts]


def parse_seeds(text: str) -> int | Literal["auto"] | None:
    """Read the number of seeds, or `auto`; nothing: as many as the profile has.

    >>> parse_seeds("5"), parse_seeds("auto"), parse_seeds("")
    (5, 'auto', None)
    """
    if text == "auto":
        return "auto"
    if not text:
        return None
    if text.isdecimal() and len(text) < 20:
        return int(text)
    raise ConfigError(f"--seeds must be a number or auto; got {text!r}.")


def needs_more_seeds(aaren: Sequence[RunRecord], transformer: Sequence[RunRecord], report: str) -> bool:
    """Tell whether a row is open after its first seeds, and five seeds can narrow its interval enough.

    That is, if five seeds' interval, with today's standard deviation, is narrower than the margin on either
    side. Where it is not, more than five would be needed, and the row stays open.
    """
    ours, theirs = ({run.seed: run.metric(report) for run in runs} for runs in (aaren, transformer))
    seeds = sorted(ours.keys() & theirs.keys())
    if len(seeds) < FIRST_SEEDS:
        return False
    differences = [ours[seed] - theirs[seed] for seed in seeds]
    name = report.rpartition(".")[2]
    level = fmean(theirs[seed] for seed in seeds)
    margin = fixed_margin(name, transformer=level, facts=transformer[0].facts)
    deviation = summarise(differences).deviation
    if margin is None or deviation is None or not math.isfinite(deviation):
        return False
    return judge(interval(differences), margin) == "undecided" and half_width(deviation, AUTO_SEEDS) < margin


def _auto_seeds(
    cells: Iterable["_Cell"], planned: Callable[["_Cell", int], PlannedRun], out: Path
) -> dict["_Cell", int]:
    """Return how many seeds each cell gets: three or five for a pair, else one."""
    records = {_identity(record): record for record in (collect(out).records if out.is_dir() else [])}
    counts: dict[_Cell, int] = {}
    for cell in cells:
        if cell.model not in MODELS:
            counts[cell] = 1
            continue
        aaren, transformer = (
            [
                records[key]
                for seed in range(FIRST_SEEDS)
                if (key := identity(planned(replace(cell, model=model), seed).config)) in records
            ]
            for model in MODELS
        )
        is_open = needs_more_seeds(aaren, transformer, find_setting(cell.setting).reports[0])
        counts[cell] = AUTO_SEEDS if is_open else FIRST_SEEDS
    return counts


def parse_shard(text: str) -> tuple[int, int]:
    """Read `i/n`.

    >>> parse_shard("2/8")
    (2, 8)
    """
    first, _, second = text.partition("/")
    if first.isdecimal() and second.isdecimal() and len(text) < 20 and 1 <= int(first) <= int(second):
        return int(first), int(second)
    raise ConfigError(f"shard must be I/N with 1 <= I <= N, such as 1/4; got {text!r}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cell:
    setting: str
    dataset: str
    model: str
    choices: tuple[str, ...]
    is_seedless: bool


def _cells(request: Request) -> dict[_Cell, tuple[str, ...]]:
    """Return every cell once, with the sweeps of all groups that it is in."""
    settings = chosen_settings(request)
    groups = {setting: _groups(setting, request.profile) for setting in settings}
    if request.main_rows:
        groups = {setting: found[:1] for setting, found in groups.items()}
    known = {model for found in groups.values() for group in found for model in group.models}
    for model in request.models:
        if model not in known:
            raise unknown_name("model", model, known)
    if request.datasets:
        chosen = _datasets(request.datasets, groups)
        groups = {setting: _narrowed(groups[setting], chosen[setting]) for setting in settings}
    found: dict[_Cell, tuple[str, ...]] = {}
    for setting in settings:
        for group in groups[setting]:
            for cell in _product(setting, group, request):
                found[cell] = tuple(dict.fromkeys((*found.get(cell, ()), *group.sweeps)))
    return found


def _groups(setting: str, profile: str) -> list[CellGroup]:
    groups = import_setting(setting).grid(profile)
    if not groups:
        raise ConfigError(
            f"the setting {setting!r} has no grid(profile): run its cells one by one with `aaren train`."
        )
    return list(groups)


def chosen_settings(request: Request) -> list[str]:
    """Choose the settings: those named, else those of the named datasets, else all that have a grid."""
    if request.settings:
        for name in request.settings:
            import_setting(name)
        return list(dict.fromkeys(request.settings))
    of_datasets = dict.fromkeys(lookup(name).setting for name in request.datasets)
    names = [name for name in setting_names() if find_setting(name).grid(request.profile)]
    return list(of_datasets) or sorted(names, key=lambda name: find_setting(name).grid_place)


def _datasets(names: Sequence[str], groups: Mapping[str, Sequence[CellGroup]]) -> dict[str, list[str]]:
    """Sort the wanted datasets by setting, in the registry's spelling."""
    found: dict[str, list[str]] = {setting: [] for setting in groups}
    for name in names:
        own = [setting for setting in groups if setting not in BUILT_IN and _is_in(groups[setting], name)]
        row = None if own else lookup(name)
        setting, spelled = (own[0], name) if row is None else (row.setting, row.name)
        if setting not in found:
            raise ConfigError(
                f"{spelled} is a dataset of {setting}, and only {', '.join(groups)} was asked for: "
                f"aaren reproduce {setting} --datasets {spelled}"
            )
        found[setting].append(spelled)
    return found


def _narrowed(groups: Sequence[CellGroup], datasets: Sequence[str]) -> list[CellGroup]:
    """Keep the wanted datasets of every group; one that is in none is measured as the first group's are."""
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


@dataclass(kw_only=True, slots=True)
class GridStatus:
    """The state of every planned run: each is in exactly one of the first five lists."""

    finished: list[PlannedRun] = field(default_factory=list)
    failed: list[tuple[PlannedRun, str]] = field(default_factory=list)  # earlier, and why
    unreadable: list[tuple[PlannedRun, str]] = field(default_factory=list)  # a record that must not be lost
    without_data: dict[str, list[PlannedRun]] = field(default_factory=dict)  # by dataset
    waiting: list[PlannedRun] = field(default_factory=list)
    estimates: dict[Path, float] = field(default_factory=dict)  # seconds by folder, of waiting runs
    unlisted: list[Path] = field(default_factory=list)  # folders of finished runs whose line is to be written


def find_status(runs: Sequence[PlannedRun], out: Path, *, retry_failed: bool = False) -> GridStatus:
    """Compare planned runs with a results folder and with the data on disk.

    A record counts for every planned run that computes the same by the same protocol from the same data,
    whatever its folder was called and with however many threads it was run; where only a sweep is missing,
    and the run's folder still has the model, the run waits for that. A record that cannot be read is never
    overwritten: it may be a newer version's.
    """
    collected = collect(out) if out.is_dir() else Collected(records=[], problems=[], unlisted=[])
    done: dict[str, list[RunRecord]] = {}
    for record in collected.records:
        done.setdefault(_identity(record), []).append(record)
    problems = {problem.path.parent: problem for problem in collected.problems}
    found = GridStatus(unlisted=collected.unlisted)
    has_data: dict[str, bool] = {}
    on_disk_now: dict[str, dict[str, str]] = {}  # checksums by dataset
    for planned in runs:
        same = done.get(identity(planned.config), [])
        if same and planned.dataset not in on_disk_now:
            on_disk_now[planned.dataset] = _checksums(planned)
        now = on_disk_now.get(planned.dataset, {})
        finished = next((record for record in reversed(same) if is_of_data(record, now)), None)
        run = planned
        if finished is None and same and (run.folder / RECORD).is_file() and run.folder not in problems:
            # The folder holds a run of other data, which must not be lost.
            run = replace(planned, folder=run.folder.with_name(f"{run.folder.name}-data{data_digest(now)}"))
        problem = problems.get(run.folder)
        if finished is not None and _lacks_a_sweep(run, finished) and _has_data(run):
            found.waiting.append(run)
        elif finished is not None:
            found.finished.append(run)
        elif problem is not None and not problem.is_failure:
            found.unreadable.append((run, problem.reason))
        elif problem is not None and not retry_failed:
            found.failed.append((run, problem.reason))
        elif has_data.setdefault(run.dataset, _has_data(run)):
            found.waiting.append(run)
        else:
            found.without_data.setdefault(run.dataset, []).append(run)
    found.estimates = estimate(found.waiting, collected.records)
    return found


def is_of_data(record: RunRecord, checksums: Mapping[str, str]) -> bool:
    """Tell whether a run read these files; a file that is not on disk now is not compared."""
    return all(checksums.get(name, digest) == digest for name, digest in record.data.items())


def estimate(runs: Sequence[PlannedRun], records: Sequence[RunRecord]) -> dict[Path, float]:
    """Return, by folder, the mean seconds of earlier runs of the same cell; without any, no entry."""
    known: dict[str, list[float]] = {}
    for record in records:
        known.setdefault(cell_key(record.setting, record.profile, record.cell), []).append(seconds_of(record))
    keys = {run.folder: cell_key(run.config.setting, run.config.profile, run.config.cell()) for run in runs}
    return {folder: fmean(known[key]) for folder, key in keys.items() if key in known}


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


def cell_key(setting: str, profile: str, cell: Mapping[str, str | int]) -> str:
    """Return what the runs of one cell at one profile share."""
    return json.dumps([setting, profile, dict(cell)], sort_keys=True)


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


def _identity(record: RunRecord) -> str:
    """Return what a record's run computed; one whose config this version cannot build matches nothing."""
    try:
        config = from_record(record.config)
    except ConfigError:
        return ""
    return identity(config) if config.protocol == record.protocol else ""
