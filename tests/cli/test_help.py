import subprocess
import sys


def test_help_names_the_extra_that_figures_need():
    """Square brackets are markup to the help's printer unless they are escaped."""
    shown = subprocess.run(
        [sys.executable, "-m", "aaren", "bench", "show", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "aaren[plot]" in shown
