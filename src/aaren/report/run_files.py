"""What lies beside a record: its learning curve and the numbers of its figures. The broken is left out."""

from collections.abc import Mapping
from pathlib import Path

from aaren.lab.records import FoundRecord
from aaren.report.figure import Figure, View, mapping
from aaren.report.gathered import Gathered
from aaren.report.names import PAIR
from aaren.report.rows import Row
from aaren.tasks.base import Json
from aaren.train.figures import FIGURES
from aaren.train.record import parse_json


def read_curve(path: Path) -> list[Mapping[str, Json]]:
    """Read a learning curve; a line that was cut off ends it."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return []
    looks = []
    for row in text.splitlines():
        try:
            looks.append(mapping(parse_json(row)))
        except ValueError:
            break
    return looks


def thin(looks: list[Mapping[str, Json]], most: int) -> list[Mapping[str, Json]]:
    """Keep at most so many looks, evenly, and the last.

    >>> [dict(look) for look in thin([{"update": n} for n in range(5)], 2)]
    [{'update': 0}, {'update': 3}, {'update': 4}]
    """
    step = max(1, -(-len(looks) // most))
    kept = looks[::step]
    return kept if not looks or kept[-1] is looks[-1] else [*kept, looks[-1]]


def read_figures(run: FoundRecord) -> Mapping[str, Json]:
    """Read figures.json beside a record; empty if there is none or it is no JSON."""
    path = run.path.parent / FIGURES
    if not path.is_file():
        return {}
    try:
        return mapping(parse_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def rows_of(gathered: Gathered, setting: str) -> list[Row]:
    """Return all rows of a setting."""
    return [row for row in gathered.rows if row.place.setting == setting]


def label_of(row: Row) -> str:
    """Return what a row is called in a list of views."""
    variant = f", {row.place.variant}" if row.place.variant else ""
    return f"{row.place.name}, {row.place.profile}{variant}"


def figures_of_one_seed(row: Row) -> dict[str, Mapping[str, Json]]:
    """Return both models' figures.json of the first seed that each has one of."""
    found = {}
    for model in PAIR:
        for _, run in sorted(row.runs.get(model, {}).items()):
            content = read_figures(run)
            if content:
                found[model] = content
                break
    return found


def figure_of(name: str, title: str, caption: str, views: list[View]) -> Figure | None:
    """Return a figure, or None where there is nothing to draw."""
    return Figure(name=name, title=title, caption=caption, views=views) if views else None
