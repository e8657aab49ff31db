"""`aaren demo`: the library in five minutes."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the page and its numbers go.")] = Path(
        "runs/demo"
    ),
) -> None:
    """Fit four estimators and write a page; five minutes on two cores.

    Needs the extra: pip install 'aaren[demo]'.
    """
    from aaren.demo.run import NEXT, PAGE, run
    from aaren.engine.progress import duration

    sections, seconds = run(out, console=Console(stderr=True, highlight=False))
    for section in sections.values():
        print(f"- {section.summary}" + ("" if section.is_good else "  (below its level)"))
    print(f"page: {out / PAGE}, after {duration(seconds)}")
    print(f"next: {NEXT[0][1]}   (to {NEXT[0][0]})")
    print(f"      {NEXT[1][1]}   (to {NEXT[1][0]})")
    if not all(section.is_good for section in sections.values()):
        raise typer.Exit(1)
