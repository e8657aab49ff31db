"""Python blocks of Markdown pages, run as a reader would: top to bottom, in one namespace."""

import re
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def python_blocks(page: Path) -> list[str]:
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def run_blocks(page: Path) -> dict[str, object]:
    """Execute all blocks of a page; line numbers in tracebacks are the page's own."""
    namespace: dict[str, object] = {"__name__": "__page__"}
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text[: found.start(1)].count("\n")
        exec(compile("\n" * line + found.group(1), str(page), "exec"), namespace)
    return namespace
