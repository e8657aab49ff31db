"""`aaren report`: tables, figures and one HTML page from run records."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUNS", help="Folders with runs.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="For index.html, tables.md and verdict.svg; default: report.",
        ),
    ] = None,
    readme: Annotated[
        Path | None,
        typer.Option(
            "--readme", metavar="FILE", help="Rewrite the results section of this file; without -o only that."
        ),
    ] = None,
) -> None:
    """Write the report of runs: tables, statistics and figures.

    `aaren report results -o report` writes one page that needs no network, and tables.md.
    """
    from rich.console import Console
    from rich.markup import escape

    from aaren.errors import require_extra

    for package in ("scipy", "pandas", "matplotlib"):
        require_extra(package, extra="report", purpose="aaren report")
    from aaren.lab.page import write_readme, write_report
    from aaren.lab.verdict import verdict

    talk = Console(stderr=True, highlight=False)
    if readme is not None:
        is_changed = write_readme(runs, readme)
        print(f"{readme}: {'rewritten' if is_changed else 'up to date'}")
        if out is None:
            return
    results, paths = write_report(runs, out or Path("report"))
    for problem in results.problems:
        talk.print(
            f"[yellow]left out[/] {escape(str(problem.path))}: {escape(problem.reason)}", soft_wrap=True
        )
    print("\n".join(verdict(results)))
    for path in paths:
        print(path)
