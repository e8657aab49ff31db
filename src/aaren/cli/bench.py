"""`aaren bench ...`: ratios against peers, each measured in one run."""

import typer

app = typer.Typer(help="Measure this machine: ratios against peers, in one run.", no_args_is_help=True)
