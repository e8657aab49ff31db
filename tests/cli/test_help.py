import subprocess
import sys

from aaren.version import __version__


def test_help_names_the_extra_that_figures_need():
    """Square brackets are markup to the help's printer unless they are escaped."""
    shown = subprocess.run(
        [sys.executable, "-m", "aaren", "bench", "show", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "aaren[plot]" in shown


def test_the_version_is_printed():
    words = [sys.executable, "-m", "aaren"]
    for last in ("--version", "version"):
        shown = subprocess.run([*words, last], capture_output=True, text=True, check=True).stdout
        assert shown.strip() == __version__
