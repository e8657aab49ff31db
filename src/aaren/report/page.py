"""Write a report into a folder: tables.md, and one page that needs no network.

The page is made from templates/page.html, which escapes every value but the page's own style and scripts.
"""

from importlib import resources
from itertools import chain
from pathlib import Path

from aaren.errors import ConfigError, require_extra
from aaren.files.atomic import write_text
from aaren.report.figures import margin_figure, resource_figures, setting_figures
from aaren.report.forest import CAPTION, STYLE, panels, picture
from aaren.report.markdown import (
    HOW_TO_READ,
    NOTHING_AS_PUBLISHED,
    published_words,
    render_markdown,
    writable,
)
from aaren.report.names import PROFILES, notes_of, short_title_of, title_of
from aaren.report.rows import Results, require_results
from aaren.report.tables import (
    data_table,
    machine_table,
    overview_table,
    profile_tables,
    runs_table,
    work_table,
)
from aaren.report.verdict import NUM_DATASETS, first_comparisons, pool_settings, verdicts

PAGE, TABLES, FOREST = "index.html", "tables.md", "verdict.svg"
TITLE = "Attention as an RNN, checked"
_PURPOSE = "the interactive page of a report"


def write_report(folders: list[Path], target: Path) -> tuple[Results, list[Path]]:
    """Read records below some folders; write the page, the tables and the verdict's figure.

    Returns what was used, and the files.
    """
    if target.is_file():
        raise ConfigError(f"{target} is a file: -o needs a folder to write {PAGE} and {TABLES} into.")
    results = require_results(folders)
    texts = {
        target / PAGE: render_page(results),
        target / TABLES: render_markdown(results),
        target / FOREST: picture(pool_settings(first_comparisons(results))),
    }
    try:
        for path, text in texts.items():
            write_text(path, writable(text))
    except OSError as error:
        raise ConfigError(
            f"cannot write to {target}: {error.strerror or error}. Choose another folder: -o FOLDER."
        ) from error
    return results, list(texts)


def render_page(results: Results) -> str:
    """Return the whole page; equal records give equal pages."""
    jinja2 = require_extra("jinja2", extra="plot", purpose=_PURPOSE)
    plotly = require_extra("plotly.offline", extra="plot", purpose=_PURPOSE)
    figures = {setting: setting_figures(results, setting) for setting in results.settings()}
    margins, measured = margin_figure(results), resource_figures(results)
    drawn = [*([] if margins is None else [margins]), *chain(*figures.values()), *measured]
    templates = resources.files("aaren.report") / "templates"
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FunctionLoader(lambda name: (templates / name).read_text(encoding="utf-8")),
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    page: str = environment.get_template("page.html").render(
        title=TITLE,
        num_datasets=NUM_DATASETS,
        verdicts=verdicts(results),
        forest=panels(pool_settings(first_comparisons(results))),
        forest_caption=CAPTION,
        settings=[
            {
                "name": setting,
                "title": title_of(setting),
                "short_title": short_title_of(setting),
                "notes": notes_of(setting),
                "profiles": [
                    (profile, PROFILES.get(profile, ""), profile_tables(results, setting, profile))
                    for profile in results.profiles(setting)
                ],
                "figures": figures[setting],
                "runs": runs_table(results, setting),
            }
            for setting in results.settings()
        ],
        margins=margins,
        overview=overview_table(results),
        resources=measured,
        how_to_read=HOW_TO_READ,
        nothing_as_published=NOTHING_AS_PUBLISHED,
        published_words=published_words(),
        work=work_table(results),
        machines=machine_table(results),
        data=data_table(results),
        problems=results.problems,
        style=(templates / "page.css").read_text(encoding="utf-8") + STYLE,
        script=(templates / "page.js").read_text(encoding="utf-8"),
        plotly=plotly.get_plotlyjs(),
        figures={figure.name: figure.to_json() for figure in drawn},
    )
    return page
