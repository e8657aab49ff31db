"""Event forecasts: are they calibrated, and how do they look along one sequence?"""

from aaren.report.figure import (
    COLOURS,
    FOURTH,
    INK,
    MUTED,
    THIRD,
    Figure,
    View,
    axis,
    line,
    number_in,
    numbers,
)
from aaren.report.gathered import Gathered
from aaren.report.names import model_label
from aaren.report.run_files import figure_of, figures_of_one_seed, label_of, rows_of
from aaren.tasks.base import Json

_PIT_BINS = 10
_PIT = ("pit_distance", *(f"pit_{place}" for place in range(_PIT_BINS)))


def calibration(gathered: Gathered) -> Figure | None:
    """Draw the histogram of probability integral transforms, averaged over seeds; flat is perfect."""
    views = []
    colours = {**COLOURS, "gru": THIRD, "aaren-decay": FOURTH}
    for row in rows_of(gathered, "events"):
        data: list[Json] = []
        for model in (model for model in colours if model in row.runs):
            found = [run.record.metrics.get("test", {}) for run in row.runs[model].values()]
            found = [
                metrics for metrics in found if all(number_in(metrics, name) is not None for name in _PIT)
            ]
            if not found:
                continue
            shares = [
                100.0 * sum(metrics[f"pit_{place}"] for metrics in found) / len(found)
                for place in range(_PIT_BINS)
            ]
            distance = sum(metrics["pit_distance"] for metrics in found) / len(found)
            data.append(
                line(
                    f"{model_label(model)}: distance {distance:.3f}",
                    [10.0 * place for place in range(_PIT_BINS + 1)],
                    [*shares, shares[-1]],
                    colour=colours[model],
                    more={"line": {"color": colours[model], "width": 2, "shape": "hv"}},
                )
            )
        if data:
            data.append(line("perfect", [0.0, 100.0], [10.0, 10.0], colour=MUTED, dash="dot", width=1.2))
            layout = {
                "xaxis": axis("probability integral transform, %"),
                "yaxis": axis("% of test events", rangemode="tozero"),
            }
            views.append(View(label=label_of(row), data=data, layout=layout))
    return figure_of(
        "calibration",
        "Calibration of the next gap",
        "Where true gaps fall in their predicted distributions; flat is perfect. The distance is the largest "
        "between the two distribution functions (Kolmogorov-Smirnov).",
        views,
    )


def bands(gathered: Gathered) -> Figure | None:
    """Draw the gaps of one test sequence in the bands that they were expected in."""
    views = []
    for row in rows_of(gathered, "events"):
        found = figures_of_one_seed(row)
        data: list[Json] = []
        for model, content in found.items():
            gaps = numbers(content.get("gap"))
            places = [float(place + 2) for place in range(len(gaps))]
            for name, dash in (("low", "dot"), ("median", "solid"), ("high", "dot")):
                data.append(
                    line(
                        model_label(model),
                        places,
                        numbers(content.get(name)),
                        colour=COLOURS[model],
                        dash=dash,
                        width=1.4,
                        more={"legendgroup": model, "showlegend": name == "median"},
                    )
                )
            if model == list(found)[-1]:
                data.append(line("true gap", places, gaps, colour=INK, mode="markers"))
        if data:
            unit = next((str(content.get("unit") or "") for content in found.values()), "")
            layout = {
                "xaxis": axis("event"),
                "yaxis": axis(f"gap before it, {unit}" if unit else "gap before it", type="log", dtick=1),
            }
            views.append(View(label=label_of(row), data=data, layout=layout))
    return figure_of(
        "bands",
        "One sequence, event by event",
        "True gaps of the longest test sequence, the first 80; solid: median foretold, dotted: 10 and 90 %.",
        views,
    )
