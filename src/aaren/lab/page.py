"""Write a report: one static HTML page with its figures inside, the same as Markdown, and a figure."""

import base64
from html import escape
from pathlib import Path

from aaren.errors import ConfigError
from aaren.files.atomic import write_text
from aaren.files.marked import read_marked, write_marked
from aaren.lab.comparison import first_comparisons
from aaren.lab.figures import forest, setting_figures
from aaren.lab.names import PROFILES, names_of
from aaren.lab.rows import Results, require_results
from aaren.lab.tables import (
    Table,
    data_table,
    machine_table,
    main_tables,
    margin_table,
    markdown_text,
    profile_tables,
    runs_table,
    work_table,
)
from aaren.lab.verdict import pool_settings, pooled_table, reference_line, verdict

PAGE, TABLES, FOREST = "index.html", "tables.md", "verdict.svg"
TITLE = "Attention as an RNN, checked"
CLAIM = "As good as Transformers?"
BEGIN, END = "<!-- begin: results -->", "<!-- end: results -->"  # of the results section of a README
REPORT = "results/report"  # where a README finds the report of its repository
NOTHING_AS_PUBLISHED = "Of the paper's rows none was run here as published."
HOW_TO_READ = [
    "**Seeds.** A number is the mean over seeds ± sample standard deviation (ddof 1). With one seed nothing "
    "is tested. Profiles are never mixed, and rows with changed keys stand apart.",
    "**Differences.** Both models of a seed see the same data in the same order, so their difference is "
    "taken seed by seed. Brackets are 90 % t intervals of its mean.",
    "**Margin.** A difference that would not matter; the reasons stand in the table above.",
    "**Judgement.** Within the margin: the 90 % interval lies inside the margin, so two one-sided t tests "
    "(TOST) pass. Better or worse: it is not inside, and excludes zero. Open: neither; so many seeds would "
    "decide it if mean and standard deviation stay.",
    "**Pooled.** A random-effects model over the datasets of a setting, in margins, the horizons of a "
    "dataset averaged. The interval of the mean says how well the mean over such datasets is known. The "
    "interval of a new dataset says where the next one may lie, and is wider.",
    "**Bold.** The paper's own rule, applied to ours: both are bold if their intervals mean ± standard "
    "deviation touch, else the better one.",
    "**Published numbers.** They stand in columns of their own and enter no mean of ours. At profile paper, "
    "a mean of ours that is more than three published standard deviations away says so.",
]
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: auto; padding: 1rem; color: #222; }
img { max-width: 100%; height: auto; } h2 { border-top: 2px solid #ddd; padding-top: 1rem; }
table { border-collapse: collapse; font-size: 13px; } .scroll { overflow-x: auto; }
th, td { padding: 2px 8px; text-align: right; border-bottom: 1px solid #e3e3e3; white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; } th:first-child, td:first-child { text-align: left; }
.prose td, .prose th { text-align: left; white-space: normal; }
.note, figcaption { color: #555; font-size: 13px; } figure { margin: 1.5rem 0; } summary { cursor: pointer; }
"""


def write_report(folders: list[Path], target: Path) -> tuple[Results, list[Path]]:
    """Read records below some folders; write the page, the tables and the verdict's figure.

    Returns what was used, and the files.
    """
    if target.is_file():
        raise ConfigError(f"{target} is a file: -o needs a folder to write {PAGE} and {TABLES} into.")
    results = require_results(folders)
    figure = forest(pool_settings(first_comparisons(results)))
    texts = {
        target / PAGE: render_page(results, figure),
        target / TABLES: render_markdown(results),
        target / FOREST: figure,
    }
    try:
        for path, text in texts.items():
            write_text(path, _writable(text))
    except OSError as error:
        raise ConfigError(
            f"cannot write to {target}: {error.strerror or error}. Choose another folder: -o FOLDER."
        ) from error
    return results, list(texts)


def write_readme(folders: list[Path], path: Path) -> bool:
    """Rewrite the results section of a file; tells whether anything changed."""
    read_marked(path, BEGIN, END, option="--readme")  # fails before the work is done
    section = _writable(render_section(require_results(folders)))
    return write_marked(path, BEGIN, END, f"\n\n{section}\n", option="--readme")


def render_section(results: Results) -> str:
    """Return what stands between the marks of a README: the verdict's figure, its lines, a link."""
    pools = pool_settings(first_comparisons(results))
    parts = [
        f"![Aaren's advantage over the Transformer by dataset, in margins]({REPORT}/{FOREST})",
        "\n".join(f"- {markdown_text(line)}" for line in verdict(results)),
        pooled_table(pools).to_markdown().strip() if pools else "",
        f"All rows, margins with their reasons, and published numbers: [tables]({REPORT}/{TABLES}).",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def render_markdown(results: Results) -> str:
    """Return all tables but the list of runs, with what is needed to read them."""
    pools = pool_settings(first_comparisons(results))
    parts = [f"# {TITLE}\n", f"## {CLAIM}\n", f"![The verdict]({FOREST})\n"]
    parts += ["\n".join(f"- {markdown_text(line)}" for line in verdict(results)) + "\n"]
    parts += [pooled_table(pools).to_markdown()] if pools else []
    parts += [f"{line}\n" for line in [reference_line(results)] if line]
    parts += ["## Margins\n", margin_table().to_markdown()]
    for setting in results.settings():
        names = names_of(setting)
        parts.append(f"## {markdown_text(names.title)}\n")
        parts += [f"{names.note}\n"] if names.note else []
        for profile in results.profiles(setting):
            parts.append(f"### Profile {markdown_text(profile)}: {PROFILES.get(profile, '')}\n")
            parts += [] if main_tables(results, setting, profile) else [f"{NOTHING_AS_PUBLISHED}\n"]
            parts += [table.to_markdown() for table in profile_tables(results, setting, profile)]
    parts += ["## How to read this\n", *(f"{text}\n" for text in HOW_TO_READ)]
    parts += ["## What was run\n", work_table(results).to_markdown(), *_left_out(results)]
    return "\n".join(parts)


def render_page(results: Results, figure: str) -> str:
    """Return the whole page; equal records give equal pages."""
    pools = pool_settings(first_comparisons(results))
    parts = [
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{TITLE}</title>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<style>{_STYLE}</style></head><body>\n<h1>{TITLE}</h1>",
        "<p>The claim of <a href='https://arxiv.org/abs/2405.13956'>Feng et al. (2024)</a>: Aaren does as "
        "well as a Transformer, and is cheaper to run. Here is what these runs say of the first half.</p>",
        f"<h2>{CLAIM}</h2>\n<ul>{''.join(f'<li>{escape(line)}</li>' for line in verdict(results))}</ul>",
        pooled_table(pools).to_html() if pools else "",
        _paragraph(reference_line(results)),
        f"<figure>{figure[figure.index('<svg') :]}</figure>",
        "<h2>Margins</h2>",
        margin_table().to_html(),
    ]
    for setting in results.settings():
        parts += _setting_parts(results, setting)
    parts += ["<h2>How to read this</h2>", *(_paragraph(text.replace("**", "")) for text in HOW_TO_READ)]
    parts += ["<h2>What was run</h2>"]
    parts += [table.to_html() for table in (work_table(results), machine_table(results), data_table(results))]
    for setting in results.settings():
        parts.append(_folded(f"{names_of(setting).title}: all runs", [runs_table(results, setting)]))
    parts += [_paragraph(text.strip()) for text in _left_out(results)]
    return "\n".join([*parts, "</body></html>\n"])


def _setting_parts(results: Results, setting: str) -> list[str]:
    names = names_of(setting)
    parts = [f"<h2>{escape(names.title)}</h2>", _paragraph(names.note)]
    for profile in results.profiles(setting):
        main = main_tables(results, setting, profile)
        rest = profile_tables(results, setting, profile)[len(main) :]
        parts += [f"<h3>Profile {escape(profile)}</h3>", _paragraph(PROFILES.get(profile, ""))]
        parts += [main[0].to_html() if main else _paragraph(NOTHING_AS_PUBLISHED)]
        parts += [_folded("More numbers, changed rows, simple references", [*main[1:], *rest])]
    for title, caption, image in setting_figures(results, setting):
        parts.append(
            f"<figure><h4>{escape(title)}</h4>{_image(image, title)}"
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )
    return parts


def _left_out(results: Results) -> list[str]:
    lines = [
        f"Left out: {markdown_text(f'{problem.path.parent.name}/{problem.path.name}: {problem.reason}')}\n"
        for problem in results.problems
    ]
    if results.superseded:
        lines.append(
            f"Left out: {results.superseded} records of an older protocol that newer ones replace.\n"
        )
    return lines


def _folded(words: str, tables: list[Table]) -> str:
    if not tables:
        return ""
    return (
        f"<details><summary>{escape(words)}</summary>{''.join(table.to_html() for table in tables)}</details>"
    )


def _paragraph(text: str) -> str:
    return f"<p>{escape(text, quote=False)}</p>" if text else ""


def _image(content: bytes, words: str) -> str:
    data = base64.b64encode(content).decode()
    return f"<img alt='{escape(words)}' src='data:image/png;base64,{data}'>"


def _writable(text: str) -> str:
    """Write out what UTF-8 cannot hold: JSON can name half a character."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
