import subprocess
import sys

import pytest
import typer.main
from typer.testing import CliRunner

from aaren.cli.main import app
from aaren.version import __version__


def test_the_version_is_printed():
    words = [sys.executable, "-m", "aaren", "--version"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == __version__


GROUPS = typer.main.get_command(app).commands
VERBS = [[], *([verb] for verb in GROUPS)]
VERBS += [[verb, below] for verb, group in GROUPS.items() for below in getattr(group, "commands", {})]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_fits_a_terminal_and_speaks_no_python(verb: list[str]):
    """No type where a word says more, no flag with something to type behind it, no example cut in two."""
    narrow = {"COLUMNS": "80", "TERMINAL_WIDTH": "80"}
    shown = CliRunner().invoke(app, [*verb, "--help"], env=narrow).stdout
    options = shown.partition("Options:")[2]
    assert "--help" in options
    for word in ("<str", "<int", "<float", "<path", "<list", "<bool", "…"):
        assert word not in options
    assert max(map(len, shown.splitlines())) <= 80
    assert len(shown.splitlines()) <= (26 if verb == ["reproduce"] else 24)
    assert "..." not in shown.partition("Commands:")[2]


def test_there_are_at_most_14_verbs():
    assert len([verb for verb in VERBS if verb and verb != ["data"]]) <= 14
