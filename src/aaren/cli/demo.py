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
    """Learn four tasks and write a page; five minutes on two cores.

    Needs the extra: pip install 'aaren[demo]'.
    """
    from aaren.demo.run import NEXT, PAGE, run
    from aaren.engine.progress import duration

    talk = Console(stderr=True, highlight=False)
    sections, seconds = run(out, console=talk)
    for section in sections.values():
        print(section.summary + ("" if section.is_learned else "  (below its level)"))
    print(f"page: {out / PAGE}, after {duration(seconds)}")
    print(f"next: {NEXT[0][1]}   (to {NEXT[0][0]})")
    print(f"      {NEXT[1][1]}   (to {NEXT[1][0]})")
    if not all(section.is_learned for section in sections.values()):
        raise typer.Exit(1)
