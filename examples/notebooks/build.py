"""Write the notebooks of this folder from its Python files, executed, with their outputs.

    python examples/notebooks/build.py [forecasting] [events] ...     # needs: pip install nbclient ipykernel

`# %%` begins a cell, `# %% [markdown]` one of text. The first line of text is the title; a comment
`# extras: data,report` on top names what the install cell brings on a machine without the library.
"""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
INSTALL = """import importlib.util

if importlib.util.find_spec("aaren") is None:  # on Colab, say
    %pip install -q 'aaren[{extras}]'"""


def read_cells(source: str) -> list[nbformat.NotebookNode]:
    """Cut a Python file into cells: the title, the install cell, and the rest as it is written."""
    head, *parts = source.split("# %%")
    extras = head.partition("# extras:")[2].split("\n")[0].strip()
    cells = []
    for part in parts:
        kind, _, text = part.partition("\n")
        if kind.strip() == "[markdown]":
            lines = (line.removeprefix("#").removeprefix(" ") for line in text.strip().splitlines())
            cells.append(nbformat.v4.new_markdown_cell("\n".join(lines)))
        else:
            cells.append(nbformat.v4.new_code_cell(text.strip()))
    return [cells[0], nbformat.v4.new_code_cell(INSTALL.format(extras=extras)), *cells[1:]]


def build(path: Path, target: Path) -> None:
    """Run a file's cells in a fresh kernel and an empty folder; an error in one ends it all."""
    book = nbformat.v4.new_notebook(cells=read_cells(path.read_text(encoding="utf-8")))
    book.metadata.kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(book, timeout=3600, resources={"metadata": {"path": folder}}).execute()
    for place, cell in enumerate(book.cells):
        cell.id = f"{path.stem}-{place}"
        cell.metadata = {}
    book.metadata.language_info = {"name": "python"}
    nbformat.write(book, target)


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.py") if path.name != "build.py")
    for name in names:
        target = HERE / f"{name}.ipynb"
        build(HERE / f"{name}.py", target)
        print(f"{target.name}: {target.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
