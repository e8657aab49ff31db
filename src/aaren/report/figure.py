"""A figure as a value: what plotly draws, with names of colours that the page fills in, light or dark.

A figure may have several views, chosen by the reader from a list. No plotly is needed to build one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from types import MappingProxyType

from aaren.engine.experiment import Json

# Names that the script of the page replaces by the colours of its theme.
AAREN, TRANSFORMER, THIRD, FOURTH = "@aaren", "@transformer", "@third", "@fourth"
INK, MUTED = "@ink", "@muted"
COLOURS = MappingProxyType({"aaren": AAREN, "transformer": TRANSFORMER, "gru": THIRD, "aaren-decay": FOURTH})
NO_BOX = "<extra></extra>"  # at the end of a hovertemplate: plotly draws no second box beside the first


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """One state of a figure."""

    label: str
    data: list[Json]
    layout: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A captioned figure with at least one view."""

    name: str  # unique on a page
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


def _plain(value: Json) -> Json:
    if isinstance(value, str):
        text = value.removesuffix(NO_BOX)
        return escape(text, quote=False) + value[len(text) :]
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value
