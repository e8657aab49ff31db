"""What importing costs: help without torch, the package without numba."""

import subprocess
import sys

import pytest


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_import_aaren_brings_neither_torch_nor_numba():
    assert not {"torch", "numba"} & modules_after("import aaren")


@pytest.mark.parametrize("package", ["aaren.ops", "aaren.nn"])
def test_the_library_leaves_numba_for_the_first_call(package):
    assert "numba" not in modules_after(f"import {package}")


@pytest.mark.parametrize("setting", ["forecasting", "classification", "events", "rl"])
def test_a_setting_is_found_without_torch(setting):
    assert "torch" not in modules_after(f"from aaren.{setting} import SETTING")


def test_listing_datasets_does_not_import_torch():
    statement = (
        "from aaren.cli.main import app\n"
        "from typer.testing import CliRunner\n"
        "assert CliRunner().invoke(app, ['data', 'list']).exit_code == 0"
    )
    assert "torch" not in modules_after(statement)


def test_help_does_not_import_torch():
    statement = (
        "from aaren.cli.main import app\n"
        "from typer.testing import CliRunner\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0"
    )
    assert not {"torch", "numba", "pandas", "matplotlib"} & modules_after(statement)
