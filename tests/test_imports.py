"""What importing costs, and which packages know no setting by its name."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import aaren
from aaren.datasets.settings import BUILT_IN


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_import_aaren_brings_neither_torch_nor_numba():
    assert not {"torch", "numba"} & modules_after("import aaren")


def test_the_kernels_need_neither_numba_nor_a_compiler():
    statement = (
        "import torch\n"
        "from aaren.nn import AarenAttention\n"
        "AarenAttention(8, 2)(torch.zeros(1, 3, 8))[0].sum().backward()"
    )
    assert not {"numba", "llvmlite", "torch._dynamo"} & modules_after(statement)


def test_a_fit_in_closed_form_and_its_stream_need_no_compiler():
    """Importing torch's takes two seconds: several times the fit."""
    statement = (
        "import numpy as np\n"
        "from aaren import AarenClassifier\n"
        "series = np.sin(np.arange(1, 21)[:, None] * np.arange(16))\n"
        "session = AarenClassifier(size='small').fit(series, np.arange(20) % 2).stream(engine='native')\n"
        "session.push(series[0, :1])"
    )
    assert not {"torch._dynamo", "torch._inductor"} & modules_after(statement)


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


# The published numbers are of four settings, and what the report calls things stands in one file.
# tables: episodes of RL; figures: the curve of early classification
NAMING_SETTINGS = {"lab/names.py", "lab/published.py", "lab/tables.py", "lab/figures.py"}


def named_settings(path: Path) -> list[str]:
    """Return what a file names of a built-in setting: imports, and string literals."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value if node.value in BUILT_IN else node.value.removeprefix("aaren."))
        elif isinstance(node, ast.ImportFrom) and node.module == "aaren":
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module.removeprefix("aaren."))
        elif isinstance(node, ast.Import):
            found += [alias.name.removeprefix("aaren.") for alias in node.names]
    return [name for name in found if name.partition(".")[0] in BUILT_IN]


def test_the_lab_names_settings_in_few_files() -> None:
    root = Path(aaren.__file__).parent
    paths = list((root / "lab").rglob("*.py"))
    found = {str(path.relative_to(root)): named_settings(path) for path in paths}
    assert {name for name, names in found.items() if names} == NAMING_SETTINGS, found
