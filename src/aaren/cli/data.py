"""`aaren data ...`: list, fetch, verify and make datasets."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from aaren.errors import AarenError, ConfigError

if TYPE_CHECKING:
    from aaren.datasets.dataset import Dataset
    from aaren.datasets.fetch import Progress
    from aaren.datasets.verify import Entry


app = typer.Typer(help="List, fetch, verify and make datasets.", no_args_is_help=True)

_MARKS = {
    "verified": "[green]verified[/]",
    "generated": "[green]generated[/]",
    "differs": "[bold red]differs[/]",
    "broken": "[bold red]broken[/]",
    "missing": "[dim]missing[/]",
}

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAMES", help="Datasets or settings; all 38 when left out.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command("list")
def list_datasets(
    names: Names = None,
    extras: Annotated[
        bool, typer.Option("--extras", help="Also parts, stand-ins and generated sets.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the 38 datasets, one line each: shape, size on disk, verified or not."""
    from aaren.datasets.catalogue import EXTRAS, select
    from aaren.datasets.verify import describe

    rows = select(tuple(names or ()))
    if extras:
        settings = {row.setting for row in rows}
        rows += tuple(row for row in EXTRAS if row.setting in settings and row not in rows)
    entries = [describe(row) for row in rows]
    if as_json:
        print(json.dumps([asdict(entry) for entry in entries], indent=1))
        return
    _print_entries(entries)


@app.command()
def show(
    names: Annotated[list[str], typer.Argument(metavar="NAMES", help="Datasets; see: aaren data list.")],
    as_json: AsJson = False,
) -> None:
    """Describe a dataset: files, facts, licence, source, state on this machine."""
    from aaren.datasets.catalogue import lookup
    from aaren.datasets.verify import describe

    rows = [lookup(name) for name in names]
    if as_json:
        print(json.dumps([asdict(describe(row)) for row in rows], indent=1))
        return
    console = Console(highlight=False)
    for row in rows:
        entry = describe(row)
        size = f"{_MARKS.get(entry.status, entry.status)}" + (
            f", {_size(entry.bytes_on_disk)}" if entry.is_on_disk else ""
        )
        uncertain = dict.fromkeys(row.uncertain, "?")
        facts = ", ".join(f"{name} {value}{uncertain.get(name, '')}" for name, value in row.facts.items())
        fields = {
            "shape": escape(entry.shape),
            "on disk": size,
            "files": escape(", ".join(row.files)),
            "facts": escape(facts),
            "licence": escape(row.licence),
            "source": escape(row.source),
            "stands for": escape(row.stands_for),
            "remark": escape(row.remark),
            "get it": f"aaren data fetch {row.name}" if row.urls and not entry.is_on_disk else "",
        }
        console.print(f"[bold]{escape(row.name)}[/] ({row.setting})")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, text in fields.items():
            if text:
                grid.add_row(f"  [dim]{name}[/]", text)
        console.print(grid)


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAMES", help="Datasets or settings.")],
    any_checksum: Annotated[
        bool, typer.Option("--any-checksum", help="Accept a file that changed at its source.")
    ] = False,
) -> None:
    """Download datasets from their official sources; what is on disk already is kept."""
    from aaren.datasets.catalogue import select
    from aaren.datasets.fetch import fetch as fetch_dataset
    from aaren.datasets.verify import verify as verify_dataset

    def fetch_row(row: "Dataset") -> None:
        with _progress() as progress:
            paths = fetch_dataset(row, any_checksum=any_checksum, progress=progress)
        finding = verify_dataset(row)
        print(f"{row.name}: {finding.status}, {', '.join(map(str, paths))}")
        for line in (*finding.differences, *finding.remarks):
            talk.print(f"  {escape(line)}", soft_wrap=True)

    talk = Console(stderr=True, highlight=False)
    failures = 0
    for row in select(tuple(names)):
        try:
            fetch_row(row)
        except AarenError as error:  # the others may still come
            failures += 1
            talk.print("[bold red]error:[/]", escape(str(error)), soft_wrap=True)
    if failures:
        raise typer.Exit(2)


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAMES", help="Datasets, settings, or a file of yours; all on disk when left out."
        ),
    ] = None,
    setting: Annotated[
        str, typer.Option("--as", metavar="SETTING", help="The setting of your file: forecasting, events ...")
    ] = "",
    allow_irregular: Annotated[
        bool,
        typer.Option("--allow-irregular", help="Accept gaps, repeated dates, sentinels, missing values."),
    ] = False,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=NAME", help="Names of your events' columns: time=when, sequence=user, mark=action."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare what is on disk with the catalogue; exit code 1 when something differs."""
    from aaren.datasets.catalogue import EXTRAS, select
    from aaren.datasets.verify import check_file
    from aaren.datasets.verify import verify as verify_dataset

    files = [Path(name) for name in names or () if os.path.exists(name)]  # noqa: PTH110  # as in files.archive
    registered = [name for name in names or () if Path(name) not in files]
    rows: tuple[Dataset, ...] = select(tuple(registered)) if registered else ()
    if not names:
        rows = (*select(()), *EXTRAS)
    columns = dict(_read_column(given) for given in column or ())
    findings = [
        check_file(path, setting=setting, allow_irregular=allow_irregular, columns=columns) for path in files
    ]
    findings += [verify_dataset(row) for row in rows]
    if not names:
        findings = [finding for finding in findings if finding.status != "missing"]
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        console = Console(highlight=False)
        for finding in findings:
            facts = ", ".join(f"{name} {value}" for name, value in finding.measured.items() if value != "")
            console.print(f"{_MARKS[finding.status]} {escape(finding.name)}: {escape(facts)}", soft_wrap=True)
            for line in finding.differences:
                console.print(f"  [bold red]![/] {escape(line)}", soft_wrap=True)
            for line in finding.remarks:
                console.print(f"  [dim]remark: {escape(line)}[/]", soft_wrap=True)
        if not names:
            absent = len(rows) - len(findings)
            console.print(
                f"{len(findings)} checked; {absent} of {len(rows)} sets and extras are not on disk."
            )
    if any(finding.status in ("differs", "broken") for finding in findings):
        raise typer.Exit(1)


@app.command()
def make(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A generated set: sin, poisson, hawkes, renewal, seasonal.")
    ],
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The same seed gives the same data.")] = 0,
) -> None:
    """Draw a dataset from a known process."""
    from aaren.datasets.verify import make_generated

    print(make_generated(name, seed=seed))


@contextmanager
def _progress() -> "Iterator[Progress]":
    """Show a bar per file on stderr; nothing where stderr is not a terminal."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import TransferSpeedColumn as SpeedColumn

    columns = (BarColumn(), DownloadColumn(), SpeedColumn(), TimeRemainingColumn())
    with Progress(
        TextColumn("{task.description}"),
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as bar:
        tasks: dict[str, int] = {}

        def report(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = int(bar.add_task(name, total=total))
            bar.update(tasks[name], completed=done, total=total)  # type: ignore[arg-type]  # rich's TaskID is an int

        yield report


def _print_entries(entries: "list[Entry]") -> None:
    from aaren.datasets.settings import setting_names

    console = Console(highlight=False)
    for setting in setting_names():
        chosen = [entry for entry in entries if entry.setting == setting]
        for title, group in (
            (setting, [entry for entry in chosen if not entry.is_extra]),
            (f"{setting}: extras, not among the 38", [entry for entry in chosen if entry.is_extra]),
        ):
            if group:
                console.print(f"[bold]{title} ({len(group)})[/]")
                _print_lines(console, group)
    here = sum(entry.is_on_disk for entry in entries)
    console.print(
        f"{here} of {len(entries)} on disk; a question mark: not certain. More of one: aaren data show NAME"
    )


def _print_lines(console: Console, entries: "list[Entry]") -> None:
    """One line a dataset: in a narrow terminal its shape is cut, never its name or status."""
    longest = max(len(entry.name) for entry in entries)
    available = max(20, console.width - longest - len("    000.0 MB  not verified"))
    for entry in entries:
        size = _size(entry.bytes_on_disk) if entry.is_on_disk else ""
        shape = entry.shape if len(entry.shape) <= available else entry.shape[: available - 1] + "…"
        console.print(
            f"  {escape(f'{entry.name:{longest}}  {shape:{available}}')}{size:>8}  "
            f"{_MARKS.get(entry.status, entry.status)}",
            soft_wrap=True,
        )


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes >= 100_000 else f"{num_bytes / 1e3:,.0f} kB"


def _read_column(given: str) -> tuple[str, str]:
    role, equals, name = given.partition("=")
    if not (role and equals and name):
        raise ConfigError(f"--column takes ROLE=NAME, such as time=when; got {given!r}.")
    return role, name
