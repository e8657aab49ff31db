"""Write the reference pages from the code: one page per package, one for the command line.

Called by conf.py at every build; the pages (docs/reference/) are not kept in the repository.
"""

import importlib
import inspect
from pathlib import Path

import typer.main
from typer.testing import CliRunner

from aaren.cli.main import app

PACKAGES = {  # and what its page says it is
    "aaren.ops": "The operator: pure functions on tensors.",
    "aaren.nn": "Modules with `forward` for a whole sequence and `step` for one item.",
    "aaren.forecasting": "Forecasts of regular series: models, streams, the estimator.",
    "aaren.classification": "Classification of series, whole or while they arrive.",
    "aaren.events": "Events at irregular times: models, streams, the estimator.",
    "aaren.rl": "Policies learned from recorded episodes.",
    "aaren.stream": "What turns a model into a stream: sessions, saved models, pools.",
    "aaren.export": "Streams without torch: C, WebAssembly, ONNX.",
    "aaren.engine": "Training, and what a setting of your own provides.",
    "aaren.errors": "What is raised, and when.",
}
UNLISTED = {  # public names of packages without an `__all__`
    "aaren.stream": (
        "session.Session",
        "saved.save_model",
        "saved.load_model",
        "pool.StreamPool",
    ),
    "aaren.engine": ("setting.Setting", "experiment.Experiment"),
    "aaren.errors": (
        "AarenError",
        "ShapeError",
        "StateError",
        "ConfigError",
        "DataError",
        "MissingDependencyError",
    ),
}


def write_reference(folder: Path) -> None:
    """Write every page; what is no longer there goes."""
    folder.mkdir(exist_ok=True)
    pages = {f"{name}.md": _package_page(name, about) for name, about in PACKAGES.items()}
    pages["commands.md"] = _commands_page()
    for stale in set(folder.glob("*.md")) - {folder / name for name in pages}:
        stale.unlink()
    for name, text in pages.items():
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text:
            (folder / name).write_text(text, encoding="utf-8")


def _package_page(name: str, about: str) -> str:
    lines = [f"# `{name}`", "", about, "", "```{eval-rst}"]
    names = UNLISTED.get(name) or sorted(importlib.import_module(name).__all__, key=str.lower)
    for public in names:
        module, _, leaf = f"{name}.{public}".rpartition(".")
        thing = getattr(importlib.import_module(module), leaf)
        if inspect.isclass(thing):
            lines += [
                f".. autoclass:: {module}.{leaf}",
                "   :members:",
                "   :exclude-members: __init__, __new__, set_score_request, set_fit_request",
            ]
        elif callable(thing):
            lines.append(f".. autofunction:: {module}.{leaf}")
    return "\n".join([*lines, "```", ""])


def _commands_page() -> str:
    """Show what `--help` prints of every verb, in 80 columns without colour."""
    lines = ["# The command line", "", *_help()]
    for verb, command in sorted(_children(typer.main.get_command(app))):
        lines += [f"## `aaren {verb}`", ""]
        below = sorted(_children(command))
        for name, _ in below:
            lines += [f"### `aaren {verb} {name}`", "", *_help(verb, name)]
        if not below:
            lines += _help(verb)
    return "\n".join(lines)


def _children(command: object) -> list[tuple[str, object]]:
    return list(getattr(command, "commands", {}).items())


def _help(*words: str) -> list[str]:
    environment = {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1", "TERM": "dumb"}
    printed = CliRunner().invoke(app, [*words, "--help"], prog_name="aaren", env=environment).stdout
    return ["```text", *(line.rstrip() for line in printed.strip("\n ").splitlines()), "```", ""]
