"""Forecasts against truth: three test windows, past, future, and what both models say."""

from collections.abc import Mapping

from aaren.report.figure import COLOURS, INK, MUTED, Figure, View, axis, line, mapping, numbers
from aaren.report.gathered import Gathered
from aaren.report.names import model_label
from aaren.report.run_files import figure_of, figures_of_one_seed, label_of, rows_of
from aaren.tasks.base import Json


def forecasts(gathered: Gathered) -> Figure | None:
    """Draw three test windows: past, truth, and what both models say."""
    views = []
    for row in rows_of(gathered, "forecasting"):
        found = figures_of_one_seed(row)
        windows = {model: content.get("windows") for model, content in found.items()}
        data: list[Json] = []
        layout: dict[str, Json] = {"height": 560, "grid": {"rows": 3, "columns": 1, "pattern": "independent"}}
        column = ""
        for model, listed in windows.items():
            column = str(found[model].get("column", ""))
            for place, window in enumerate(listed if isinstance(listed, list) else []):
                data += _window(mapping(window), model, place, is_first=model == next(iter(windows)))
                suffix = "" if place == 0 else str(place + 1)
                layout[f"xaxis{suffix}"] = axis("steps from the present" if place == 2 else "")
                layout[f"yaxis{suffix}"] = axis(f"{column}, scaled" if place == 1 else "")
        if data:
            views.append(View(label=label_of(row), data=data, layout=layout))
    return figure_of(
        "forecasts",
        "Forecasts against truth",
        "Three test windows, evenly spread, of the last column; scaled as in training.",
        views,
    )


def _window(window: Mapping[str, Json], model: str, place: int, *, is_first: bool) -> list[Json]:
    past, truth, forecast = (numbers(window.get(name)) for name in ("past", "truth", "forecast"))
    axes: dict[str, Json] = {} if place == 0 else {"xaxis": f"x{place + 1}", "yaxis": f"y{place + 1}"}
    ahead = [float(step + 1) for step in range(len(truth))]
    before = [float(step - len(past) + 1) for step in range(len(past))]
    traces: list[Json] = []
    for name, xs, ys, colour in (("past", before, past, MUTED), ("truth", ahead, truth, INK)):
        if is_first:
            more = {"showlegend": place == 0, "legendgroup": name, **axes}
            traces.append(line(name, xs, ys, colour=colour, width=1.4, more=more))
    more = {"showlegend": place == 0, "legendgroup": model, **axes}
    return [*traces, line(model_label(model), ahead, forecast, colour=COLOURS[model], more=more)]
