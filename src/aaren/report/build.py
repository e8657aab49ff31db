"""Write a report into a folder, index.html and tables.md; or its short form into a README."""

from pathlib import Path

from aaren.errors import ConfigError, DataError
from aaren.files.atomic import write_text
from aaren.report.gathered import Gathered, gather
from aaren.report.markdown import render_markdown
from aaren.report.page import render_page
from aaren.report.readme import BEGIN, END, render_section, replace_section

PAGE, TABLES = "index.html", "tables.md"


def write_report(folders: list[Path], target: Path) -> tuple[Gathered, list[Path]]:
    """Gather records below some folders and write the page and the tables; returns what was used."""
    if target.is_file():
        raise ConfigError(f"{target} is a file: -o needs a folder to write {PAGE} and {TABLES} into.")
    gathered = require_runs(folders)
    page, tables = (_writable(text) for text in (render_page(gathered), render_markdown(gathered)))
    try:
        write_text(target / PAGE, page)
        write_text(target / TABLES, tables)
    except OSError as error:
        raise ConfigError(
            f"cannot write to {target}: {error.strerror or error}. Choose another folder: -o FOLDER."
        ) from error
    return gathered, [target / PAGE, target / TABLES]


def _writable(text: str) -> str:
    """Write out what UTF-8 cannot hold: JSON can name half a character."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def write_readme(folders: list[Path], path: Path) -> bool:
    """Rewrite the results section of a file; tells whether anything changed."""
    if not path.is_file():
        raise ConfigError(f"no file {path}: --readme needs one with the marks {BEGIN} and {END}.")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text in UTF-8: --readme rewrites Markdown.") from error
    new = replace_section(text, _writable(render_section(require_runs(folders))), where=str(path))
    if new != text:
        try:
            write_text(path, new)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror or error}.") from error
    return new != text


def require_runs(folders: list[Path]) -> Gathered:
    """Gather, or say that there is nothing to report."""
    gathered = gather(*folders)
    if not gathered.rows:
        where = ", ".join(map(str, folders))
        reasons = "".join(f"\n  - {problem.path}: {problem.reason}" for problem in gathered.problems)
        raise DataError(
            f"no finished run below {where}: a report needs at least one. Make some: aaren train SETTING "
            f"DATASET, or aaren reproduce.{reasons}"
        )
    return gathered
