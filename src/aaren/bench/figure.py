"""Lines over lengths on logarithmic axes, each labelled at its end: the picture that benches draw.

Knows nothing of what was measured. Needs matplotlib (the `plot` extra), imported only here; no global state
of matplotlib is touched.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

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
_LABEL_POINTS = 11.0  # least distance between two labels


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One labelled line."""

    label: str
    lengths: Sequence[float]
    heights: Sequence[float]
    colour: str
    style: str = "-"
    marker: str = "o"
    is_stressed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
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


def draw(panels: Sequence[Panel], base: Path, *, caption: str = "") -> tuple[Path, Path]:
    """Draw panels side by side and save them as PNG and SVG; equal input gives equal files."""
    return save(panels, base, _draw_panel, panel_inches=(6.2, 5.2), caption=caption)


def save(
    panels: Sequence[Panel],
    base: Path,
    draw_panel: Callable[..., None],
    *,
    panel_inches: tuple[float, float],
    caption: str = "",
) -> tuple[Path, Path]:
    """Lay out panels side by side, let each be drawn on its axes, and save the figure as PNG and SVG."""
    matplotlib = require_matplotlib()
    figures = require_extra("matplotlib.figure", extra="plot", purpose="drawing a figure")
    png, svg = figure_paths(base)
    png.parent.mkdir(parents=True, exist_ok=True)
    settings = {"svg.hashsalt": "aaren", "svg.fonttype": "none", "font.size": 10}
    width, height = panel_inches
    with matplotlib.rc_context(settings):
        figure = figures.Figure(figsize=(width * len(panels), height), layout="constrained")
        for index, panel in enumerate(panels):
            draw_panel(figure.add_subplot(1, len(panels), index + 1), panel)
        if caption:
            figure.supxlabel(caption, fontsize=8, color=GREY)
        figure.savefig(png, dpi=150)
        figure.savefig(svg, metadata={"Date": None})
    return png, svg


def _draw_panel(axes, panel: Panel) -> None:  # type: ignore[no-untyped-def]  # matplotlib is imported late
    lines = [line for line in panel.lines if line.lengths]
    lengths = sorted({length for line in lines for length in line.lengths})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for line in lines:
        axes.plot(
            line.lengths,
            line.heights,
            color=line.colour,
            linestyle=line.style,
            marker=line.marker,
            markersize=5,
            linewidth=2.6 if line.is_stressed else 1.3,
            zorder=3 if line.is_stressed else 2,
        )
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.set_xticks(lengths, [f"{length:,.0f}" for length in lengths])
    axes.minorticks_off()
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if not lines:
        return
    # Room for the labels to the right of the last point, in the logarithm.
    axes.set_xlim(lengths[0] / 1.15, lengths[-1] * max(2.0, (lengths[-1] / lengths[0]) ** 0.42))
    low, high = axes.get_ylim()
    panel_points = 300.0  # about the height of the axes
    per_decade = panel_points / math.log10(high / low)
    for end in sorted({line.lengths[-1] for line in lines}):
        ending = [line for line in lines if line.lengths[-1] == end]
        wanted = [math.log10(line.heights[-1]) * per_decade for line in ending]
        for line, place in zip(ending, spread_out(wanted, _LABEL_POINTS), strict=True):
            axes.annotate(
                line.label,
                xy=(end, line.heights[-1]),
                xytext=(end * 1.12, 10 ** (place / per_decade)),
                color=line.colour,
                fontsize=9,
                fontweight="bold" if line.is_stressed else "normal",
                verticalalignment="center",
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
                arrowprops={
                    "arrowstyle": "-",
                    "color": line.colour,
                    "linewidth": 0.5,
                    "shrinkA": 0,
                    "shrinkB": 3,
                },
            )


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
