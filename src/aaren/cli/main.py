"""The command `aaren`: parse, call one function, print. Heavy imports are inside the commands."""

import contextlib
import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from aaren.cli import (
    check,
    data,
    demo,
    evaluate,
    export,
    info,
    report,
    reproduce,
    serve,
    stream,
    train,
)
from aaren.cli.own_modules import import_modules
from aaren.errors import AarenError, ConfigError
from aaren.files.stdio import flush_or_drop, open_stdio
from aaren.version import __version__


class _Verbs(TyperGroup):
    """The commands, after a check of the words that follow `aaren`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # the same
        """Refuse a word that is empty, as of a variable without a value: it would mean some default."""
        for before, word in zip(["", *args], args, strict=False):
            option, sign, value = word.partition("=")
            if not word or (word.startswith("--") and sign and not value):
                name = option or before
                where = f" after {name}" if name.startswith("-") else ""
                raise ConfigError(f"an empty word{where}: give a value, or leave it out.")
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="aaren",
    cls=_Verbs,
    help="Attention as an RNN: trained in parallel, run token by token in constant memory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in (
    demo.demo,
    info.info,
    check.check,
    train.train,
    evaluate.evaluate,
    evaluate.predict,
    stream.stream,
    serve.serve,
    export.export,
    reproduce.reproduce,
    report.report,
):
    app.command()(verb)
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
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a module of yours first; repeatable.",
        ),
    ] = None,
) -> None:
    """Take the options before the command."""
    del is_version_wanted
    import_modules(modules or ())


# How torch says that there is no memory for a tensor, in a RuntimeError like any other.
_TOO_LARGE = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")


def main() -> None:
    """Run the command line: a user's mistake is one clear line and exit code 2, never a traceback."""
    open_stdio()
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # processes that we start import nothing from where we are
    try:
        app()
    except AarenError as error:
        _complain(str(error))
        sys.exit(2)
    except OSError as error:  # a file or folder that no check of ours has named before
        _complain_of(error)
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in _TOO_LARGE):
            raise
        _complain(f"this needs more memory than there is ({shorten(str(error))}): choose smaller sizes.")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        _flush_stdio()


def _flush_stdio() -> None:
    """Write what is left; results that cannot be written are an error, talk that cannot is lost."""
    error = flush_or_drop(sys.stdout)
    if error is not None and not isinstance(error, BrokenPipeError):  # as in `aaren data list | head -1`
        _complain_of(error)
    flush_or_drop(sys.stderr)
    if error is not None:
        sys.exit(1 if isinstance(error, BrokenPipeError) else 2)


def shorten(text: str, most: int = 200) -> str:
    """Cut out the middle of a long text.

    >>> shorten("abcdefgh", 4)
    'ab...gh'
    """
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-(most // 2) :]}"


def _complain_of(error: OSError) -> None:
    where = f": {shorten(str(error.filename))!r}" if error.filename else ""
    _complain(f"{error.strerror or error}{where}. Choose another file or folder, or free some space.")


def _complain(text: str) -> None:
    console = Console(stderr=True, highlight=False, emoji=False)
    with contextlib.suppress(OSError):  # then the exit code alone says it
        console.print("[bold red]error:[/]", escape(text), soft_wrap=True)
