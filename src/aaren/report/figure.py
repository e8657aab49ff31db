"""A figure as a value: what plotly draws, with names of colours that the page fills in, light or dark.

A figure may have several views, chosen by the reader from a list. No plotly is needed to build one.

What lies beside a record: its learning curve and the numbers of its figures. The broken is left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from types import MappingProxyType

from aaren.engine.experiment import Json
from aaren.engine.record import parse_json
from aaren.engine.run import FIGURES
from aaren.lab.records import FoundRecord
from aaren.report.gathered import Gathered
from aaren.report.names import PAIR
from aaren.report.rows import Row

# Names that the script of the page replaces by the colours of its theme.
AAREN, TRANSFORMER, INK, MUTED, GOOD, BAD, THIRD, FOURTH = (
    "@aaren",
    "@transformer",
    "@ink",
    "@muted",
    "@good",
    "@bad",
    "@third",
    "@fourth",
)
NO_BOX = "<extra></extra>"  # at the end of a hovertemplate: plotly draws no second box beside the first
COLOURS = {"aaren": AAREN, "transformer": TRANSFORMER}


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """One state of a figure."""

    label: str
    data: list[Json]
    layout: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A captioned figure with at least one view."""

    name: str
    title: str
    caption: str
    views: list[View]

    def to_json(self) -> dict[str, Json]:
        """Return what the script of the page needs; text is text, although plotly would take some HTML."""
        return {
            "views": [
                {"label": view.label, "data": _plain(view.data), "layout": _plain(dict(view.layout))}
                for view in self.views
            ]
        }


def line(
    name: str,
    xs: Sequence[float],
    ys: Sequence[float | None],
    *,
    colour: str,
    dash: str = "solid",
    width: float = 2.0,
    mode: str = "lines",
    more: Mapping[str, Json] = MappingProxyType({}),
) -> Json:
    """Return a line; a number that is missing is a gap in it.

    Args:
        name: Its label.
        xs: Where.
        ys: How high.
        colour: One of the names above.
        dash: As plotly calls it.
        width: Pixels.
        mode: lines, markers or both.
        more: Whatever else plotly takes.
    """
    return {
        "type": "scatter",
        "mode": mode,
        "name": name,
        "x": [short(x) for x in xs],
        "y": [None if y is None else short(y) for y in ys],
        "line": {"color": colour, "dash": dash, "width": width},
        "marker": {"color": colour, "size": 5},
        **more,
    }


def axis(title: str, **more: Json) -> dict[str, Json]:
    """Return an axis with a title."""
    return {"title": {"text": title}, **more}


def short(number: float) -> float | None:
    """Keep five digits, which is more than a screen shows; what is not finite is a gap.

    >>> short(0.123456789), short(float("nan"))
    (0.12346, None)
    """
    return float(f"{number:.5g}") if math.isfinite(number) else None


def numbers(values: Json) -> list[float | None]:
    """Read a list of numbers from JSON; anything else in it is a gap."""
    if not isinstance(values, list):
        return []
    return [
        float(value) if isinstance(value, int | float) and math.isfinite(value) else None for value in values
    ]


def number_in(values: Mapping[str, Json], name: str) -> float | None:
    """Read a number from a mapping of JSON; None if it is anything else, or not there.

    >>> number_in({"update": 3}, "update"), number_in({"update": "3"}, "update")
    (3.0, None)
    """
    value = values.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _plain(value: Json) -> Json:
    if isinstance(value, str):
        text = value.removesuffix(NO_BOX)
        return escape(text, quote=False) + value[len(text) :]
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def mapping(value: Json) -> Mapping[str, Json]:
    """Read a mapping from JSON; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


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
