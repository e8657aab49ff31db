"""What a command cannot write to stdout is an error of one line; what it cannot write to stderr is lost."""

import subprocess
import sys
from pathlib import Path

import pytest

AAREN = f"{sys.executable} -c 'from aaren.cli.main import main; main()'"
pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--version > /dev/full", 2, "error: No space left on device. Choose another file"),
        ("--version 2> /dev/full", 0, ""),
        ("train 2> /dev/full", 2, ""),  # a mistake of the user's that cannot be said
        ("data list | head -1", 1, ""),
        ("--version > >(exit)", 1, ""),
    ],
)
@pytest.mark.parametrize("buffered", ["", "PYTHONUNBUFFERED=1 "])
def test_streams_that_take_nothing(words: str, code: int, said: str, buffered: str) -> None:
    script = f"set -o pipefail; {buffered}{AAREN} {words}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[: len(said)]) == (code, said)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
