"""All tables of a report: the overview, both models side by side, baselines beside them, and what was run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aaren.datasets.catalogue import lookup
from aaren.engine.record import RunRecord
from aaren.lab.margins import WORDS
from aaren.lab.published import PublishedCell
from aaren.lab.records import core_seconds, is_stale
from aaren.lab.statistics import Interval, Summary, bootstrap_difference
from aaren.report.comparison import (
    OUTCOMES,
    AverageDifference,
    Comparison,
    average_difference,
    compare_rows,
    describe,
    show_interval,
)
from aaren.report.names import (
    GAP,
    PAIR,
    PROFILES,
    Metric,
    is_known,
    is_ours,
    is_stand_in,
    metric,
    model_label,
    setting_of,
    short_title_of,
    stand_in_note,
    stand_in_origin,
    title_of,
)
from aaren.report.rows import Results, Row, RowKey
from aaren.table import Cell, Column, Table

_FAR = 3.0  # published standard deviations from the published mean that are worth a remark
_TIMES = (
    "Times are CPU seconds of the run, evaluations and checkpoints included, the test not; of records "
    "that hold no CPU seconds they are wall time, other work on the machine included."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileTables:
    """All tables of a setting at a profile."""

    main: list[Table]  # the paper's table, by every number
    samples: list[Table]  # single observations, such as episodes
    changed: list[Table]  # rows in which something differs from the published protocol
    baselines: list[Table]


def profile_tables(results: Results, setting: str, profile: str) -> ProfileTables:
    """Make all tables of which something was run."""
    metrics = results.metrics(setting)
    changed = [comparison_table(results, setting, profile, None, number) for number in metrics]
    extra = map(metric, setting_of(setting).extra_reports)
    baselines = [baseline_table(results, setting, profile, number) for number in (*metrics, *extra)]
    samples = samples_table(results, setting, profile)
    return ProfileTables(
        main=main_tables(results, setting, profile),
        samples=[] if samples is None else [samples],
        changed=[table for table in changed if table is not None],
        baselines=[table for table in baselines if table is not None],
    )


def main_tables(results: Results, setting: str, profile: str) -> list[Table]:
    """Return the paper's table by every number of which something was run at a profile as it stands."""
    found = [comparison_table(results, setting, profile, "", number) for number in results.metrics(setting)]
    return [table for table in found if table is not None]


def comparison_table(
    results: Results, setting: str, profile: str, variant: str | None, number: Metric
) -> Table | None:
    """Put both models side by side; with variant None all variants but the published one, each row named."""
    is_varied = variant is None
    chosen = [name for name in results.variants(setting, profile) if name] if variant is None else [variant]
    found = [one for name in chosen for one in compare_rows(results, setting, profile, name, number)]
    if all(one.is_gap for one in found):
        return None
    has_published = any(one.published for one in found)
    paper = "published"
    if origin := origin_of(found):
        paper += f", on {origin}; ours: {setting_of(setting).stand_in_note}"
    table = Table(
        name=_name(setting, profile, "variants" if is_varied else "main", number.report),
        title=number.label,
        columns=[
            _text(_row_head(one.key for one in found)),
            *([_text("changed")] if is_varied else []),
            Column(label="Aaren", group="ours"),
            Column(label="Transformer", group="ours"),
            Column(label="seeds", group="ours"),
            Column(label="Aaren \u2212 Transformer [90 %]", group="difference"),
            Column(label="margin", group="difference", help=f"Fixed before the runs: {WORDS}."),
            Column(
                label="published margin",
                group="difference",
                help="Sum of both published standard deviations; nothing is judged by it.",
            ),
            Column(label="judgement", kind="text", group="difference"),
            *(Column(label=model_label(model), group=paper) for model in PAIR if has_published),
        ],
    )
    for one in found:
        margins = (None, None) if one.is_gap else (one.margin, one.published_margin)
        table.add(
            _name_cell(one.key),
            *([Cell.of(one.key.variant)] if is_varied else []),
            *summary_cells(one),
            Cell(text=show_interval(one.difference, number), key=_mean_of(one.difference)),
            *(
                Cell(text=GAP if margin is None else f"± {number.show(margin)}", key=margin)
                for margin in margins
            ),
            _judgement_cell(one),
            *(_published_cell(one, model, one.published.get(model)) for model in PAIR if has_published),
            is_dim=one.is_gap,
        )
    table.notes.extend(_remarks(found))
    return table


def summary_cells(one: Comparison) -> list[Cell]:
    """Show both models' numbers, bold by the paper's rule, and how many seeds they are of."""
    cells = [
        Cell(text=show_summary(summary, one.metric), key=_mean_of(summary), is_bold=is_bold)
        for summary, is_bold in zip((one.aaren, one.transformer), one.bold, strict=True)
    ]
    aaren, transformer = one.seeds
    seeds = str(aaren) if aaren == transformer else f"{aaren} / {transformer}"
    return [*cells, Cell(text=GAP if one.is_gap else seeds, key=min(one.seeds))]


def show_summary(summary: Summary | None, number: Metric) -> str:
    """Write mean ± standard deviation, or the one number there is.

    >>> show_summary(Summary(mean=0.5, deviation=0.01, count=3), metric("test.mse"))
    '0.500 ± 0.010'
    """
    if summary is None:
        return GAP
    if summary.deviation is None:
        return number.show(summary.mean)
    return f"{number.show(summary.mean)} ± {number.show(summary.deviation)}"


def baseline_table(results: Results, setting: str, profile: str, number: Metric) -> Table | None:
    """Show every model of every row, the best in bold."""
    rows = [
        row
        for row in results.select(setting, profile)
        if row.runs.keys() - set(PAIR) and row.is_judged_by(number.report) and best_model(row, number)
    ]
    if not rows:
        return None
    is_varied = any(row.key.variant for row in rows)
    others = {model for row in rows for model in row.runs} - set(PAIR)
    models = [*PAIR, *sorted(others, key=model_label)]
    table = Table(
        name=_name(setting, profile, "references", number.report),
        title=f"{number.label}: beside simple references",
        columns=[
            _text(_row_head(row.key for row in rows)),
            *([_text("changed")] if is_varied else []),
            *(Column(label=model_label(model)) for model in models),
            _text("best"),
        ],
    )
    for row in rows:
        best = best_model(row, number) or ""
        means = {model: _mean(row, model, number) for model in models}
        is_beaten = not is_ours(best) and all(means[model] is not None for model in PAIR)
        table.add(
            _name_cell(row.key),
            *([Cell.of(row.key.variant)] if is_varied else []),
            *(Cell(text=number.show(mean), key=mean, is_bold=model == best) for model, mean in means.items()),
            Cell(text=model_label(best) + (": both lose to it" if is_beaten else ""), key=model_label(best)),
        )
    return table


def best_model(row: Row, number: Metric, models: Iterable[str] | None = None) -> str | None:
    """Return whose mean is the best in a row, of all models or of some."""
    means = {model: _mean(row, model, number) for model in sorted(row.runs if models is None else models)}
    known = {model: mean for model, mean in means.items() if mean is not None}
    if not known:
        return None
    return (min if number.is_lower_better else max)(known, key=lambda model: known[model])


def origin_of(found: Iterable[Comparison]) -> str:
    """Say what published numbers are of, where ours are on data that was made in its place; else nothing."""
    return next(filter(None, (stand_in_origin(one.key.setting, one.key.dataset) for one in found)), "")


def overview_table(results: Results) -> Table:
    """Sum up every table in one line."""
    table = Table(
        name="overview",
        title="Aaren \u2212 Transformer, on average",
        columns=[
            _text("table"),
            _text("number"),
            Column(label="pairs"),
            Column(label="over all pairs [90 %]", help="Every dataset, horizon and seed is one observation."),
            Column(label="over datasets [90 %]", help="Every dataset is one observation: the cautious one."),
            *_numbers("within", "better, within", "worse, within", "better", "worse", "open"),
            Column(label="untested", help="One seed, or no margin."),
        ],
        notes=[
            "Lower is better for MSE, MAE, NLL and RMSE, higher for accuracy and score. "
            "RMSE is averaged in percent of the Transformer's, because every dataset has its own unit."
        ],
    )
    for setting, profile, variant, average in _averages(results):
        name = f"{short_title_of(setting)}, {profile}"
        pairs, datasets = average.over_pairs, average.over_datasets
        is_alone = datasets.count == 1
        table.add(
            Cell(text=name, key=f"{name} {variant}", note=variant),
            Cell(text=f"{average.metric.label}, in %" if average.is_relative else average.metric.label),
            Cell.of(pairs.count),
            Cell(text=average.show(pairs), key=pairs.mean),
            Cell(text=GAP) if is_alone else Cell(text=average.show(datasets), key=datasets.mean),
            *(Cell.of(average.outcomes.get(outcome, 0)) for outcome in OUTCOMES),
        )
    return table


def samples_table(results: Results, setting: str, profile: str) -> Table | None:
    """Compare models by single observations: a bootstrap over seeds and, within each, over observations."""
    about = setting_of(setting).sample_table
    if about is None:
        return None
    number = metric(about.report)
    table = Table(
        name=_name(setting, profile, about.name),
        title=about.title,
        columns=[
            _text("dataset"),
            _text("changed"),
            *_numbers("seeds", about.name),
            *_numbers(*(f"Aaren \u2212 {name} [90 %]" for name in about.baselines.values())),
        ],
        notes=[about.note] if about.note else [],
    )
    for row in results.select(setting, profile):
        ours = samples_by_seed(row, "aaren")
        leads = [bootstrap_difference(ours, samples_by_seed(row, other)) for other in about.baselines]
        if any(leads):
            table.add(
                Cell.of(row.key.name),
                Cell.of(row.key.variant),
                Cell.of(len(ours)),
                Cell.of(sum(len(scores) for scores in ours.values())),
                *(Cell(text=show_interval(lead, number), key=_mean_of(lead)) for lead in leads),
            )
    return table if table.rows else None


def samples_by_seed(row: Row, model: str) -> dict[int, NDArray[np.float64]]:
    """Return the single observations of a model's runs by seed, of the runs that have any."""
    samples, facts = setting_of(row.key.setting).samples, row.facts
    found = {seed: samples(run.metrics.get("test", {}), facts) for seed, run in row.by_seed(model)}
    return {seed: np.array(values) for seed, values in found.items() if values}


def runs_table(results: Results, setting: str) -> Table:
    """List every run of a setting with the command that repeats it."""
    table = Table(
        name=f"runs-{setting}",
        title="",
        columns=[
            *(_text(label) for label in ("dataset", "model", "profile")),
            *_numbers("seed", "number", "epochs"),
            _text("ended by"),
            *_numbers("minutes", "parameters"),
            _text("code"),
            _text("command"),
        ],
    )
    for row in results.select(setting):
        for model in sorted(row.runs):
            for seed, record in row.by_seed(model):
                number = metric(next(iter(record.reports), ""))
                value = row.values(model, number.report).get(seed)
                minutes = core_seconds(record) / 60.0
                table.add(
                    Cell(text=row.key.name, key=_sort_key(row.key), note=row.key.variant),
                    Cell.of(model_label(model)),
                    Cell.of(record.profile),
                    Cell.of(seed),
                    Cell(text=number.show(value), key=value),
                    Cell(text=f"{record.epochs:g}", key=record.epochs),
                    Cell(text=record.ended_by.replace("_", " "), key=record.ended_by),
                    Cell(text=f"{minutes:.1f}", key=minutes),
                    Cell(text=f"{record.parameters:,}", key=record.parameters),
                    Cell.of("stale" if is_stale(record, results.identities) else "today's"),
                    Cell.of(record.command, is_code=True),
                )
    return table


def work_table(results: Results) -> Table:
    """Say how many runs of each setting and profile there are and how long they took together."""
    numbers = ("runs", "datasets", "most seeds", "hours in all", "longest, minutes")
    table = Table(
        name="work",
        title="",
        columns=[_text("setting"), _text("profile"), *_numbers(*numbers)],
        notes=[_TIMES],
    )
    for setting in results.settings():
        for profile in results.profiles(setting):
            rows = results.select(setting, profile)
            records = [record for row in rows for record in row.records]
            minutes = [core_seconds(record) / 60.0 for record in records]
            table.add(
                Cell(text=title_of(setting), key=setting),
                Cell(text=profile, key=[*PROFILES, profile].index(profile)),
                Cell.of(len(records)),
                Cell.of(len({row.key.dataset for row in rows})),
                Cell.of(max(len(by_seed) for row in rows for by_seed in row.runs.values())),
                Cell(text=f"{sum(minutes) / 60.0:.2f}", key=sum(minutes)),
                Cell(text=f"{max(minutes):.1f}", key=max(minutes)),
            )
    return table


def data_table(results: Results) -> Table:
    """List every data file that a run read, with its checksum."""
    table = Table(
        name="data",
        title="Data files",
        columns=[_text("file"), _text("sha256 of its content"), Column(label="runs")],
        notes=["Generated datasets need no file: their seed is in the code."],
    )
    counts: dict[tuple[str, str], int] = {}
    for record in _records(results):
        for item in record.data.items():
            counts[item] = counts.get(item, 0) + 1
    for (name, digest), count in sorted(counts.items()):
        table.add(Cell.of(name), Cell.of(digest, is_code=True), Cell.of(count))
    return table


def machine_table(results: Results) -> Table:
    """List the machines and versions that runs were made on."""
    table = Table(
        name="machines",
        title="Machines and versions",
        columns=[
            _text("processor"),
            *_numbers("cores", "memory, GB"),
            Column(label="versions", kind="prose"),
            Column(label="runs"),
            _text("from"),
            _text("to"),
        ],
    )
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for record in _records(results):
        about = record.machine
        memory = about.get("memory_bytes")
        gigabytes = f"{memory / 1e9:.0f}" if isinstance(memory, int | float) else GAP
        versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
        machine = (str(about.get("cpu")), str(about.get("cores")), gigabytes, versions)
        groups.setdefault(machine, []).append(record.date[:10])
    for machine, dates in groups.items():
        table.add(*map(Cell.of, machine), Cell.of(len(dates)), Cell.of(min(dates)), Cell.of(max(dates)))
    return table


def _averages(results: Results) -> Iterable[tuple[str, str, str, AverageDifference]]:
    """Sum up every setting, profile, variant and number."""
    for setting in results.settings():
        for profile in results.profiles(setting):
            for variant in results.variants(setting, profile):
                for number in results.metrics(setting):
                    found = average_difference(compare_rows(results, setting, profile, variant, number))
                    if found is not None:
                        yield setting, profile, variant, found


def _published_cell(one: Comparison, model: str, cell: PublishedCell | None) -> Cell:
    if cell is None:
        return Cell(text=GAP, help="" if one.published else one.remark)
    off = one.deviations_off(model)
    is_same = one.key.profile == "paper" and not is_stand_in(one.key.dataset)
    note = ""
    if is_same and off is not None and abs(off) > _FAR:
        note = f"ours {off:+.1f} standard deviations off".replace("-", "\u2212")
    return Cell(text=describe(cell), key=cell.mean, kind="paper", note=note)


def _judgement_cell(one: Comparison) -> Cell:
    help_text = "" if one.p_value is None else f"equivalence test: p = {one.p_value:.3g}"
    key = None if one.difference is None else one.judgement
    return Cell(text=one.judgement, key=key, kind=f"outcome {one.outcome}", help=help_text)


def _name_cell(key: RowKey) -> Cell:
    note = stand_in_note(key.setting, key.dataset)
    return Cell(text=key.name, key=_sort_key(key), link=f"#runs-{key.setting}", note=note)


def _sort_key(key: RowKey) -> str:
    return f"{key.dataset} {key.horizon or 0:05d}"


def _remarks(found: Sequence[Comparison]) -> list[str]:
    """Say once what the data is where it is not the paper's, and why nothing published stands beside it."""
    run = [one for one in found if not one.is_gap]
    datasets = dict.fromkeys(one.key.dataset for one in run if is_known(one.key.dataset))
    remarks = [
        f"{name}: {about.remark}."
        for name, about in ((name, lookup(name)) for name in datasets)
        if about.remark and (about.is_generated or about.stands_for)
        if not setting_of(about.setting).stand_in_remark
    ]
    reasons: dict[str, list[str]] = {}
    for one in run:
        if not one.published and one.remark:
            reasons.setdefault(one.remark, []).append(one.key.name)
    for reason, names in reasons.items():
        remarks.append(f"Nothing published beside {', '.join(dict.fromkeys(names))}: {reason}.")
    stand_ins = (one.key.setting for one in run if is_stand_in(one.key.dataset))
    remarks += filter(None, (setting_of(name).stand_in_remark for name in dict.fromkeys(stand_ins)))
    return remarks


def _row_head(keys: Iterable[RowKey]) -> str:
    return "dataset, horizon" if any(key.horizon is not None for key in keys) else "dataset"


def _mean(row: Row, model: str, number: Metric) -> float | None:
    values = row.values(model, number.report)
    return sum(values.values()) / len(values) if values else None


def _mean_of(found: Summary | Interval | None) -> float | None:
    return None if found is None else found.mean


def _name(*words: str) -> str:
    return "-".join(word.replace(".", "-").replace(" ", "-") for word in words)


def _text(label: str) -> Column:
    return Column(label=label, kind="text")


def _numbers(*labels: str) -> list[Column]:
    return [Column(label=label) for label in labels]


def _records(results: Results) -> Iterable[RunRecord]:
    return (record for row in results.rows for record in row.records)
