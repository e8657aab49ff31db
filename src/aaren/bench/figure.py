"""Lines that are labelled at their ends: the picture that benchmarks draw, on logarithmic or linear axes.

Needs matplotlib (the `plot` extra), imported only here; no global state of matplotlib is touched.
"""

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
_LABEL_SHARE = 0.045  # least distance between two labels, of the height of the axes
_ARROW = {"arrowstyle": "-", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3, "relpos": (0.0, 0.5)}


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
        is_logarithmic: Both axes; otherwise both are linear.
    """
    matplotlib = require_matplotlib()
    figures = require_extra("matplotlib.figure", extra="plot", purpose="drawing a figure")
    png, svg = figure_paths(base)
    png.parent.mkdir(parents=True, exist_ok=True)
    settings = {"svg.hashsalt": "aaren", "svg.fonttype": "none", "font.size": 10}
    width, height = (6.2, 5.2) if is_logarithmic else (6.4, 4.8)
    with matplotlib.rc_context(settings):
        figure = figures.Figure(figsize=(width * len(panels), height), layout="constrained")
        for index, panel in enumerate(panels):
            axes = figure.add_subplot(1, len(panels), index + 1)
            _draw_panel(axes, panel, is_logarithmic=is_logarithmic)
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


def _draw_panel(axes, panel: Panel, *, is_logarithmic: bool) -> None:  # type: ignore[no-untyped-def]  # matplotlib is imported late
    lines = [line for line in panel.lines if line.points]
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if is_logarithmic:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    for line in lines:
        axes.plot(
            *zip(*line.points, strict=True),
            color=line.colour,
            linestyle=line.style,
            marker=line.marker,
            markersize=5 if is_logarithmic else 3.5,
            linewidth=2.6 if line.is_stressed else 1.3,
            zorder=3 if line.is_stressed else 2,
        )
    if not lines:
        return
    lengths = sorted({length for line in lines for length, _ in line.points})
    if is_logarithmic:
        ticks = lengths
        axes.minorticks_off()
        limits = lengths[0] / 1.15, lengths[-1] * max(2.0, (lengths[-1] / lengths[0]) ** 0.42)
    else:
        ticks = [tick for tick in axes.get_xticks() if 0 <= tick <= lengths[-1]]
        highest = max(height for line in lines for _, height in line.points) or 1.0
        axes.set_ylim(-0.05 * highest, highest * 1.08)
        limits = 0, lengths[-1] * 1.45
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    axes.set_xlim(*limits)  # what lies beyond the last point is for labels
    _label_ends(axes, lines)


def _label_ends(axes, lines: Sequence[Line]) -> None:  # type: ignore[no-untyped-def]  # as above
    """Write every line's name beside its end, tied to it, none upon another; in shares of the axes."""
    ends = (axes.transScale + axes.transLimits).transform([line.points[-1] for line in lines])
    for right in sorted({x for x, _ in ends}):
        ending = [(line, y) for line, (x, y) in zip(lines, ends, strict=True) if x == right]
        places = spread_out([y for _, y in ending], _LABEL_SHARE)
        lift = max(0.0, _LABEL_SHARE - min(places))  # labels of flat lines must not fall below the axis
        for (line, _), place in zip(ending, places, strict=True):
            axes.annotate(
                line.label,
                xy=line.points[-1],
                xytext=(right + 0.03, place + (lift if place < 0.5 else 0.0)),
                textcoords="axes fraction",
                color=line.colour,
                fontsize=9,
                fontweight="bold" if line.is_stressed else "normal",
                verticalalignment="center",
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
                arrowprops={**_ARROW, "color": line.colour},
            )
