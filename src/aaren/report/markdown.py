"""The report as Markdown: all tables, and the results section of a README. And how to read them."""

from collections import Counter
from pathlib import Path

from aaren.datasets.settings import BUILT_IN
from aaren.files.marked import read_marked, write_marked
from aaren.lab.margins import WORDS
from aaren.report.comparison import (
    Comparison,
    average_difference,
    check_published,
    compare_rows,
    describe,
    show_interval,
)
from aaren.report.names import (
    GAP,
    PAIR,
    PROFILES,
    Metric,
    is_ours,
    model_label,
    notes_of,
    setting_of,
    stand_in_note,
    title_of,
)
from aaren.report.rows import Results, Row, require_results
from aaren.report.tables import (
    best_model,
    origin_of,
    overview_table,
    profile_tables,
    summary_cells,
    work_table,
)
from aaren.report.verdict import Verdict, verdicts
from aaren.table import Cell, Column, Table, markdown_code, markdown_text, to_markdown

BEGIN, END = "<!-- begin: results -->", "<!-- end: results -->"  # of the results section of a README
REPORT = "results/report"  # where a README finds the report of its repository
NOTHING_AS_PUBLISHED = "Of the paper's rows none was run here as it stands."
HOW_TO_READ = [
    (
        "Seeds.",
        "Every number is a mean over seeds ± sample standard deviation (ddof 1). One seed has none, "
        "and nothing is tested with it. Profiles are never mixed, and rows with changed keys stand apart.",
    ),
    (
        "Differences.",
        "Both models of a seed see the same data in the same order, so their difference is taken seed by "
        "seed. Brackets are 90 % t intervals of its mean.",
    ),
    (
        "Margin.",
        f"A difference that would not matter, fixed before the runs that are judged by it: {WORDS}. Beside "
        "it stands the paper's own: it prints two models as equals when their means differ by no more than "
        "the sum of both standard deviations (0.00 counts as 0.005). That one rewards scatter: nothing is "
        "judged by it.",
    ),
    (
        "Judgement.",
        "Within the margin: the 90 % interval lies inside ± margin, which is two one-sided t tests "
        '(TOST) passed at 5 %; it is "better, within the margin" if it also excludes zero. Better or worse: '
        "it is not inside, and excludes zero. Open: neither; so many seeds would decide it if mean and "
        "standard deviation stay.",
    ),
    (
        "Pooled.",
        "Over the datasets of a setting, in margins: a random-effects model (Paule-Mandel variance, "
        "Hartung-Knapp interval at 90 %), horizons of a dataset averaged, against the same margin.",
    ),
    (
        "Bold.",
        "The paper's own rule, applied to ours: both are bold if their intervals mean ± standard deviation "
        "touch, else the better one.",
    ),
    (
        "Published numbers.",
        "They stand in columns of their own and enter no mean of ours. At profile paper, a mean of ours "
        "that is more than three published standard deviations away from the published one says so.",
    ),
]


def published_words() -> list[str]:
    """Say what the same rules give on the published tables."""
    found = check_published()
    words = (
        f"On the {found.pairs} pairs of the published tables the rule for bold gives {found.both} "
        f"equals, {found.transformer} wins of the Transformer and {found.aaren} of Aaren."
    )
    if found.exceptions:
        words += f" The paper prints otherwise in one place: both bold at {'; '.join(found.exceptions)}."
    tested = (
        "Touching intervals are a weak test. With the same margin, an equivalence test on the published "
        f"means and standard deviations (five seeds, Welch) passes for {found.equivalent} of the "
        f"{found.pairs} pairs."
    )
    return [words, tested]


def render_markdown(results: Results) -> str:
    """Return all tables with what is needed to read them."""
    parts = ["# Results\n"]
    parts += [f"{_verdict_line(verdict, verdict.word)}\n" for verdict in verdicts(results)]
    parts += [to_markdown(overview_table(results)), "## In short\n", render_summary(results)]
    for setting in results.settings():
        parts.append(f"## {markdown_text(title_of(setting))}\n")
        parts += [f"{note}\n" for note in notes_of(setting)]
        for profile in results.profiles(setting):
            parts.append(f"### Profile {markdown_text(profile)}: {PROFILES.get(profile, '')}\n")
            found = profile_tables(results, setting, profile)
            if not found.main:
                parts.append(f"{NOTHING_AS_PUBLISHED}\n")
            tables = (*found.main, *found.samples, *found.changed, *found.baselines)
            parts += [to_markdown(table) for table in tables]
    parts.append("## How to read this\n")
    parts += [f"**{head}** {words}\n" for head, words in HOW_TO_READ]
    parts += [f"{words}\n" for words in published_words()]
    parts += ["## What was run\n", to_markdown(work_table(results))]
    if results.problems:
        parts.append("Left out:\n")
        lines = [
            f"- {markdown_code(f'{problem.path.parent.name}/{problem.path.name}')}: "
            f"{markdown_text(problem.reason)}\n"
            for problem in results.problems
        ]
        parts.append("".join(lines))
    return "\n".join(parts)


def write_readme(folders: list[Path], path: Path) -> bool:
    """Rewrite the results section of a file; tells whether anything changed."""
    read_marked(path, BEGIN, END, option="--readme")  # fails before the work is done
    section = writable(render_section(require_results(folders)))
    return write_marked(path, BEGIN, END, f"\n\n{section}\n", option="--readme")


def writable(text: str) -> str:
    """Write out what UTF-8 cannot hold: JSON can name half a character."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def render_section(results: Results) -> str:
    """Return what stands between the marks of a README: the verdict's figure, its sentences, a link."""
    figure = f"![Aaren's advantage over the Transformer by dataset, in margins]({REPORT}/verdict.svg)"
    comparable, cheaper = verdicts(results)
    counts = next((words for words in comparable.sentences if words.startswith("Of ")), "")
    parts = [
        figure,
        markdown_text(f"**{comparable.claim}** {' '.join([_opening(comparable), counts]).strip()}"),
        markdown_text(f"**{cheaper.claim}** {_opening(cheaper)} {' '.join(cheaper.sentences)}"),
        f"All rows, published numbers and what was not run: [tables]({REPORT}/tables.md).",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _opening(verdict: Verdict) -> str:
    return f"{verdict.word[:1].upper()}{verdict.word[1:]}."


def render_summary(results: Results) -> str:
    """Return one compact table per setting and profile, with what was not run in words."""
    parts = []
    for setting in dict.fromkeys([*BUILT_IN, *results.settings()]):
        profiles = [name for name in results.profiles(setting) if name != "smoke"]
        if not profiles:
            parts.append(f"**{markdown_text(title_of(setting))}**: not run.")
        for profile in profiles:
            parts += _readme_profile(results, setting, profile)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _verdict_line(verdict: Verdict, word: str) -> str:
    return f"**{verdict.claim}** {word}. {markdown_text(' '.join(verdict.sentences))}"


def _readme_profile(results: Results, setting: str, profile: str) -> list[str]:
    """Show one table, its missing rows in words, and the mean difference."""
    title = f"**{markdown_text(title_of(setting))}**"
    name = markdown_code(profile) if profile in PROFILES else markdown_text(profile)
    about = f"profile {name}: {PROFILES.get(profile, '')}."
    for number in results.metrics(setting):
        found = compare_rows(results, setting, profile, "", number)
        run = [one for one in found if not one.is_gap]
        if run:
            break
    else:
        return [f"{title}, {about} {NOTHING_AS_PUBLISHED}"]
    origin = origin_of(run)
    published = f"published, on {origin}" if origin else "published"
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
        table.add(*_readme_cells(one))
    ours = f", {setting_of(setting).stand_in_note}" if origin else ""
    better = "lower" if number.is_lower_better else "higher"
    head = f"{title}, {markdown_text(number.label)} ({better} is better){ours}; {about}"
    parts = [" ".join([head, *notes_of(setting, cautions_only=True)]), to_markdown(table)]
    words = []
    average = average_difference(found)
    if average is not None and average.over_datasets.count > 1:
        unit = f" {average.unit}" if average.unit else ""
        words.append(
            f"On average over {average.over_datasets.count} datasets Aaren \u2212 Transformer "
            f"{average.show(average.over_datasets)}{unit}."
        )
    words += _baselines(results.select(setting, profile, ""), number)
    missing = [one.key.name for one in found if one.is_gap]
    if missing:
        words.append(f"Not run: {_joined(missing)}.")
    return [*parts, " ".join(words)] if words else parts


def _readme_cells(one: Comparison) -> list[Cell]:
    note = "" if origin_of([one]) else stand_in_note(one.key.setting, one.key.dataset)
    return [
        Cell(text=one.key.name, note=note),
        *summary_cells(one),
        Cell(text=show_interval(one.difference, one.metric)),
        Cell(text="" if one.difference is None else one.judgement),
        *(Cell(text=describe(one.published[model]) if model in one.published else GAP) for model in PAIR),
    ]


def _baselines(rows: list[Row], number: Metric) -> list[str]:
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
