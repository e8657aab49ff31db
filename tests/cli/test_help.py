import subprocess
import sys

import pytest
from typer.testing import CliRunner

from aaren.cli.main import app
from aaren.version import __version__


def test_help_names_the_extra_that_figures_need():
    """Square brackets are markup to the help's printer unless they are escaped."""
    shown = subprocess.run(
        [sys.executable, "-m", "aaren", "bench", "show", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "aaren[plot]" in shown


def test_the_version_is_printed():
    words = [sys.executable, "-m", "aaren", "--version"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == __version__


@pytest.mark.parametrize("verb", [[], ["train"], ["reproduce"], ["bench", "scan"], ["data", "list"]])
def test_there_is_nothing_to_type_behind_a_flag(verb: list[str]):
    shown = CliRunner().invoke(app, [*verb, "--help"]).stdout
    assert "--help" in shown
    assert "bool" not in shown
