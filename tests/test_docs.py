"""Whatever the README, the docs and the docstrings show, works."""

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import aaren
from support.markdown import python_blocks, run_blocks

ROOT = Path(__file__).parents[1]
PAGES = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if python_blocks(page)]
MODULES = sorted(module.name for module in pkgutil.walk_packages(aaren.__path__, "aaren."))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    run_blocks(page)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_are_true(name):
    if name.endswith("triton_kernels"):
        pytest.importorskip("triton")
    torch.manual_seed(0)
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


@pytest.mark.slow
def test_documentation_builds_without_warnings(tmp_path):
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(ROOT / "docs")]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
