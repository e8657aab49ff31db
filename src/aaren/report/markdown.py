"""The tables of a report as Markdown: for a README, a pull request, a terminal."""

from aaren.report.episodes_table import episodes_table
from aaren.report.gathered import Gathered
from aaren.report.names import PROFILE_WORDS, SETTINGS, TRUTH
from aaren.report.overview_table import macro_table
from aaren.report.runs_table import work_table
from aaren.report.table import Table, markdown_code, markdown_text, to_markdown
from aaren.report.tables import comparison_table, main_tables, reference_table
from aaren.report.verdict import verdicts
from aaren.report.words import HOW_TO_READ, NOTHING_AS_PUBLISHED, SETTING_WORDS, published_words


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
