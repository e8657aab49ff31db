"""The tables of a setting: both models side by side, and simple references beside them."""

from collections.abc import Iterable, Sequence

from aaren.data.registry import lookup
from aaren.lab.published import PublishedCell
from aaren.report.bolding import bold, describe
from aaren.report.comparison import Comparison
from aaren.report.datasets import is_known, is_stand_in, papers_name
from aaren.report.gathered import Gathered
from aaren.report.macro import show_interval
from aaren.report.names import PAIR, Metric, model_label
from aaren.report.rows import Place, Row
from aaren.report.statistics import Summary
from aaren.report.table import Cell, Column, Table

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
