"""Modules of the user's own: imported because the command line names them, never because a file does."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def look_here() -> None:
    """Let imports find modules in the current folder, after everything that is installed."""
    try:
        here = str(Path.cwd())
    except OSError:  # it is gone, and nothing can be found there
        return
    if here not in sys.path:
        sys.path.append(here)


def import_modules(names: Iterable[str]) -> None:
    """Import what `--import` names."""
    from aaren.datasets.settings import import_own

    for name in names:
        look_here()
        import_own(name, purpose="--import")


def import_settings(names: Iterable[str]) -> None:
    """Import the settings of the user's own among those that are named."""
    from aaren.datasets.settings import import_setting, setting_names

    for name in names:
        if name not in setting_names():
            look_here()
            import_setting(name)


def import_environments(assignments: Sequence[str]) -> None:
    """Import the modules of environments (`module:ID`) that are set with `--set environment=`."""
    from aaren.datasets.settings import import_own

    for assignment in assignments:
        key, _, value = assignment.partition("=")
        module, colon, _ = value.strip().rpartition(":")
        if colon and key.strip().rpartition(".")[2] == "environment":
            look_here()
            import_own(module, purpose=f"environment {value.strip()!r}")
