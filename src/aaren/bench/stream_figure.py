"""Two panels in the manner of the paper's Figure 5: straight axes, so that growth looks like what it is.

Knows nothing of models. Needs matplotlib (the `plot` extra).
"""

from collections.abc import Sequence
from pathlib import Path

from aaren.bench.figure import Panel, save, spread_out

_LABEL_SHARE = 0.055  # least distance between two labels, of the height of the axes


def draw_straight(panels: Sequence[Panel], base: Path, *, caption: str = "") -> tuple[Path, Path]:
    """Draw panels side by side on linear axes and save them as PNG and SVG; equal input gives equal files."""
    return save(panels, base, _draw_panel, panel_inches=(6.4, 4.8), caption=caption)


def _draw_panel(axes, panel: Panel) -> None:  # type: ignore[no-untyped-def]  # matplotlib is imported late
    lines = [line for line in panel.lines if line.lengths]
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if not lines:
        return
    for line in lines:
        axes.plot(
            line.lengths,
            line.heights,
            color=line.colour,
            linestyle=line.style,
            marker=line.marker,
            markersize=3.5,
            linewidth=2.6 if line.is_stressed else 1.3,
            zorder=3 if line.is_stressed else 2,
        )
    furthest = max(line.lengths[-1] for line in lines)
    highest = max(max(line.heights) for line in lines) or 1.0
    axes.set_xlim(0, furthest * 1.45)  # the rest is room for labels
    axes.set_ylim(-0.05 * highest, highest * 1.08)
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= furthest])
    axes.xaxis.set_major_formatter(lambda tick, _: f"{tick:,.0f}")
    places = spread_out([line.heights[-1] / highest for line in lines], _LABEL_SHARE)
    lift = max(0.0, -min(places))  # labels of flat lines must not fall below the axis
    for line, place in zip(lines, places, strict=True):
        near_bottom = place < 0.5
        axes.annotate(
            line.label,
            xy=(line.lengths[-1], line.heights[-1]),
            xytext=(furthest * 1.04, (place + (lift if near_bottom else 0.0)) * highest),
            color=line.colour,
            fontsize=9,
            fontweight="bold" if line.is_stressed else "normal",
            verticalalignment="center",
            arrowprops={
                "arrowstyle": "-",
                "relpos": (0.0, 0.5),
                "color": line.colour,
                "linewidth": 0.5,
                "shrinkA": 0,
                "shrinkB": 3,
            },
        )
