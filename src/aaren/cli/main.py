"""The command `aaren`: parse, call one function, print. Heavy imports wait inside the verbs."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from aaren.cli import bench, bench_grid, bench_policy, data, evaluate, predict, report, reproduce, train
from aaren.errors import AarenError
from aaren.version import __version__

app = typer.Typer(
    name="aaren",
    help="Attention as an RNN: train over sequences in parallel, run token by token in constant memory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(train.train)
app.command()(evaluate.evaluate)
app.command()(predict.predict)
app.command()(report.report)
app.command()(reproduce.reproduce)
bench.app.command()(bench_policy.policy)
bench.app.command()(bench_grid.grid)
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    is_version_wanted: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Take what stands before the verb."""
    del is_version_wanted


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Run the command line: a user's mistake is one clear line and exit code 2, never a traceback."""
    # A user's own settings and environments are found where the command is typed, as `python -m` finds them.
    sys.path.append(str(Path.cwd()))
    try:
        app()
    except AarenError as error:
        Console(stderr=True, highlight=False, emoji=False).print(
            "[bold red]error:[/]", escape(str(error)), soft_wrap=True
        )
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
