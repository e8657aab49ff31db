"""The tables of a setting: both models side by side, and simple references beside them.

The overview: every table of a report in one line.

Policies compared episode by episode: a bootstrap over seeds and, within each, over fresh episodes.

A policy's return differs from episode to episode at least as much as from seed to seed, so a t interval over
a few seeds leaves most of what is known unused.

What was run, where, for how long, on which data, and the command for every number.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from aaren.datasets.catalogue import lookup
from aaren.engine.record import RunRecord
from aaren.lab.published import PublishedCell
from aaren.report.comparison import Comparison, Macro, bold, describe, show_interval, summarise_table
from aaren.report.gathered import Gathered
from aaren.report.names import (
    PAIR,
    PROFILES,
    SETTINGS,
    SHORT,
    Metric,
    is_known,
    is_stand_in,
    metric,
    model_label,
    papers_name,
)
from aaren.report.rows import Place, Row
from aaren.report.statistics import ONE_SIDED_LEVEL, Interval, Summary
from aaren.report.table import Cell, Column, Table
from aaren.rl.environments import REFERENCE_RETURNS, normalised_score

OUTCOMES = {
    "equivalent": "within the margin",
    "better": "Aaren better",
    "worse": "Aaren worse",
    "undecided": "undecided",
    "untested": "not tested",
}
_FAR = 3.0  # published deviations from the published mean that are worth a remark
_GAP = "\u2013"


def comparison_table(
    gathered: Gathered, setting: str, profile: str, variant: str | None, number: Metric
) -> Table | None:
    """Put both models side by side; with variant None all variants but the published one, each row named."""
    variants = [variant] if variant is not None else gathered.variants(setting, profile)
    chosen = [one for one in variants if variant is not None or one]
    found = [one for name in chosen for one in gathered.compare(setting, profile, name, number)]
    if not any(not one.is_gap for one in found):
        return None
    has_published = any(one.published for one in found)
    table = Table(
        name=_name(setting, profile, "variants" if variant is None else "main", number.report),
        title=number.label,
        columns=_columns(
            setting,
            is_varied=variant is None,
            has_published=has_published,
            is_regenerated=any(is_regenerated(one) for one in found),
        ),
    )
    for one in found:
        cells = _cells(one, is_varied=variant is None)
        table.add(*cells, *(_published_cells(one) if has_published else []), is_dim=one.is_gap)
    table.notes.extend(_remarks(found))
    return table


def main_tables(gathered: Gathered, setting: str, profile: str) -> list[Table]:
    """Return the paper's table by every number of which something was run at a profile as it stands."""
    found = [comparison_table(gathered, setting, profile, "", number) for number in gathered.metrics(setting)]
    return [table for table in found if table is not None]


def reference_table(gathered: Gathered, setting: str, profile: str, number: Metric) -> Table | None:
    """Show every model of every row, the best in bold: a learned model that loses is seen to lose."""
    rows = [
        row
        for row in gathered.select(setting, profile)
        if _models(row) - set(PAIR)
        and row.is_judged_by(number.report)
        and any(row.values(model, number.report) for model in row.runs)
    ]
    if not rows:
        return None
    is_varied = any(row.place.variant for row in rows)
    models = [*PAIR, *sorted({model for row in rows for model in _models(row)} - set(PAIR), key=model_label)]
    table = Table(
        name=_name(setting, profile, "references", number.report),
        title=f"{number.label}: beside simple references",
        columns=[
            Column(label=_row_head(setting), kind="text"),
            *([Column(label="changed", kind="text")] if is_varied else []),
            *(Column(label=model_label(model)) for model in models),
            Column(label="best", kind="text"),
        ],
    )
    for row in rows:
        best = best_model(row, number)
        if best is None:
            continue
        means = {model: _mean(row, model, number) for model in models}
        is_beaten = not is_ours(best) and all(means[model] is not None for model in PAIR)
        table.add(
            _place_cell(row.place),
            *([Cell.of(row.place.variant)] if is_varied else []),
            *(
                Cell(text=number.show(means[model]), key=means[model], is_bold=model == best)
                for model in models
            ),
            Cell(
                text=model_label(best) + (": both lose to it" if is_beaten else ""),
                key=model_label(best),
            ),
        )
    return table if table.rows else None


def best_model(row: Row, number: Metric, models: Iterable[str] | None = None) -> str | None:
    """Return whose mean is the best in a row, of all models or of some."""
    chosen = row.runs if models is None else models
    means = {model: _mean(row, model, number) for model in sorted(chosen)}
    known = {model: mean for model, mean in means.items() if mean is not None}
    if not known:
        return None
    return (min if number.is_lower_better else max)(known, key=lambda model: known[model])


def is_ours(model: str) -> bool:
    """Tell a learned model of ours or the Transformer from what they should beat."""
    return model in PAIR or model.startswith(("aaren", "streaming"))


def show_summary(summary: Summary | None, number: Metric) -> str:
    """Write mean ± deviation, or the one number there is.

    >>> from aaren.report.names import metric
    >>> show_summary(Summary(mean=0.5, deviation=0.01, count=3), metric("test.mse"))
    '0.500 ± 0.010'
    """
    if summary is None:
        return _GAP
    if summary.deviation is None:
        return number.show(summary.mean)
    return f"{number.show(summary.mean)} ± {number.show(summary.deviation)}"


def is_regenerated(one: Comparison) -> bool:
    """Tell whether a row is on data that was rolled out anew, in place of D4RL's."""
    return one.place.setting == "rl" and is_stand_in(one.place.dataset)


def stand_in_note(place: Place) -> str:
    """Say what the data of a row is, where it stands for a dataset of the paper."""
    name = papers_name(place.dataset)
    # The archive's TEST part of it is not at hand.
    return f"{name}, held-out part of TRAIN" if place.setting == "classification" else f"stands for {name}"


def runs_anchor(place: Place) -> str:
    """Return where on the page the runs of a setting are listed."""
    return f"#runs-{place.setting}"


def _columns(setting: str, *, is_varied: bool, has_published: bool, is_regenerated: bool) -> list[Column]:
    paper = "published, on D4RL; ours: regenerated data" if is_regenerated else "published"
    columns = [Column(label=_row_head(setting), kind="text")]
    if is_varied:
        columns.append(Column(label="changed", kind="text"))
    columns += [
        Column(label="Aaren", group="ours"),
        Column(label="Transformer", group="ours"),
        Column(label="seeds", group="ours"),
        Column(label="Aaren \u2212 Transformer [90 %]", group="difference"),
        Column(label="margin", group="difference", help="Sum of both published deviations."),
        Column(label="judgement", kind="text", group="difference"),
    ]
    if has_published:
        columns += [Column(label="Aaren", group=paper), Column(label="Transformer", group=paper)]
    return columns


def _cells(one: Comparison, *, is_varied: bool) -> list[Cell]:
    number = one.metric
    cells = [_place_cell(one.place)]
    if is_varied:
        cells.append(Cell.of(one.place.variant))
    marks = (False, False)
    if one.aaren is not None and one.transformer is not None:
        marks = bold(one.aaren, one.transformer, is_lower_better=number.is_lower_better)
    for summary, is_bold in zip((one.aaren, one.transformer), marks, strict=True):
        key = None if summary is None else summary.mean
        cells.append(Cell(text=show_summary(summary, number), key=key, is_bold=is_bold))
    cells.append(_seeds_cell(one))
    cells.append(
        Cell(
            text=_GAP if one.difference is None else show_interval(one.difference, number),
            key=None if one.difference is None else one.difference.mean,
        )
    )
    margin = None if one.is_gap else one.margin
    cells.append(Cell(text=_GAP if margin is None else f"± {number.show(margin)}", key=margin))
    cells.append(_outcome_cell(one))
    return cells


def _published_cells(one: Comparison) -> list[Cell]:
    if not one.published:
        return [Cell(text=_GAP, help=one.remark)] * len(PAIR)
    return [_published_cell(one, model, one.published.get(model)) for model in PAIR]


def _published_cell(one: Comparison, model: str, cell: PublishedCell | None) -> Cell:
    if cell is None:
        return Cell(text=_GAP)
    off = one.deviations_off(model)
    is_same = one.place.profile == "paper" and not is_stand_in(one.place.dataset)
    is_far = is_same and off is not None and abs(off) > _FAR
    return Cell(
        text=describe(cell),
        key=cell.mean,
        kind="paper",
        note=f"ours {off:+.1f} deviations off".replace("-", "\u2212") if is_far and off is not None else "",
    )


def _outcome_cell(one: Comparison) -> Cell:
    if one.difference is None:
        return Cell(text="not run" if one.is_gap else "one model only", kind="outcome untested")
    words = OUTCOMES[one.outcome]
    if one.outcome == "untested":
        words = "one seed" if one.difference.is_open else "no margin"
    help_text = "" if one.p_value is None else f"equivalence test: p = {one.p_value:.3g}"
    return Cell(text=words, key=words, kind=f"outcome {one.outcome}", help=help_text)


def _seeds_cell(one: Comparison) -> Cell:
    counts = [0 if summary is None else summary.count for summary in (one.aaren, one.transformer)]
    text = str(counts[0]) if counts[0] == counts[1] else f"{counts[0]} / {counts[1]}"
    return Cell(text=_GAP if one.is_gap else text, key=min(counts))


def _place_cell(place: Place) -> Cell:
    note = ""
    if is_stand_in(place.dataset):
        note = "regenerated data" if place.setting == "rl" else stand_in_note(place)
    key = f"{place.dataset} {place.horizon or 0:05d}"
    return Cell(text=place.name, key=key, link=runs_anchor(place), note=note)


def _remarks(found: Sequence[Comparison]) -> list[str]:
    """Say once what the data is where it is not the paper's, and why nothing published stands beside it."""
    run = [one for one in found if not one.is_gap]
    datasets = dict.fromkeys(one.place.dataset for one in run if is_known(one.place.dataset))
    remarks = [
        f"{name}: {about.remark}."
        for name, about in ((name, lookup(name)) for name in datasets)
        if about.remark and (about.is_generated or about.stands_for) and about.setting != "rl"
    ]
    reasons: dict[str, list[str]] = {}
    for one in run:
        if not one.published and one.remark:
            reasons.setdefault(one.remark, []).append(one.place.name)
    for reason, names in reasons.items():
        remarks.append(f"Nothing published beside {', '.join(dict.fromkeys(names))}: {reason}.")
    if any(is_regenerated(one) for one in run):
        remarks.append("Regenerated data: rolled out from public policies in MuJoCo -v4; it is not D4RL's.")
    return remarks


def _row_head(setting: str) -> str:
    return "dataset, horizon" if setting == "forecasting" else "dataset"


def _models(row: Row) -> set[str]:
    return set(row.runs)


def _mean(row: Row, model: str, number: Metric) -> float | None:
    values = row.values(model, number.report)
    return sum(values.values()) / len(values) if values else None


def _name(*words: str) -> str:
    return "-".join(word.replace(".", "-").replace(" ", "-") for word in words)


_ABSENT = "\u2013"


def macro_table(gathered: Gathered) -> Table:
    """Sum up every table in one line."""
    table = Table(
        name="macro",
        title="Aaren \u2212 Transformer, on average",
        columns=[
            Column(label="table", kind="text"),
            Column(label="number", kind="text"),
            Column(label="pairs"),
            Column(label="over all pairs [90 %]", help="Every dataset, horizon and seed is one observation."),
            Column(label="over datasets [90 %]", help="Every dataset is one observation: the cautious one."),
            Column(label="within"),
            Column(label="better"),
            Column(label="worse"),
            Column(label="undecided"),
            Column(label="untested", help="One seed, or no margin."),
        ],
        notes=[
            "Lower is better for MSE, MAE, NLL and RMSE, higher for accuracy and score. "
            "RMSE is averaged in percent of the Transformer's, because every dataset has its own unit."
        ],
    )
    for setting, profile, variant, macro in macros(gathered):
        name = f"{SHORT.get(setting, setting)}, {profile}"
        pairs = macro.over_pairs
        is_alone = macro.over_datasets.count == 1
        table.add(
            Cell(text=name, key=f"{name} {variant}", note=variant),
            Cell(text=f"{macro.metric.label}, in %" if macro.is_relative else macro.metric.label),
            Cell.of(pairs.count),
            Cell(text=macro.show(pairs), key=pairs.mean),
            Cell(
                text=_ABSENT if is_alone else macro.show(macro.over_datasets),
                key=None if is_alone else macro.over_datasets.mean,
            ),
            *(
                Cell.of(macro.outcomes.get(outcome, 0))
                for outcome in ("equivalent", "better", "worse", "undecided", "untested")
            ),
        )
    return table


def macros(gathered: Gathered) -> list[tuple[str, str, str, Macro]]:
    """Sum up every setting, profile, variant and number."""
    found = []
    for setting in gathered.settings():
        for profile in gathered.profiles(setting):
            for variant in gathered.variants(setting, profile):
                for number in gathered.metrics(setting):
                    macro = summarise_table(gathered.compare(setting, profile, variant, number))
                    if macro is not None:
                        found.append((setting, profile, variant, macro))
    return found


DRAWS = 2_000
_PREFIX = "return_"
_OTHERS = {"transformer": "Transformer", "bc": "cloning, same network without returns"}


def episodes_table(gathered: Gathered, profile: str) -> Table | None:
    """Show Aaren's lead over the Transformer and over behaviour cloning, with bootstrap intervals."""
    number = metric("test.score")
    table = Table(
        name=f"rl-{profile}-episodes",
        title="Score of fresh episodes, bootstrap over seeds and episodes",
        columns=[
            Column(label="dataset", kind="text"),
            Column(label="changed", kind="text"),
            Column(label="seeds"),
            Column(label="episodes"),
            *(Column(label=f"Aaren \u2212 {name} [90 %]") for name in _OTHERS.values()),
        ],
        notes=[
            "With one seed the interval knows nothing of how much seeds differ: it is of these weights alone."
        ],
    )
    for row in gathered.select("rl", profile):
        scores = {model: episode_scores(row, model) for model in ("aaren", *_OTHERS)}
        found = {other: difference(scores["aaren"], scores[other]) for other in _OTHERS}
        if not any(found.values()):
            continue
        episodes = [score for by_seed in scores["aaren"].values() for score in by_seed]
        table.add(
            Cell.of(row.place.name),
            Cell.of(row.place.variant),
            Cell.of(len(scores["aaren"])),
            Cell.of(len(episodes)),
            *(
                Cell(
                    text="\u2013" if one is None else show_interval(one, number),
                    key=None if one is None else one.mean,
                )
                for one in found.values()
            ),
        )
    return table if table.rows else None


def episode_scores(row: Row, model: str) -> dict[int, NDArray[np.float64]]:
    """Return the normalised scores of a model's fresh episodes by seed; failed episodes have none."""
    environment = str(row.facts.get("environment", ""))
    if environment.lower().partition("-")[0] not in REFERENCE_RETURNS:
        return {}
    found = {}
    for seed, run in sorted(row.runs.get(model, {}).items()):
        returns = _returns(run.record.metrics.get("test", {}))
        if returns:
            found[seed] = np.array([normalised_score(environment, total) for total in returns])
    return found


def difference(
    ours: Mapping[int, NDArray[np.float64]], theirs: Mapping[int, NDArray[np.float64]]
) -> Interval | None:
    """Return the mean lead over common seeds with its percentile interval; equal input, equal answer.

    >>> scores = {0: np.array([50.0, 52.0]), 1: np.array([51.0, 49.0])}
    >>> lead = difference(scores, {seed: values - 10.0 for seed, values in scores.items()})
    >>> lead.mean, lead.low < 10.0 < lead.high
    (10.0, True)
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    rng = np.random.default_rng(0)
    chosen = rng.integers(len(seeds), size=(DRAWS, len(seeds)))
    leads = np.empty(chosen.shape)
    for index, seed in enumerate(seeds):
        places = chosen == index  # a seed that is drawn twice has other episodes the second time
        count = int(places.sum())
        leads[places] = _resampled(ours[seed], count, rng) - _resampled(theirs[seed], count, rng)
    low, high = np.quantile(leads.mean(axis=1), [ONE_SIDED_LEVEL, 1.0 - ONE_SIDED_LEVEL])
    mean = float(np.mean([ours[seed].mean() - theirs[seed].mean() for seed in seeds]))
    return Interval(mean=mean, low=float(low), high=float(high), count=len(seeds))


def _resampled(scores: NDArray[np.float64], draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the means of so many draws of as many episodes."""
    means: NDArray[np.float64] = scores[rng.integers(len(scores), size=(draws, len(scores)))].mean(axis=1)
    return means


def _returns(metrics: Mapping[str, float | None]) -> Sequence[float]:
    return [
        float(value)
        for name, value in metrics.items()
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX).isdigit() and value is not None
    ]


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
                table.add(*_run_cells(row, model, seed, run.record))
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


def _run_cells(row: Row, model: str, seed: int, record: RunRecord) -> list[Cell]:
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
