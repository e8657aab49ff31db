"""Every example runs, is short, and prints something."""

import subprocess
import sys
from pathlib import Path

import pytest

QUICK = {"associative_recall.py": ["2"]}  # arguments that keep an example short
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(example, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example), *QUICK.get(example.name, [])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_is_short(example):
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 60
