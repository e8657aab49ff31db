"""How early a class is known: accuracy against the share of each series that was seen.

Event forecasts: are they calibrated, and how do they look along one sequence?

Forecasts against truth: three test windows, past, future, and what both models say.

Learning curves: the validation number of every seed of both models against the updates.

Policies: do they collect the return they are asked for, and what does the context of acting change?

Drawn from the sweeps beside the records (`aaren evaluate RUN --targets 0.25,0.5,1` and
`--sweep context=window,carried,reset`).

All figures of one setting, in the order of the page.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from aaren.classification.experiment import curve_of
from aaren.engine.experiment import Json
from aaren.engine.record import parse_json
from aaren.report.figure import (
    COLOURS,
    FOURTH,
    INK,
    MUTED,
    THIRD,
    Figure,
    View,
    axis,
    figure_of,
    figures_of_one_seed,
    label_of,
    line,
    mapping,
    number_in,
    numbers,
    read_curve,
    rows_of,
    thin,
)
from aaren.report.gathered import Gathered
from aaren.report.names import PAIR, metric, model_label
from aaren.report.rows import Row

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def earliness(gathered: Gathered) -> Figure | None:
    """Draw accuracy against the share of each series that was seen, averaged over seeds."""
    groups: dict[tuple[str, str], list[Json]] = {}
    rows = rows_of(gathered, "classification")
    dashes = dict(zip(sorted({row.place.variant for row in rows}), _DASHES * 9, strict=False))
    for row in rows:
        for model in PAIR:
            curves = [
                dict(curve_of(_numbers(run.record.metrics.get("test", {}))))
                for run in row.runs.get(model, {}).values()
            ]
            curves = [curve for curve in curves if curve]
            if not curves:
                continue
            fractions = sorted(curves[0])
            means = [100.0 * sum(curve.get(at, 0.0) for curve in curves) / len(curves) for at in fractions]
            name = model_label(model) + (f", {row.place.variant}" if row.place.variant else "")
            groups.setdefault((row.place.dataset, row.place.profile), []).append(
                line(
                    name,
                    [100.0 * at for at in fractions],
                    [float(mean) for mean in means],
                    colour=COLOURS[model],
                    dash=dashes[row.place.variant],
                )
            )
    layout: dict[str, Json] = {"xaxis": axis("% of the series seen"), "yaxis": axis("accuracy, %")}
    views = [
        View(label=f"{dataset}, {profile}", data=data, layout=layout)
        for (dataset, profile), data in groups.items()
    ]
    return figure_of(
        "earliness",
        "How early the class is known",
        "Accuracy on TEST after each share of every series. A model with the published, centred embedding is "
        "given every prefix anew; the causal one goes along.",
        views,
    )


def _numbers(metrics: Mapping[str, float]) -> dict[str, float]:
    """Leave out what was not finite, which a record holds as null."""
    return {name: value for name, value in metrics.items() if number_in(metrics, name) is not None}


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


MOST_POINTS = 150  # of a line
# What is drawn of the validation part: the first that the curves have.
_WATCHED = {
    "forecasting": ("mse",),
    "classification": ("accuracy",),
    "events": ("nll",),
    "rl": ("score", "return"),
}


def learning_curves(gathered: Gathered, setting: str) -> Figure | None:
    """Draw one view per row."""
    views = []
    for row in rows_of(gathered, setting):
        runs = [
            (model, index, seed, thin(read_curve(run.path.parent / (run.record.curve or "")), MOST_POINTS))
            for model in PAIR
            for index, (seed, run) in enumerate(sorted(row.runs.get(model, {}).items()))
        ]
        watched = _watched(setting, [look for *_, looks in runs for look in looks])
        data: list[Json] = []
        for model, index, seed, looks in runs:
            drawn = [
                (update, number_in(mapping(look.get("validation")), watched))  # not finite: a gap
                for look in looks
                if (update := number_in(look, "update")) is not None
                and watched in mapping(look.get("validation"))
            ]
            if len(drawn) > 1:
                data.append(
                    line(
                        model_label(model),
                        [update for update, _ in drawn],
                        [value for _, value in drawn],
                        colour=COLOURS[model],
                        width=1.6,
                        more={
                            "opacity": 1.0 if index == 0 else 0.5,
                            "legendgroup": model,
                            "showlegend": index == 0,
                            "hovertemplate": f"{model_label(model)}, seed {seed}: %{{y}}<extra></extra>",
                        },
                    )
                )
        if data:
            name = metric(f"test.{watched}").label.partition(",")[0]
            layout = {"xaxis": axis("updates"), "yaxis": axis(f"validation {name}")}
            views.append(View(label=label_of(row), data=data, layout=layout))
    return figure_of(
        f"curves-{setting}",
        "Learning curves",
        "One line per seed; both models see the same data in the same order.",
        views,
    )


def _watched(setting: str, looks: list[Mapping[str, Json]]) -> str:
    known = _WATCHED.get(setting, ("loss",))
    scores = [mapping(look.get("validation")) for look in looks]
    return next(
        (name for name in known if any(number_in(score, name) is not None for score in scores)), known[0]
    )


_TARGETS, _CONTEXT = "target_scale", "context"


def return_conditioning(gathered: Gathered) -> Figure | None:
    """Draw the mean return of an episode against the return that was asked for, one line per seed."""
    views = []
    for row in rows_of(gathered, "rl"):
        data: list[Json] = []
        asked_most = 0.0
        for model, index, seed, points in _points(row, _TARGETS):
            target = _number(row.facts.get("target_return"))
            pairs = sorted(
                (asked * target, found)
                for value, metrics in points.items()
                if target is not None
                and (asked := _read_number(value)) is not None
                and (found := _number(metrics.get("return"))) is not None
            )
            if len(pairs) > 1:
                asked_most = max(asked_most, pairs[-1][0])
                data.append(_line(model, index, seed, pairs))
        if data:
            ends = [0.0, asked_most]
            data.append(line("as asked", ends, list(ends), colour=MUTED, dash="dot", width=1.2))
            layout = {"xaxis": axis("return asked for"), "yaxis": axis("return collected")}
            views.append(View(label=label_of(row), data=data, layout=layout))
    return figure_of(
        "conditioning",
        "Does it collect what it is asked for?",
        "Mean return of fresh episodes against the return asked for; dotted: exactly as asked."
        + _commands(gathered, _TARGETS),
        views,
    )


def contexts(gathered: Gathered) -> Figure | None:
    """Draw the score of trained policies under each way of keeping their context, averaged over seeds."""
    views = []
    for row in rows_of(gathered, "rl"):
        scores: dict[str, dict[str, list[float]]] = {}
        for model, _, _, points in _points(row, _CONTEXT):
            for value, metrics in points.items():
                found = _number(metrics.get("score"))
                if found is not None:
                    scores.setdefault(model, {}).setdefault(value, []).append(found)
        data: list[Json] = [
            {
                "type": "bar",
                "name": model_label(model),
                "x": list(by_value),
                "y": [sum(values) / len(values) for values in by_value.values()],
                "marker": {"color": COLOURS[model]},
            }
            for model, by_value in scores.items()
        ]
        if data:
            layout = {"xaxis": axis("context while acting"), "yaxis": axis("score, fresh episodes")}
            views.append(View(label=label_of(row), data=data, layout=layout))
    return figure_of(
        "contexts",
        "What the context of acting changes",
        "The same weights, acting with a sliding window, a state carried over the episode, or one reset "
        "every K steps." + _commands(gathered, _CONTEXT),
        views,
    )


def _commands(gathered: Gathered, key: str) -> str:
    """Say with which commands the sweeps of one key were made; RUN is the folder of a run listed below."""
    files = [
        run.path.parent / f"sweep-{key}.json"
        for row in rows_of(gathered, "rl")
        for model in PAIR
        for run in row.runs.get(model, {}).values()
    ]
    commands = dict.fromkeys(sweep_command(content) for path in files if (content := read_sweep(path)))
    return f" Made by: {'; '.join(commands)}." if commands else ""


def _points(row: Row, key: str) -> list[tuple[str, int, int, dict[str, Mapping[str, Json]]]]:
    """Return model, its place among the seeds, seed, and the metrics by value, of every sweep of a row."""
    found = []
    for model in PAIR:
        for index, (seed, run) in enumerate(sorted(row.runs.get(model, {}).items())):
            points = points_of(read_sweep(run.path.parent / f"sweep-{key}.json"))
            if points:
                found.append((model, index, seed, points))
    return found


def read_sweep(path: Path) -> Mapping[str, Json]:
    """Read what `aaren evaluate --sweep` wrote; empty if there is none or it is broken."""
    if not path.is_file():
        return {}
    try:
        return mapping(parse_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def points_of(sweep: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    """Return the metrics by value."""
    rows = sweep.get("rows")
    entries = [mapping(row) for row in rows] if isinstance(rows, list) else []
    return {str(entry.get("value")): mapping(entry.get("metrics")) for entry in entries}


def sweep_command(sweep: Mapping[str, Json]) -> str:
    """Return what to type to make a sweep again.

    >>> sweep_command({"key": "context", "changed": ["episodes=20"], "rows": [{"value": "window"}]})
    'aaren evaluate RUN --set episodes=20 --sweep context=window'
    """
    changed = sweep.get("changed")
    words = [f"--set {choice}" for choice in changed] if isinstance(changed, list) else []
    if sweep.get("part", "test") != "test":
        words.append(f"--part {sweep['part']}")
    return " ".join(
        ["aaren evaluate RUN", *words, f"--sweep {sweep.get('key')}={','.join(points_of(sweep))}"]
    )


def _line(model: str, index: int, seed: int, pairs: list[tuple[float, float]]) -> Json:
    return line(
        model_label(model),
        [asked for asked, _ in pairs],
        [collected for _, collected in pairs],
        colour=COLOURS[model],
        mode="lines+markers",
        more={
            "legendgroup": model,
            "showlegend": index == 0,
            "opacity": 1.0 if index == 0 else 0.5,
            "hovertemplate": f"{model_label(model)}, seed {seed}: asked %{{x}}, got %{{y}}<extra></extra>",
        },
    )


def _read_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _number(value: Json) -> float | None:
    return float(value) if isinstance(value, int | float) else None


_DRAWERS: dict[str, list[Callable[[Gathered], Figure | None]]] = {
    "forecasting": [forecasts],
    "classification": [earliness],
    "events": [calibration, bands],
    "rl": [return_conditioning, contexts],
}


def setting_figures(gathered: Gathered, setting: str) -> list[Figure]:
    """Draw all that there is of a setting; what was not kept beside the records is not drawn."""
    found = [drawer(gathered) for drawer in _DRAWERS.get(setting, [])]
    return [figure for figure in (*found, learning_curves(gathered, setting)) if figure is not None]
