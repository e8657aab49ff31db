"""The results section of a README: one compact table per setting, between two marks, from records alone."""

from collections import Counter

from aaren.errors import DataError
from aaren.report.comparison import Comparison, bold, describe, show_interval, summarise_table
from aaren.report.gathered import Gathered
from aaren.report.markdown import NOTHING_AS_PUBLISHED, SETTING_WORDS
from aaren.report.names import PAIR, PROFILE_WORDS, SETTINGS, Metric, is_stand_in, model_label
from aaren.report.rows import Row
from aaren.report.statistics import Summary
from aaren.report.table import Cell, Column, Table, markdown_code, markdown_text, to_markdown
from aaren.report.tables import OUTCOMES, best_model, is_ours, is_regenerated, show_summary, stand_in_note
from aaren.report.verdict import verdicts

README_WORDS = ("classification",)  # settings whose numbers mislead a reader who knows nothing more
BEGIN, END = "<!-- begin: results -->", "<!-- end: results -->"


def render_section(gathered: Gathered) -> str:
    """Return what stands between the marks."""
    parts = []
    for verdict in verdicts(gathered):
        parts.append(f"**{verdict.claim}** {verdict.word[:1].upper()}{verdict.word[1:]}.")
        parts[-1] += " " + markdown_text(" ".join(verdict.sentences))
    for setting in SETTINGS:
        profiles = [name for name in gathered.profiles(setting) if name != "smoke"]
        if not profiles:
            parts.append(f"**{SETTINGS[setting]}**: not run.")
        for profile in profiles:
            parts += _profile(gathered, setting, profile)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def replace_section(text: str, section: str, *, where: str = "the file") -> str:
    r"""Put the section between the marks of a text.

    >>> print(replace_section(f"a\n{BEGIN}\nold\n{END}\nb", "new\n"))
    a
    <!-- begin: results -->
    <BLANKLINE>
    new
    <BLANKLINE>
    <!-- end: results -->
    b
    """
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        raise DataError(
            f"{where} has no place for results: put the lines {BEGIN} and {END} where the section belongs."
        )
    return f"{text[: begin + len(BEGIN)]}\n\n{section}\n{text[end:]}"


def _profile(gathered: Gathered, setting: str, profile: str) -> list[str]:
    """Show one table, its missing rows in words, and the mean difference."""
    numbers = [
        number
        for number in gathered.metrics(setting)
        if any(not one.is_gap for one in gathered.compare(setting, profile, "", number))
    ]
    if not numbers:
        head = f"**{SETTINGS[setting]}**, profile {markdown_code(profile)}: {PROFILE_WORDS.get(profile, '')}."
        return [f"{head} {NOTHING_AS_PUBLISHED}"]
    number = numbers[0]
    found = gathered.compare(setting, profile, "", number)
    run = [one for one in found if not one.is_gap]
    missing = [one.place.name for one in found if one.is_gap]
    is_remade = any(is_regenerated(one) for one in run)
    published = "published, on D4RL" if is_remade else "published"
    table = Table(
        name="",
        title="",
        columns=[
            Column(label="dataset", kind="text"),
            Column(label="Aaren"),
            Column(label="Transformer"),
            Column(label="seeds"),
            Column(label="difference [90 %]"),
            Column(label="judgement", kind="text"),
            Column(label=f"Aaren, {published}"),
            Column(label=f"Transformer, {published}"),
        ],
    )
    for one in run:
        table.add(*_cells(one, number))
    regenerated = ", regenerated data" if is_remade else ""
    better = "lower" if number.is_lower_better else "higher"
    head = f"**{SETTINGS[setting]}**, {markdown_text(number.label)} ({better} is better){regenerated}; "
    head += f"profile {markdown_code(profile)}: "
    more = SETTING_WORDS[setting] if setting in README_WORDS else []
    parts = [" ".join([head + f"{PROFILE_WORDS.get(profile, '')}.", *more]), to_markdown(table)]
    summary = summarise_table(found)
    words = []
    if summary is not None and summary.over_datasets.count > 1:
        unit = f" {summary.unit}" if summary.unit else ""
        words.append(
            f"On average over {summary.over_datasets.count} datasets Aaren \u2212 Transformer "
            f"{summary.show(summary.over_datasets)}{unit}."
        )
    words += _references(gathered.select(setting, profile, ""), number)
    if missing:
        words.append(f"Not run: {_joined(missing)}.")
    return [*parts, " ".join(words)] if words else parts


def _references(rows: list[Row], number: Metric) -> list[str]:
    """Say where both models lose to something simpler, if that was run beside them."""
    beside = [row for row in rows if set(PAIR) <= row.runs.keys() and not all(map(is_ours, row.runs))]
    if not beside:
        return []
    # Other rows of ours, such as streaming ones, are no reason to hide that the two were beaten.
    best = [
        best_model(row, number, [model for model in row.runs if model in PAIR or not is_ours(model)])
        for row in beside
    ]
    winners = Counter(model_label(model) for model in best if model is not None and not is_ours(model))
    rows_beside = f"{len(beside)} row" + "s" * (len(beside) > 1)
    names = ", ".join(f"{name} ({count})" for name, count in winners.most_common())
    lost = f"{winners.total()}: {names}" if winners else "none"
    return [f"Simple references, run in {rows_beside}, are ahead of both models in {markdown_text(lost)}."]


def _cells(one: Comparison, number: Metric) -> list[Cell]:
    marks = (False, False)
    if one.aaren is not None and one.transformer is not None:
        marks = bold(one.aaren, one.transformer, is_lower_better=number.is_lower_better)
    counts = [_count(one.aaren), _count(one.transformer)]
    judgement = "" if one.difference is None else OUTCOMES[one.outcome]
    if one.outcome == "untested" and one.difference is not None:
        judgement = "one seed" if one.difference.is_open else "no margin"
    note = ""
    if is_stand_in(one.place.dataset) and one.place.setting != "rl":
        note = stand_in_note(one.place)
    return [
        Cell(text=one.place.name, note=note),
        Cell(text=show_summary(one.aaren, number), is_bold=marks[0]),
        Cell(text=show_summary(one.transformer, number), is_bold=marks[1]),
        Cell(text=str(counts[0]) if counts[0] == counts[1] else f"{counts[0]} / {counts[1]}"),
        Cell(text="\u2013" if one.difference is None else show_interval(one.difference, number)),
        Cell(text=judgement),
        *(
            Cell(text=describe(one.published[model]) if model in one.published else "\u2013")
            for model in PAIR
        ),
    ]


def _count(summary: Summary | None) -> int:
    return 0 if summary is None else summary.count


def _joined(names: list[str]) -> str:
    """Write names with horizons shortly.

    >>> _joined(["ETTh1, 96", "ETTh1, 192", "sin"])
    'ETTh1 (96, 192), sin'
    """
    grouped: dict[str, list[str]] = {}
    for name in names:
        dataset, _, horizon = name.partition(", ")
        grouped.setdefault(dataset, []).append(horizon)
    return ", ".join(
        f"{dataset} ({', '.join(horizons)})" if all(horizons) else dataset
        for dataset, horizons in grouped.items()
    )
