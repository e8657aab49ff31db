"""The page: one HTML file with everything inside, light and dark, readable on a phone, asking for nothing."""

import json
from html import escape
from importlib import resources

from aaren.errors import require_extra
from aaren.report.figure import Figure
from aaren.report.figures import setting_figures
from aaren.report.gathered import Gathered
from aaren.report.margin_figure import margin_figure
from aaren.report.markdown import HOW_TO_READ, NOTHING_AS_PUBLISHED, SETTING_WORDS, published_words
from aaren.report.names import PROFILE_WORDS, SETTINGS, SHORT, TRUTH
from aaren.report.resource_figures import resource_figures
from aaren.report.table import Table, to_html
from aaren.report.tables import (
    comparison_table,
    data_table,
    episodes_table,
    machine_table,
    macro_table,
    main_tables,
    reference_table,
    runs_table,
    work_table,
)
from aaren.report.verdict import NUM_DATASETS, verdicts

TITLE = "Attention as an RNN, checked"


def render_page(gathered: Gathered) -> str:
    """Return the whole page; equal records give equal pages."""
    plotly = require_extra("plotly.offline", extra="plot", purpose="the interactive page of a report")
    figures: list[Figure] = []
    body = "".join(
        [
            _top(gathered),
            _glance(gathered, figures),
            *(_setting(gathered, setting, figures) for setting in gathered.settings()),
            _resources(gathered, figures),
            _reading(),
            _provenance(gathered),
        ]
    )
    assets = resources.files("aaren.report") / "assets"
    style, script = ((assets / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    content = json.dumps({figure.name: figure.to_json() for figure in figures}, allow_nan=False)
    content = content.replace("<", "\\u003c")  # so that no name can end the element or open a comment in it
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(TITLE)}</title>\n<style>\n{style}</style>\n</head><body>\n{body}"
        f"<script>{plotly.get_plotlyjs()}</script>\n"
        f'<script type="application/json" id="figures">{content}</script>\n'
        f"<script>\n{script}</script>\n</body></html>\n"
    )


def _top(gathered: Gathered) -> str:
    links = [("glance", "At a glance")]
    links += [(setting, SHORT.get(setting, setting)) for setting in gathered.settings()]
    links += [("resources", "Memory and time"), ("reading", "How to read"), ("runs", "What was run")]
    menu = "".join(f'<a href="#{escape(name)}">{escape(words)}</a>' for name, words in links)
    cards = "".join(
        f'<div class="verdict {escape(verdict.kind)}"><p class="claim">{escape(verdict.claim)}</p>'
        f'<p class="word">{escape(verdict.word[:1].upper() + verdict.word[1:])}</p><ul>'
        + "".join(f"<li>{escape(sentence)}</li>" for sentence in verdict.sentences)
        + "</ul></div>"
        for verdict in verdicts(gathered)
    )
    return (
        f'<header class="top"><h1>{escape(TITLE)}</h1>\n'
        f'<p class="lead">The claim of <a href="https://arxiv.org/abs/2405.13956">Feng et al. (2024)</a>: '
        f"Aaren does as well as a Transformer on {NUM_DATASETS} datasets, and is cheaper to run. "
        "Here is what these runs say.</p>\n"
        f'<div class="verdicts">{cards}</div></header>\n'
        f'<nav aria-label="Contents"><div><span>{menu}</span>'
        '<button class="theme" type="button" aria-label="Switch between light and dark">dark</button>'
        "</div></nav>\n<main>\n"
    )


def _glance(gathered: Gathered, figures: list[Figure]) -> str:
    parts = ['<section id="glance"><h2>At a glance</h2>\n']
    figure = margin_figure(gathered)
    if figure is not None:
        parts.append(_figure(figure, figures))
    table = macro_table(gathered)
    parts.append(to_html(table) if table.rows else "<p>No dataset has been run with both models yet.</p>")
    return "".join(parts) + "</section>\n"


def _setting(gathered: Gathered, setting: str, figures: list[Figure]) -> str:
    parts = [f'<section id="{escape(setting)}"><h2>{escape(SETTINGS.get(setting, setting))}</h2>\n']
    parts += [f"<p>{escape(words)}</p>\n" for words in SETTING_WORDS.get(setting, [])]
    for profile in gathered.profiles(setting):
        about = PROFILE_WORDS.get(profile, "")
        parts.append(f"<h3>Profile {escape(profile)}</h3>\n<p>{escape(about[:1].upper() + about[1:])}.</p>\n")
        metrics = gathered.metrics(setting)
        mains = main_tables(gathered, setting, profile)
        if not mains:
            parts.append(f"<p>{escape(NOTHING_AS_PUBLISHED)}</p>\n")
        parts += _first_open(mains, "More numbers")
        if setting == "rl":
            parts += [to_html(table) for table in (episodes_table(gathered, profile),) if table is not None]
        varied = [comparison_table(gathered, setting, profile, None, number) for number in metrics]
        parts += _folded([table for table in varied if table is not None], "Rows with something changed")
        beside = [reference_table(gathered, setting, profile, number) for number in metrics]
        beside.append(reference_table(gathered, setting, profile, TRUTH))
        parts += _first_open([table for table in beside if table is not None], "References, more numbers")
    drawn = [_figure(figure, figures) for figure in setting_figures(gathered, setting)]
    if drawn:
        parts.append(f'<div class="plots">{"".join(drawn)}</div>\n')
    return "".join(parts) + "</section>\n"


def _resources(gathered: Gathered, figures: list[Figure]) -> str:
    drawn = [_figure(figure, figures) for figure in resource_figures(gathered)]
    inside = f'<div class="plots">{"".join(drawn)}</div>' if drawn else "<p>Not measured: aaren bench.</p>"
    return (
        '<section id="resources"><h2>Memory and time</h2>\n'
        "<p>The paper's Figure 5 drawn again: what one stream costs token by token, with a Transformer that "
        "keeps a cache of keys and values; and what a training step costs.</p>\n"
        f"{inside}</section>\n"
    )


def _reading() -> str:
    parts = ['<section id="reading"><h2>How to read this</h2>\n']
    parts += [f"<p><b>{escape(head)}</b> {escape(words)}</p>\n" for head, words in HOW_TO_READ]
    parts += [f"<p>{escape(words)}</p>\n" for words in published_words()]
    return "".join(parts) + "</section>\n"


def _provenance(gathered: Gathered) -> str:
    parts = ['<section id="runs"><h2>What was run</h2>\n', to_html(work_table(gathered))]
    parts.append(to_html(machine_table(gathered)))
    parts += _folded([data_table(gathered)], "Data files and their checksums")
    for setting in gathered.settings():
        table = runs_table(gathered, setting)
        count = f"{len(table.rows)} run{'' if len(table.rows) == 1 else 's'}"
        words = f"{SETTINGS.get(setting, setting)}: {count}, with the command of each"
        parts += _folded([table], words)
    if gathered.problems:
        parts.append("<h3>Left out</h3>\n<ul class='problems'>")
        parts += [
            f"<li><code>{escape(problem.path.parent.name)}/{escape(problem.path.name)}</code>: "
            f"{escape(problem.reason)}</li>"
            for problem in gathered.problems
        ]
        parts.append("</ul>\n")
    return "".join(parts) + "</section>\n</main>\n<footer>Drawn by aaren report from run records.</footer>\n"


def _first_open(tables: list[Table], words: str) -> list[str]:
    return [to_html(table) for table in tables[:1]] + _folded(tables[1:], words)


def _folded(tables: list[Table], words: str) -> list[str]:
    if not any(table.rows for table in tables):
        return []
    inside = "".join(to_html(table) for table in tables)
    return [f"<details><summary>{escape(words)}</summary>{inside}</details>\n"]


def _figure(figure: Figure, figures: list[Figure]) -> str:
    """Write a figure's place on the page, and remember it for the script."""
    figures.append(figure)
    chooser = ""
    if len(figure.views) > 1:
        options = "".join(
            f'<option value="{place}">{escape(view.label)}</option>'
            for place, view in enumerate(figure.views)
        )
        chooser = f'<select aria-label="{escape(figure.title)}: choose">{options}</select>'
    elif figure.views[0].label:
        chooser = f"<small>{escape(figure.views[0].label)}</small>"
    return (
        f'<figure class="plot"><div class="head"><h4>{escape(figure.title)}</h4>{chooser}</div>'
        f'<div class="canvas" data-figure="{escape(figure.name)}"></div>'
        f'<figcaption class="note">{escape(figure.caption)}</figcaption></figure>\n'
    )
