"""What the report says in words: about each setting, and how its statistics are to be read.

The tables of a report as Markdown: for a README, a pull request, a terminal.
"""

from aaren.report.comparison import check_published
from aaren.report.gathered import Gathered
from aaren.report.names import PROFILE_WORDS, SETTINGS, TRUTH
from aaren.report.table import Table, markdown_code, markdown_text, to_markdown
from aaren.report.tables import (
    comparison_table,
    episodes_table,
    macro_table,
    main_tables,
    reference_table,
    work_table,
)
from aaren.report.verdict import verdicts

SETTING_WORDS = {
    "forecasting": [
        "96 steps in, the whole horizon out; errors on scaled data, over every test window. ECL is "
        "univariate, as the published script has it."
    ],
    "classification": [
        "Accuracy on TEST. As published, TEST also chooses the epoch (rule protocol): that flatters both "
        "models. Rows with rule=clean let a held-out part of TRAIN choose and touch TEST once."
    ],
    "events": [
        "After every event: when does the next one come, and of which kind? Log-likelihood and error "
        "depend on the unit of time. The published unit is known for Sin alone, so elsewhere only "
        "accuracies stand beside published ones; differences of log-likelihoods do not depend on the "
        "unit and are tested all the same."
    ],
    "rl": [
        "Offline reinforcement learning in MuJoCo, D4RL's normalised score: 0 is random, 100 an expert. Rows "
        "named -regen are on regenerated data, because D4RL's own could not be had: the published scores "
        "beside them are of another dataset and never mixed with ours. The paper does not say whether it "
        "reports the best evaluation or the last; both are here, and fresh episodes of the selected weights."
    ],
}

NOTHING_AS_PUBLISHED = "Of the paper's rows none was run here as it stands."

HOW_TO_READ = [
    (
        "Seeds.",
        "Every number is a mean over seeds ± sample deviation (ddof 1). One seed has no deviation, and "
        "nothing is tested with it. Profiles are never mixed, and rows with changed keys stand apart.",
    ),
    (
        "Differences.",
        "Both models of a seed see the same data in the same order, so their difference is taken seed by "
        "seed. Brackets are 90 % t intervals of its mean.",
    ),
    (
        "Margin.",
        "The paper prints two models as equals when their intervals mean ± deviation touch, that is when "
        "their means differ by no more than the sum of both deviations. That sum, from the published "
        "table, is the margin; a deviation printed as 0.00 counts as 0.005.",
    ),
    (
        "Judgement.",
        "Within the margin: the 90 % interval lies inside ± margin, which is two one-sided t tests "
        "(TOST) passed at 5 %. Better or worse: it does not, and excludes zero. Undecided: neither; more "
        "seeds would tell.",
    ),
    (
        "Bold.",
        "The paper's own rule, applied to ours: both are bold if their intervals mean ± deviation touch, "
        "else the better one.",
    ),
    (
        "Published numbers.",
        "They stand in columns of their own and enter no mean of ours. At profile paper, a mean of ours "
        "that is more than three published deviations away from the published one says so.",
    ),
]


def published_words() -> list[str]:
    """Say what the same rules give on the published tables."""
    found = check_published()
    words = (
        f"On the {found.pairs} pairs of the published tables the rule of bold type gives {found.both} "
        f"equals, {found.transformer} wins of the Transformer and {found.aaren} of Aaren."
    )
    if found.exceptions:
        words += f" The paper prints otherwise in one place: both bold at {'; '.join(found.exceptions)}."
    tested = (
        "Touching intervals are a weak test. With the same margin, an equivalence test on the published "
        f"means and deviations (five seeds, Welch) passes for {found.equivalent} of the {found.pairs} "
        "pairs."
    )
    return [words, tested]


def render_markdown(gathered: Gathered) -> str:
    """Return all tables with what is needed to read them."""
    parts = ["# Results\n"]
    for verdict in verdicts(gathered):
        parts.append(f"**{verdict.claim}** {verdict.word}. {markdown_text(' '.join(verdict.sentences))}\n")
    parts.append(to_markdown(macro_table(gathered)))
    for setting in gathered.settings():
        parts.append(f"## {markdown_text(SETTINGS.get(setting, setting))}\n")
        parts += [f"{words}\n" for words in SETTING_WORDS.get(setting, [])]
        for profile in gathered.profiles(setting):
            parts.append(f"### Profile {markdown_text(profile)}: {PROFILE_WORDS.get(profile, '')}\n")
            mains = main_tables(gathered, setting, profile)
            if not mains:
                parts.append(f"{NOTHING_AS_PUBLISHED}\n")
            more = _more_tables(gathered, setting, profile)
            parts += [to_markdown(table) for table in (*mains, *more)]
    parts.append("## How to read this\n")
    parts += [f"**{head}** {words}\n" for head, words in HOW_TO_READ]
    parts += [f"{words}\n" for words in published_words()]
    parts += ["## What was run\n", to_markdown(work_table(gathered))]
    if gathered.problems:
        parts.append("Left out:\n")
        parts.append(
            "".join(
                f"- {markdown_code(f'{problem.path.parent.name}/{problem.path.name}')}: "
                f"{markdown_text(problem.reason)}\n"
                for problem in gathered.problems
            )
        )
    return "\n".join(parts)


def _more_tables(gathered: Gathered, setting: str, profile: str) -> list[Table]:
    metrics = gathered.metrics(setting)
    found = [episodes_table(gathered, profile)] if setting == "rl" else []
    found += [comparison_table(gathered, setting, profile, None, number) for number in metrics]
    found += [reference_table(gathered, setting, profile, number) for number in (*metrics, TRUTH)]
    return [table for table in found if table is not None]
