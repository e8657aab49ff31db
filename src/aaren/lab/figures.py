"""Figures of a report, by matplotlib: the verdict as a forest plot, and small multiples of what runs kept.

Figures of a setting are drawn from what its records hold, whichever setting it is: a learning curve, test
metrics, figures, sweeps. What was not kept is not drawn. Equal records give equal bytes.
"""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from aaren.classification.experiment import curve_of
from aaren.engine.experiment import Json
from aaren.errors import require_extra
from aaren.lab.comparison import by_dataset
from aaren.lab.names import PAIR, metric, model_label, names_of
from aaren.lab.rows import Results, Row
from aaren.lab.statistics import Interval, interval_over_rows
from aaren.lab.verdict import SettingPool

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REACH = 3.0  # margins on either side; what lies beyond is cut off with an arrow
_COLOURS = MappingProxyType(
    {"aaren": "#1f6fb4", "transformer": "#d1660f", "gru": "#5a8f29", "aaren-decay": "#7b4fa3"}
)
_SETTING_COLOURS = ("#1f6fb4", "#b3541e", "#3f7d3a", "#7b4fa3", "#8a6d00", "#9b2d5a")
_INK, _BAND = "#333333", "#dddddd"
_STYLE = {
    "font.size": 9.5,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "aaren",
    "legend.frameon": False,
}
_PIT_BINS = 10

Panel: TypeAlias = "Callable[[Axes], None]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """A kind of figure that any setting may have: small multiples, a panel per row."""

    title: str
    caption: str
    x: str
    y: str
    draw: "Callable[[Row], Panel | None]"  # None where the row kept nothing of it


def forest(pools: Sequence[SettingPool]) -> str:
    """Draw the advantage on every dataset and the pooled estimates in margins, as SVG."""
    figures = require_extra("matplotlib.figure", extra="report", purpose="the figure of the verdict")
    rows = 1 + sum(len(by_dataset(one.comparisons)) + 2 for one in pools)
    with _styled():
        figure = figures.Figure(figsize=(8.6, 0.235 * rows + 1.1), layout="constrained")
        axes = figure.add_subplot()
        _draw_forest(axes, pools)
        figure.suptitle(
            "Aaren's advantage over the Transformer, in margins of equivalence\n"
            "left of 0 the Transformer is better, right of 0 Aaren; inside the grey band it does not matter",
            fontsize=10.5,
        )
        return _to_svg(figure)


def _draw_forest(axes: "Axes", pools: Sequence[SettingPool]) -> None:
    height, ticks, labels = 0.0, [], []
    axes.axvspan(-1.0, 1.0, color=_BAND, linewidth=0, zorder=0)
    axes.axvline(0.0, color=_INK, linewidth=0.8, zorder=1)
    for one, colour in zip(pools, _SETTING_COLOURS * len(pools), strict=False):
        label = f"{names_of(one.setting).title}, {one.comparisons[0].metric.label}"
        axes.text(-REACH, height, label, color=colour, fontweight="bold", va="center")
        for dataset, rows in by_dataset(one.comparisons).items():
            height -= 1.0
            advantage = interval_over_rows([row.in_margins for row in rows])
            _draw_interval(
                axes, advantage, height, colour, marker="o" if advantage.low is not None else "$o$"
            )
            ticks.append(height)
            labels.append(f"{dataset} ({sum(len(row.differences) for row in rows)})")
        if one.pooled is not None:
            height -= 1.0
            _draw_interval(axes, one.pooled.interval, height, colour, marker="D")
            ticks.append(height)
            labels.append("pooled")
            if one.pooled.prediction is not None:
                _draw_interval(axes, one.pooled.prediction, height, colour, marker="", style=":")
        height -= 1.15
    axes.set_yticks(ticks, labels)
    for text in axes.get_yticklabels():
        text.set_fontweight("bold" if text.get_text() == "pooled" else "normal")
    axes.set_xlim(-REACH * 1.04, REACH * 1.04)
    axes.set_ylim(height + 0.6, 0.8)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(
        "margins\nlines: 90 % intervals over seeds; brackets: pairs of runs; hollow: one seed\n"
        "diamonds: mean over datasets; dotted: a new dataset; arrows: further than drawn",
        fontsize=9,
    )


def _draw_interval(
    axes: "Axes", one: Interval, height: float, colour: str, *, marker: str, style: str = "-"
) -> None:
    low, high = (one.mean if end is None else end for end in (one.low, one.high))
    axes.plot(
        [max(low, -REACH), min(high, REACH)], [height, height], style, color=colour, linewidth=1.5, zorder=2
    )
    for end, arrow in ((low, "<"), (high, ">")):
        if abs(end) > REACH:
            axes.plot(math.copysign(REACH, end), height, arrow, color=colour, markersize=5, zorder=3)
    if marker and abs(one.mean) <= REACH:
        is_hollow = one.low is None
        axes.plot(
            one.mean,
            height,
            "o" if is_hollow else marker,
            markersize=5.5 if marker != "D" else 6.5,
            color=colour,
            markerfacecolor="white" if is_hollow else colour,
            zorder=4,
        )


def setting_figures(results: Results, setting: str) -> list[tuple[str, str, bytes]]:
    """Draw all that there is of a setting, a panel per dataset: title, caption and PNG of each figure."""
    rows = [row for row in results.select(setting) if not row.key.variant]
    figures = []
    for drawing in DRAWINGS:
        panels: dict[str, tuple[Row, Panel]] = {}
        for row in sorted(rows, key=lambda row: -sum(len(row.runs.get(model, ())) for model in PAIR)):
            panel = drawing.draw(row)
            if panel is not None:
                panels.setdefault(row.key.dataset, (row, panel))
        if panels:
            in_order = sorted(panels.values(), key=lambda pair: rows.index(pair[0]))
            figures.append((drawing.title, drawing.caption, _multiples(drawing, in_order)))
    return figures


def _multiples(drawing: Drawing, panels: "Sequence[tuple[Row, Panel]]") -> bytes:
    figures = require_extra("matplotlib.figure", extra="report", purpose="the figures of a report")
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    with _styled():
        figure = figures.Figure(figsize=(3.4 * columns, 2.3 * lines + 0.4), layout="constrained")
        labels: dict[str, object] = {}
        for place, (row, panel) in enumerate(panels):
            axes = figure.add_subplot(lines, columns, place + 1)
            panel(axes)
            axes.set_title(f"{row.key.name}, {row.key.profile}", fontsize=8.5)
            handles, names = axes.get_legend_handles_labels()
            labels = dict(zip(names, handles, strict=True)) | labels
        figure.legend(list(labels.values()), list(labels), loc="outside upper center", ncols=5)
        figure.supxlabel(drawing.x, fontsize=9.5)
        figure.supylabel(drawing.y, fontsize=9.5)
        return _to_png(figure)


def _curves(row: Row) -> "Panel | None":
    """Draw the first of the row's numbers that was validated; without any, the training loss."""
    models = [model for model in PAIR if model in row.runs] or sorted(row.runs)
    runs = [(model, run) for model in models for _, run in row.by_seed(model) if len(run.curve) > 1]
    if not runs:
        return None
    names = [report.rpartition(".")[2] for report in runs[0][1].reports]
    scores = [_mapping(point.get("validation")) for _, run in runs for point in run.curve]
    name = next((name for name in names if any(_number(one.get(name)) is not None for one in scores)), "")
    scale = metric(name).scale if name else 1.0

    def panel(axes: "Axes") -> None:
        for model, run in runs:
            values = [_mapping(point.get("validation")) if name else point for point in run.curve]
            ys = [_number(one.get(name or "loss")) for one in values]
            xs = [_number(point.get("update")) for point in run.curve]
            axes.plot(*_pairs(xs, ys, scale), color=_colour(model), linewidth=0.9, label=model_label(model))

    return panel


def _earliness(row: Row) -> "Panel | None":
    curves = {
        model: [dict(curve_of(metrics)) for metrics in _test_metrics(row, model) if curve_of(metrics)]
        for model in PAIR
    }
    if not any(curves.values()):
        return None

    def panel(axes: "Axes") -> None:
        for model, by_seed in curves.items():
            fractions = sorted(by_seed[0]) if by_seed else []
            means = [sum(one.get(at, math.nan) for one in by_seed) / len(by_seed) for at in fractions]
            shares = [100.0 * at for at in fractions]
            axes.plot(*_pairs(shares, means, 100.0), color=_colour(model), label=model_label(model))

    return panel


def _calibration(row: Row) -> "Panel | None":
    names = [f"pit_{index}" for index in range(_PIT_BINS)]
    shares: dict[str, list[float]] = {}
    for model in _COLOURS:
        runs = [metrics for metrics in _test_metrics(row, model) if metrics.keys() >= set(names)]
        if runs:
            shares[model] = [100.0 * sum(one[name] for one in runs) / len(runs) for name in names]

    def panel(axes: "Axes") -> None:
        axes.axhline(100.0 / _PIT_BINS, color=_INK, linewidth=0.8, linestyle=":", label="perfect")
        edges = [100.0 * index / _PIT_BINS for index in range(_PIT_BINS + 1)]
        for model, values in shares.items():
            axes.stairs(values, edges, baseline=None, color=_colour(model), label=model_label(model))

    return panel if shares else None


def _forecasts(row: Row) -> "Panel | None":
    windows = {
        model: _mapping(next(iter(listed), None))
        for model, content in _first_figures(row).items()
        if isinstance(listed := content.get("windows"), list)
    }
    if not any(windows.values()):
        return None

    def panel(axes: "Axes") -> None:
        for place, (model, window) in enumerate(windows.items()):
            past, truth, forecast = (_list(window.get(name)) for name in ("past", "truth", "forecast"))
            if place == 0:
                before = [float(step - len(past)) for step in range(len(past))]
                axes.plot(
                    *_pairs([*before, *_steps(truth)], [*past, *truth]),
                    color=_INK,
                    linewidth=0.9,
                    label="truth",
                )
            axes.plot(*_pairs(_steps(forecast), forecast), color=_colour(model), label=model_label(model))

    return panel


DRAWINGS = (
    Drawing(
        title="Forecasts against truth",
        caption="One test window of the last column, scaled as in training.",
        x="steps from the present",
        y="value, scaled",
        draw=_forecasts,
    ),
    Drawing(
        title="How early the class is known",
        caption="Accuracy on TEST after each share of every series. A model with the published, centred "
        "embedding gets every prefix as a series of its own; the causal one runs over the stream.",
        x="% of the series seen",
        y="accuracy, %",
        draw=_earliness,
    ),
    Drawing(
        title="Calibration of the next gap",
        caption="Where true gaps fall in their predicted distributions; flat is perfect.",
        x="probability integral transform, %",
        y="% of test events",
        draw=_calibration,
    ),
    Drawing(
        title="Learning curves",
        caption="One line per seed; both models see the same data in the same order. The first number of the "
        "tables, on the validation part.",
        x="updates",
        y="validation",
        draw=_curves,
    ),
)


def _styled() -> AbstractContextManager[None]:
    matplotlib = require_extra("matplotlib", extra="report", purpose="the figures of a report")
    context: AbstractContextManager[None] = matplotlib.rc_context(_STYLE)
    return context


def _to_svg(figure: "Figure") -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None}, facecolor="white")
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _to_png(figure: "Figure") -> bytes:
    """Return a PNG of 32 colours, a third of what matplotlib writes."""
    image = require_extra("PIL.Image", extra="report", purpose="the figures of a report")
    buffer, small = io.BytesIO(), io.BytesIO()
    figure.savefig(buffer, format="png", dpi=85)
    image.open(buffer).convert("RGB").quantize(32, dither=0).save(small, "png", optimize=True)
    return small.getvalue()


def _first_figures(row: Row) -> dict[str, Mapping[str, Json]]:
    """Return both models' figures, of the first seed that has them."""
    contents = {model: [run.figures for _, run in row.by_seed(model) if run.figures] for model in PAIR}
    return {model: figures[0] for model, figures in contents.items() if figures}


def _test_metrics(row: Row, model: str) -> list[dict[str, float]]:
    """Return the finite test metrics of each run of a model; a record holds others as null."""
    return [
        {
            name: float(value)
            for name, value in run.metrics.get("test", {}).items()
            if _number(value) is not None
        }
        for _, run in row.by_seed(model)
    ]


def _pairs(
    xs: Sequence[float | None], ys: Sequence[float | None], scale: float = 1.0
) -> tuple[list[float], list[float]]:
    """Return what matplotlib can draw: a missing number is a gap."""
    points = [
        (x, math.nan if y is None else scale * y) for x, y in zip(xs, ys, strict=False) if x is not None
    ]
    return [x for x, _ in points], [y for _, y in points]


def _steps(values: Sequence[object]) -> list[float]:
    return [float(step + 1) for step in range(len(values))]


def _list(values: Json) -> list[float | None]:
    return [_number(value) for value in values] if isinstance(values, list) else []


def _mapping(value: Json) -> Mapping[str, Json]:
    """Read a mapping from JSON; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


def _number(value: Json) -> float | None:
    """Read a number from JSON that can be drawn; None if it is anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e30 else None


def _colour(model: str) -> str:
    return _COLOURS.get(model, "#777777")
