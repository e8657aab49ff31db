"""Every example runs, is short, and prints something."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

QUICK = {"associative_recall.py": ["2"]}  # arguments that keep an example short
LONG = {"events.py", "forecast_table.py", "order.py", "policy.py"}  # these train for a while
LAUNCHED = {  # on two processes: the package each needs, and what starts it
    "train_with_accelerate.py": (
        "accelerate",
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    ),
    "train_with_lightning.py": ("lightning", []),
}
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(path, marks=[pytest.mark.long] * (path.name in LONG))
        for path in EXAMPLES
        if path.name not in LAUNCHED
    ],
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


@pytest.mark.long
@pytest.mark.parametrize("name", LAUNCHED)
def test_modules_train_on_two_processes_by_other_libraries(name, tmp_path):
    package, launcher = LAUNCHED[name]
    pytest.importorskip(package)
    example = next(path for path in EXAMPLES if path.name == name)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    for _ in range(2):  # an abort at exit comes in a part of the runs
        done = subprocess.run(
            [sys.executable, *launcher, str(example)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        first, last = (float(word.rstrip(",")) for word in done.stdout.split() if word[:2] == "0.")
        assert last < 0.3 * first
        assert "on 2 processes" in done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_is_short(example):
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 80
