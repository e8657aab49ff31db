"""A progress bar on stderr for long measurements; results on stdout stay clean."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

OnStep: TypeAlias = Callable[[int, int, str], None]  # steps done, steps in all, what comes next


def silent(done: int, total: int, what: str) -> None:
    """Report nothing: for tests and library use."""


@contextmanager
def progress_bar(title: str) -> Iterator[OnStep]:
    """Show a bar while the block runs; it hands out the function that moves it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, what="")

        def on_step(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, what=what)

        yield on_step
