"""Lines that are labelled at their ends: the picture that benchmarks draw, on logarithmic or straight axes.

Needs matplotlib (the `plot` extra), imported only here; no global state of matplotlib is touched.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from aaren.errors import require_extra

# Okabe and Ito's palette, told apart by people with any colour vision.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE, GREY = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#777777",
)
_LABEL_POINTS = 11.0  # least distance between two labels, on logarithmic axes
_LABEL_SHARE = 0.055  # the same on straight ones, of their height
_ARROW = {"arrowstyle": "-", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}


class Line(NamedTuple):
    """One labelled line."""

    label: str
    points: Sequence[tuple[float, float]]
    colour: str
    style: str = "-"
    marker: str = "o"
    is_stressed: bool = False


class Panel(NamedTuple):
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]


def require_matplotlib() -> ModuleType:
    """Import matplotlib, or fail with the line that installs it: call it before a long measurement."""
    return require_extra("matplotlib", extra="plot", purpose="drawing a figure")


def figure_paths(base: Path) -> tuple[Path, Path]:
    """Return the PNG and the SVG that a figure is saved as; a suffix of either kind is ignored.

    >>> [path.name for path in figure_paths(Path("scan.png"))]
    ['scan.png', 'scan.svg']
    """
    stem = base.with_suffix("") if base.suffix in (".png", ".svg") else base
    return stem.with_name(stem.name + ".png"), stem.with_name(stem.name + ".svg")


def draw(
    panels: Sequence[Panel], base: Path, *, caption: str = "", is_logarithmic: bool = True
) -> tuple[Path, Path]:
    """Draw panels side by side and save them as PNG and SVG; equal input gives equal files.

    Args:
        panels: What to draw.
        base: Where, without suffix.
        caption: One line below.
        is_logarithmic: Both axes; straight ones show growth as what it is.
    """
    matplotlib = require_matplotlib()
    figures = require_extra("matplotlib.figure", extra="plot", purpose="drawing a figure")
    png, svg = figure_paths(base)
    png.parent.mkdir(parents=True, exist_ok=True)
    settings = {"svg.hashsalt": "aaren", "svg.fonttype": "none", "font.size": 10}
    width, height = (6.2, 5.2) if is_logarithmic else (6.4, 4.8)
    draw_panel = _draw_logarithmic if is_logarithmic else _draw_straight
    with matplotlib.rc_context(settings):
        figure = figures.Figure(figsize=(width * len(panels), height), layout="constrained")
        for index, panel in enumerate(panels):
            draw_panel(figure.add_subplot(1, len(panels), index + 1), panel)
        if caption:
            figure.supxlabel(caption, fontsize=8, color=GREY)
        figure.savefig(png, dpi=150)
        figure.savefig(svg, metadata={"Date": None})
    return png, svg


def spread_out(places: Sequence[float], distance: float) -> list[float]:
    """Move labels up or down as little as keeps them a distance apart, in their order.

    Neighbours that touch become one cluster around their mean, until no clusters touch.

    >>> spread_out([0.0, 1.0, 50.0], 10.0)
    [-4.5, 5.5, 50.0]
    """
    order = sorted(range(len(places)), key=lambda index: places[index])
    clusters: list[list[int]] = []
    centres: list[float] = []
    for index in order:
        clusters.append([index])
        centres.append(places[index])
        while len(clusters) > 1:
            needed = distance * (len(clusters[-1]) + len(clusters[-2])) / 2
            if centres[-1] - centres[-2] >= needed:
                break
            last = clusters.pop()
            centres.pop()
            clusters[-1] += last
            centres[-1] = sum(places[member] for member in clusters[-1]) / len(clusters[-1])
    result = [0.0] * len(places)
    for members, centre in zip(clusters, centres, strict=True):
        for rank, index in enumerate(members):
            result[index] = centre + distance * (rank - (len(members) - 1) / 2)
    return result


def _draw_lines(axes, panel: Panel, marker_size: float) -> list[Line]:  # type: ignore[no-untyped-def]  # matplotlib is imported late
    """Draw what both kinds of axes share; return the lines that have points."""
    lines = [line for line in panel.lines if line.points]
    for line in lines:
        axes.plot(
            *zip(*line.points, strict=True),
            color=line.colour,
            linestyle=line.style,
            marker=line.marker,
            markersize=marker_size,
            linewidth=2.6 if line.is_stressed else 1.3,
            zorder=3 if line.is_stressed else 2,
        )
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return lines


def _label(axes, line: Line, at: tuple[float, float], **box: object) -> None:  # type: ignore[no-untyped-def]  # as above
    """Write a line's name at a place, tied to the line's end."""
    axes.annotate(
        line.label,
        xy=line.points[-1],
        xytext=at,
        color=line.colour,
        fontsize=9,
        fontweight="bold" if line.is_stressed else "normal",
        verticalalignment="center",
        **box,
    )


def _draw_logarithmic(axes, panel: Panel) -> None:  # type: ignore[no-untyped-def]  # as above
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    lines = _draw_lines(axes, panel, marker_size=5)
    lengths = sorted({length for line in lines for length, _ in line.points})
    axes.set_xticks(lengths, [f"{length:,.0f}" for length in lengths])
    axes.minorticks_off()
    if not lines:
        return
    # Room for the labels to the right of the last point, in the logarithm.
    axes.set_xlim(lengths[0] / 1.15, lengths[-1] * max(2.0, (lengths[-1] / lengths[0]) ** 0.42))
    low, high = axes.get_ylim()
    per_decade = 300.0 / math.log10(high / low)  # the axes are about 300 points high
    for end in sorted({line.points[-1][0] for line in lines}):
        ending = [line for line in lines if line.points[-1][0] == end]
        wanted = [math.log10(line.points[-1][1]) * per_decade for line in ending]
        for line, place in zip(ending, spread_out(wanted, _LABEL_POINTS), strict=True):
            box = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
            arrow = {**_ARROW, "color": line.colour}
            _label(axes, line, (end * 1.12, 10 ** (place / per_decade)), bbox=box, arrowprops=arrow)


def _draw_straight(axes, panel: Panel) -> None:  # type: ignore[no-untyped-def]  # as above
    lines = _draw_lines(axes, panel, marker_size=3.5)
    if not lines:
        return
    furthest = max(line.points[-1][0] for line in lines)
    highest = max(height for line in lines for _, height in line.points) or 1.0
    axes.set_xlim(0, furthest * 1.45)  # the rest is room for labels
    axes.set_ylim(-0.05 * highest, highest * 1.08)
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= furthest])
    axes.xaxis.set_major_formatter(lambda tick, _: f"{tick:,.0f}")
    places = spread_out([line.points[-1][1] / highest for line in lines], _LABEL_SHARE)
    lift = max(0.0, -min(places))  # labels of flat lines must not fall below the axis
    for line, place in zip(lines, places, strict=True):
        height = (place + (lift if place < 0.5 else 0.0)) * highest
        arrow = {**_ARROW, "relpos": (0.0, 0.5), "color": line.colour}
        _label(axes, line, (furthest * 1.04, height), arrowprops=arrow)
