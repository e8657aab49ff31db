"""`aaren data ...`: list, fetch and verify datasets."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape

from aaren.cli.options import AsJson
from aaren.errors import AarenError, ConfigError

if TYPE_CHECKING:
    from aaren.datasets.dataset import Dataset
    from aaren.datasets.verify import Finding

app = typer.Typer(help="List, fetch and verify datasets.", no_args_is_help=True)
_BAD = ("differs", "broken")

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAMES", help="Datasets or settings; none: all 38.")
]


@app.command("list")
def list_datasets(
    names: Names = None,
    extras: Annotated[bool, typer.Option("--extras", help="Also parts, stand-ins, generated sets.")] = False,
    as_json: AsJson = False,
) -> None:
    """List datasets; one that is named with all that is known."""
    from aaren.datasets.catalogue import EXTRAS, select
    from aaren.datasets.fetch import on_disk
    from aaren.datasets.settings import setting_names
    from aaren.datasets.verify import shape
    from aaren.table import print_table

    rows = select(tuple(names or ()))
    if extras:
        settings = {row.setting for row in rows}
        rows += tuple(row for row in EXTRAS if row.setting in settings and row not in rows)
    if as_json:
        paths = {row.name: list(map(str, on_disk(row, or_shipped=True))) for row in rows}
        print(
            json.dumps(
                [{**asdict(row), "shape": shape(row), "paths": paths[row.name]} for row in rows], indent=1
            )
        )
    elif names and not set(names) & set(setting_names()) and not extras:
        for row in rows:
            _print_details(row)
    else:
        for setting in dict.fromkeys(row.setting for row in rows):
            group = [row for row in rows if row.setting == setting]
            cells = [[row.name, shape(row), _size(row)] for row in group]
            print_table(["name", "shape", "on disk"], cells, title=f"{setting} ({len(group)})", num_left=2)
        here = sum(bool(on_disk(row, or_shipped=True)) for row in rows)
        print(
            f"{here} of {len(rows)} on disk; a question mark: not certain. More of one: aaren data list NAME"
        )


def _size(row: "Dataset") -> str:
    from aaren.datasets.fetch import on_disk

    if paths := on_disk(row, or_shipped=True):
        return decimal(sum(path.stat().st_size for path in paths))
    return "generated" if row.is_generated else "missing"


def _print_details(row: "Dataset") -> None:
    from aaren.datasets.verify import shape
    from aaren.table import print_table

    facts = (f"{name} {value}{'?' * (name in row.uncertain)}" for name, value in row.facts.items())
    fields = {
        "setting": row.setting,
        "shape": shape(row),
        "on disk": _size(row),
        "files": ", ".join(row.files),
        "facts": ", ".join(facts),
        "licence": row.licence,
        "source": row.source,
        "stands for": row.stands_for,
        "remark": row.remark,
        "get it": f"aaren data fetch {row.name}" if row.urls else "",
    }
    print_table([row.name, ""], [[name, text] for name, text in fields.items() if text], num_left=2)


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAMES", help="Datasets or settings.")],
    any_checksum: Annotated[
        bool, typer.Option("--any-checksum", help="Accept a file that changed at its source.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Of generated sets, which are made anew; default: 0."),
    ] = None,
) -> None:
    """Download or generate what is not on disk."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from aaren.datasets.catalogue import select
    from aaren.datasets.fetch import fetch as fetch_dataset
    from aaren.datasets.verify import verify as verify_dataset

    talk = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    failures = 0
    for row in select(tuple(names)):
        with Progress(*columns, console=talk, transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task(row.name)

            def report(
                file: str, done: int, total: int | None, bar: Progress = bar, task: object = task
            ) -> None:
                bar.update(task, description=file, completed=done, total=total)  # type: ignore[arg-type]  # a TaskID

            try:
                paths = fetch_dataset(row, any_checksum=any_checksum, seed=seed, progress=report)
            except AarenError as error:  # the others may still come
                failures += 1
                talk.print("[bold red]error:[/]", escape(str(error)), soft_wrap=True)
                continue
        print(f"{row.name}: {', '.join(map(str, paths))}")
        _print_finding(verify_dataset(row))
    if failures:
        raise typer.Exit(2)


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAMES", help="Datasets, settings or your files; none: all on disk."),
    ] = None,
    setting: Annotated[
        str, typer.Option("--as", metavar="SETTING", help="The setting of your file: forecasting, events ...")
    ] = "",
    allow_irregular: Annotated[
        bool, typer.Option("--allow-irregular", help="Accept gaps, repeated dates, missing values.")
    ] = False,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=NAME", help="Columns of your events: time=when, sequence=user, mark=act."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare files with the catalogue; exit code 1 if they differ."""
    from aaren.datasets.catalogue import EXTRAS, select
    from aaren.datasets.verify import check_file
    from aaren.datasets.verify import verify as verify_dataset

    paths = [name for name in names or () if os.path.exists(name)]  # noqa: PTH110  # as in files.archive
    others = tuple(name for name in names or () if name not in paths)
    rows = () if paths and not others else select(others)
    columns = dict(_read_column(text) for text in column or ())
    options = {"setting": setting, "allow_irregular": allow_irregular, "columns": columns}
    findings = [check_file(Path(path), **options) for path in paths]  # type: ignore[arg-type]  # by name
    findings += [verify_dataset(row) for row in (rows if names else (*rows, *EXTRAS))]
    if not names:
        findings = [finding for finding in findings if finding.status != "missing"]
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            _print_finding(finding)
    if any(finding.status in _BAD for finding in findings):
        raise typer.Exit(1)


def _print_finding(finding: "Finding") -> None:
    console = Console(highlight=False)
    style = "bold red" if finding.status in _BAD else "green"
    facts = ", ".join(f"{name} {value}" for name, value in finding.measured.items() if value != "")
    console.print(f"[{style}]{finding.status}[/] {escape(finding.name)}: {escape(facts)}", soft_wrap=True)
    for line in finding.differences:
        console.print(f"  [bold red]![/] {escape(line)}", soft_wrap=True)
    for line in finding.remarks:
        console.print(f"  [dim]remark: {escape(line)}[/]", soft_wrap=True)


def _read_column(text: str) -> tuple[str, str]:
    role, equals, name = text.partition("=")
    if not (role and equals and name):
        raise ConfigError(f"--column takes ROLE=NAME, such as time=when; got {text!r}.")
    return role, name
