"""Every example runs, is short, and prints something."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

QUICK = {"associative_recall.py": ["2"]}  # arguments that keep an example short
LONG = {"events.py", "forecast_table.py", "order.py", "policy.py"}  # these train for a while
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize(
    "example",
    [pytest.param(path, marks=[pytest.mark.long] * (path.name in LONG)) for path in EXAMPLES],
    ids=lambda path: path.name,
)
def test_example_runs(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example), *QUICK.get(example.name, [])])
    threads = torch.get_num_threads()
    with torch.random.fork_rng():
        runpy.run_path(str(example), run_name="__main__")
    torch.set_num_threads(threads)
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_is_short(example):
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 80
