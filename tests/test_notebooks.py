"""Notebooks hold what their sources say, with outputs that were made by running them, and stay small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
SOURCES = sorted(path for path in FOLDER.glob("*.py") if path.name != "build.py")


def test_there_is_a_notebook_per_guide() -> None:
    guides = {"classification", "deploy", "events", "forecasting", "own_model", "policies"}
    assert {path.stem for path in SOURCES} == guides == {path.stem for path in FOLDER.glob("*.ipynb")}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_is_its_source_executed(source: Path) -> None:
    target = source.with_suffix(".ipynb")
    assert target.stat().st_size < 150_000
    cells = json.loads(target.read_text(encoding="utf-8"))["cells"]
    text = "\n".join(_text(cell) for cell in cells)
    assert "%pip install" in _text(cells[1])
    parts = [part.partition("\n") for part in source.read_text(encoding="utf-8").split("# %%")[1:]]
    for kind, _, part in parts:
        lines = part.strip().splitlines()
        if kind.strip() == "[markdown]":
            lines = [line.removeprefix("#").removeprefix(" ") for line in lines]
        assert "\n".join(lines) in text, "run: python examples/notebooks/build.py"
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]


@pytest.mark.long
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_runs(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    for path in (source, FOLDER / "build.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    done = subprocess.run(
        [sys.executable, str(tmp_path / "build.py"), source.stem], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"{source.stem}.ipynb").exists()


def _text(cell: dict[str, object]) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)
