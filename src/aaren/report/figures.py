"""All figures of a report: differences in margins, what each setting kept of its runs, memory and time.

Figures of a setting are drawn from what lies in its records and beside them, whichever setting it is: a
learning curve, test metrics, figures.json, sweeps. What was not kept is not drawn.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from aaren.engine.experiment import Json
from aaren.engine.metrics import curve_of
from aaren.lab.margins import WORDS
from aaren.lab.measurements import BenchRecord, describe, number
from aaren.lab.measurements import Row as Measurement
from aaren.lab.statistics import Interval, Outcome
from aaren.report.comparison import COLOURS as OUTCOME_COLOURS
from aaren.report.comparison import OUTCOMES, Comparison, compare_rows
from aaren.report.figure import (
    AAREN,
    COLOURS,
    FOURTH,
    INK,
    MUTED,
    NO_BOX,
    THIRD,
    TRANSFORMER,
    Figure,
    View,
    axis,
    line,
    short,
)
from aaren.report.names import PAIR, metric, model_label, short_title_of
from aaren.report.rows import (
    Results,
    Row,
    first_figures,
    mapping,
    number_in,
    numbers,
)
from aaren.report.verdict import first_comparisons

Layout: TypeAlias = Mapping[str, Json]
_FURTHEST = 4.0  # margins: beyond, an interval runs out of the picture and its end is in the table
AAREN_NAME, FOLDED, TRANSFORMER_NAME, GRU, LSTM = "aaren", "aaren_folded", "transformer", "gru", "lstm"
PAPER = "paper"
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_PIT_BINS = 10
_PIT = ("pit_distance", *(f"pit_{index}" for index in range(_PIT_BINS)))
_STREAM_STYLES = {
    FOLDED: ("Aaren", AAREN, "solid"),
    AAREN_NAME: ("Aaren, not folded", AAREN, "dot"),
    TRANSFORMER_NAME: ("Transformer, KV cache", TRANSFORMER, "solid"),
    GRU: ("GRU", THIRD, "dash"),
    LSTM: ("LSTM", FOURTH, "dash"),
}
_TRAIN_STYLES = {
    AAREN_NAME: ("Aaren", AAREN, "solid"),
    TRANSFORMER_NAME: ("Transformer", TRANSFORMER, "solid"),
    GRU: _STREAM_STYLES[GRU],
    LSTM: _STREAM_STYLES[LSTM],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """A kind of figure that any setting may have."""

    name: str
    title: str
    caption: str
    draw: Callable[[list[Row]], list[View]]  # the views of a setting's rows; none: no figure
    sweep: str = ""  # the key of the sweep that it is drawn from


def setting_figures(results: Results, setting: str) -> list[Figure]:
    """Draw all that there is of a setting; a figure has a view per row that kept what it needs."""
    rows = results.select(setting)
    figures = []
    for drawing in DRAWINGS:
        views = drawing.draw(rows)
        if views:
            caption = drawing.caption + _commands(rows, drawing.sweep)
            name = f"{setting}-{drawing.name}"
            figures.append(Figure(name=name, title=drawing.title, caption=caption, views=views))
    return figures


def margin_figure(results: Results) -> Figure | None:
    """Draw every difference with its interval, in units of the margin."""
    views, firsts = [], [one for one in first_comparisons(results) if one.margin]
    for profile in dict.fromkeys(one.key.profile for one in firsts):
        chosen = [one for one in firsts if one.key.profile == profile]
        views.append(_margin_view(f"All settings, {profile}", chosen))
    for setting in results.settings():
        for profile in results.profiles(setting):
            for one_metric in results.metrics(setting):
                found = [
                    one
                    for variant in results.variants(setting, profile)
                    for one in compare_rows(results, setting, profile, variant, one_metric)
                    if one.advantage is not None and one.margin
                ]
                if found:
                    label = f"{short_title_of(setting)}, {one_metric.label}, {profile}"
                    views.append(_margin_view(label, found))
    if not views:
        return None
    return Figure(
        name="margins",
        title="Every row, by every number",
        caption=(
            f"Aaren's advantage over the Transformer (right: Aaren is better), divided by the margin "
            f"({WORDS}). Bars are 90 % intervals over seeds; inside the band, equivalence is shown at 5 %. A "
            "hollow dot is one seed: no interval."
        ),
        views=views,
    )


def resource_figures(results: Results) -> list[Figure]:
    """Draw the paper's Figure 5 again from this library's benchmarks, and the same for training."""
    figures = []
    stream, train = results.benches.get("stream"), results.benches.get("train")
    if stream is not None:
        caption = "One block of the paper's size, one stream, token by token."
        memory = ("process_bytes", "megabytes above the weights", 1e6)
        time = ("cumulative_seconds", "seconds for all tokens so far", 1.0)
        x = ("tokens", "tokens")
        figures.append(_resource(stream, "Memory of a stream", caption, x=x, y=memory))
        figures.append(_resource(stream, "Time of a stream", caption, x=x, y=time))
    if train is not None:
        caption = f"{train.settings['tokens_per_step']:,} tokens in each step."
        memory = ("peak_extra_bytes", "megabytes at the peak", 1e6)
        time = ("median_seconds", "seconds", 1.0)
        x = ("length", "items in each sequence")
        figures.append(_resource(train, "Memory of a training step", caption, x=x, y=memory))
        figures.append(_resource(train, "Time of a training step", caption, x=x, y=time))
    return figures


def sweep_command(key: str, sweep: Mapping[str, Json]) -> str:
    """Return what to type to make a sweep again.

    >>> sweep_command("context", {"changed": ["episodes=20"], "rows": [{"value": "window"}]})
    'aaren evaluate RUN --set episodes=20 --sweep context=window'
    """
    changed = sweep.get("changed")
    words = [f"--set {choice}" for choice in changed] if isinstance(changed, list) else []
    if sweep.get("part", "test") != "test":
        words.append(f"--part {sweep['part']}")
    return " ".join(["aaren evaluate RUN", *words, f"--sweep {key}={','.join(_points(sweep))}"])


def _forecasts(row: Row) -> tuple[list[Json], Layout]:
    found = {model: content for model, content in first_figures(row).items() if "windows" in content}
    data: list[Json] = []
    layout: dict[str, Json] = {"height": 560, "grid": {"rows": 3, "columns": 1, "pattern": "independent"}}
    for model, content in found.items():
        column, windows = str(content.get("column", "")), content.get("windows")
        for index, window in enumerate(windows if isinstance(windows, list) else []):
            data += _window(mapping(window), model, index, is_first=model == next(iter(found)))
            suffix = "" if index == 0 else str(index + 1)
            layout[f"xaxis{suffix}"] = axis("steps from the present" if index == 2 else "")
            layout[f"yaxis{suffix}"] = axis(f"{column}, scaled" if index == 1 else "")
    return data, layout


def _window(window: Mapping[str, Json], model: str, index: int, *, is_first: bool) -> list[Json]:
    past, truth, forecast = (numbers(window.get(name)) for name in ("past", "truth", "forecast"))
    axes: dict[str, Json] = {} if index == 0 else {"xaxis": f"x{index + 1}", "yaxis": f"y{index + 1}"}
    ahead = [float(step + 1) for step in range(len(truth))]
    before = [float(step - len(past) + 1) for step in range(len(past))]
    traces: list[Json] = []
    for name, xs, ys, colour in (("past", before, past, MUTED), ("truth", ahead, truth, INK)):
        if is_first:
            more = {"showlegend": index == 0, "legendgroup": name, **axes}
            traces.append(line(name, xs, ys, colour=colour, width=1.4, more=more))
    more = {"showlegend": index == 0, "legendgroup": model, **axes}
    return [*traces, line(model_label(model), ahead, forecast, colour=COLOURS[model], more=more)]


def _earliness(rows: list[Row]) -> list[View]:
    """Draw accuracy against the share of each series that was seen; all variants of a dataset in one view."""
    groups: dict[tuple[str, str], list[Json]] = {}
    dashes = dict(zip(sorted({row.key.variant for row in rows}), _DASHES * 9, strict=False))
    for row in rows:
        for model in PAIR:
            curves = [dict(curve_of(metrics)) for metrics in _test_metrics(row, model)]
            curves = [curve for curve in curves if curve]
            if not curves:
                continue
            fractions = sorted(curves[0])
            means = [100.0 * sum(curve.get(at, 0.0) for curve in curves) / len(curves) for at in fractions]
            groups.setdefault((row.key.dataset, row.key.profile), []).append(
                line(
                    ", ".join(filter(None, (model_label(model), row.key.variant))),
                    [100.0 * at for at in fractions],
                    means,
                    colour=COLOURS[model],
                    dash=dashes[row.key.variant],
                )
            )
    layout = _axes("% of the series seen", "accuracy, %")
    return [View(label=", ".join(group), data=data, layout=layout) for group, data in groups.items()]


def _calibration(row: Row) -> tuple[list[Json], Layout]:
    data: list[Json] = []
    for model, colour in COLOURS.items():
        found = [metrics for metrics in _test_metrics(row, model) if metrics.keys() >= set(_PIT)]
        if not found:
            continue
        distance, *shares = (sum(metrics[name] for metrics in found) / len(found) for name in _PIT)
        shares = [100.0 * share for share in shares]
        label = f"{model_label(model)}: distance {distance:.3f}"
        steps: dict[str, Json] = {"line": {"color": colour, "width": 2, "shape": "hv"}}
        ends = [10.0 * index for index in range(_PIT_BINS + 1)]
        data.append(line(label, ends, [*shares, shares[-1]], colour=colour, more=steps))
    if data:
        data.append(line("perfect", [0.0, 100.0], [10.0, 10.0], colour=MUTED, dash="dot", width=1.2))
    return data, _axes("probability integral transform, %", "% of test events", rangemode="tozero")


def _gap_bands(row: Row) -> tuple[list[Json], Layout]:
    found = {model: content for model, content in first_figures(row).items() if "gap" in content}
    data: list[Json] = []
    gaps: list[float | None] = []
    events: list[float] = []
    for model, content in found.items():
        gaps = numbers(content.get("gap"))
        events = [float(index + 2) for index in range(len(gaps))]
        for name, dash in (("low", "dot"), ("median", "solid"), ("high", "dot")):
            band, label, colour = numbers(content.get(name)), model_label(model), COLOURS[model]
            more: dict[str, Json] = {"legendgroup": model, "showlegend": name == "median"}
            data.append(line(label, events, band, colour=colour, dash=dash, width=1.4, more=more))
    if data:
        data.append(line("true gap", events, gaps, colour=INK, mode="markers"))
    unit = next((str(content.get("unit") or "") for content in found.values()), "")
    return data, _axes("event", f"gap before it, {unit}" if unit else "gap before it", type="log", dtick=1)


def _return_conditioning(row: Row) -> tuple[list[Json], Layout]:
    data: list[Json] = []
    asked_most = 0.0
    target = number_in(row.facts, "target_return")
    for model, index, seed, points in _sweeps(row, "target_scale"):
        pairs = sorted(
            (asked * target, found)
            for value, metrics in points.items()
            if target is not None
            and (asked := _read_number(value)) is not None
            and (found := number_in(metrics, "return")) is not None
        )
        if len(pairs) > 1:
            asked_most = max(asked_most, pairs[-1][0])
            hover = "asked %{x}, got %{y}"
            data.append(_seed_line(model, index, seed, pairs, hover=hover, mode="lines+markers"))
    if data:
        ends = [0.0, asked_most]
        data.append(line("as asked", ends, list(ends), colour=MUTED, dash="dot", width=1.2))
    return data, _axes("return asked for", "return collected")


def _contexts(row: Row) -> tuple[list[Json], Layout]:
    scores: dict[str, dict[str, list[float]]] = {}
    for model, _, _, points in _sweeps(row, "context"):
        for value, metrics in points.items():
            found = number_in(metrics, "score")
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
    return data, _axes("context while acting", "score, fresh episodes")


def _learning_curves(row: Row) -> tuple[list[Json], Layout]:
    """Draw the first of the row's numbers that was validated; without any, the training loss."""
    runs = [
        (model, index, seed, run.curve)
        for model in [model for model in PAIR if model in row.runs] or sorted(row.runs)
        for index, (seed, run) in enumerate(row.by_seed(model))
    ]
    scores = [mapping(one.get("validation")) for *_, evaluations in runs for one in evaluations]
    names = dict.fromkeys(name.rpartition(".")[2] for record in row.records for name in record.reports)
    shown = next((name for name in names if any(number_in(one, name) is not None for one in scores)), "")
    data: list[Json] = []
    for model, index, seed, evaluations in runs:
        points = [
            (update, number_in(values, shown or "loss"))  # not finite: a gap
            for one in evaluations
            for values in [mapping(one.get("validation")) if shown else one]
            if (update := number_in(one, "update")) is not None and (shown or "loss") in values
        ]
        if len(points) > 1:
            data.append(_seed_line(model, index, seed, points, width=1.6, hover="%{y}"))
    label = metric(f"test.{shown}").label.partition(",")[0]
    return data, _axes("updates", f"validation {label}" if shown else "training loss")


def _per_row(draw: Callable[[Row], tuple[list[Json], Layout]]) -> Callable[[list[Row]], list[View]]:
    """Make one view of every row that `draw` finds data in."""

    def views(rows: list[Row]) -> list[View]:
        found = [(row.key, *draw(row)) for row in rows]
        return [
            View(
                label=", ".join(filter(None, (key.name, key.profile, key.variant))), data=data, layout=layout
            )
            for key, data, layout in found
            if data
        ]

    return views


DRAWINGS = (
    Drawing(
        name="forecasts",
        title="Forecasts against truth",
        caption="Three test windows, evenly spread, of the last column; scaled as in training.",
        draw=_per_row(_forecasts),
    ),
    Drawing(
        name="earliness",
        title="How early the class is known",
        caption="Accuracy on TEST after each share of every series. A model with the published, centred "
        "embedding gets every prefix as a series of its own; the causal one runs over the stream.",
        draw=_earliness,
    ),
    Drawing(
        name="calibration",
        title="Calibration of the next gap",
        caption="Where true gaps fall in their predicted distributions; flat is perfect. The distance is the "
        "largest between the two distribution functions (Kolmogorov-Smirnov).",
        draw=_per_row(_calibration),
    ),
    Drawing(
        name="bands",
        title="One sequence, event by event",
        caption="True gaps of the longest test sequence, the first 80; solid: median predicted, dotted: 10 "
        "and 90 %.",
        draw=_per_row(_gap_bands),
    ),
    Drawing(
        name="conditioning",
        title="Does it collect what it is asked for?",
        caption="Mean return of fresh episodes against the return asked for; dotted: exactly as asked.",
        draw=_per_row(_return_conditioning),
        sweep="target_scale",
    ),
    Drawing(
        name="contexts",
        title="What the context of acting changes",
        caption="The same weights, acting with a sliding window, a state carried over the episode, or one "
        "reset every K steps.",
        draw=_per_row(_contexts),
        sweep="context",
    ),
    Drawing(
        name="curves",
        title="Learning curves",
        caption="One line per seed; both models see the same data in the same order.",
        draw=_per_row(_learning_curves),
    ),
)


def _axes(x_title: str, y_title: str, **more: Json) -> Layout:
    return {"xaxis": axis(x_title), "yaxis": axis(y_title, **more)}


def _seed_line(
    model: str,
    index: int,
    seed: int,
    points: list[tuple[float, float]] | list[tuple[float, float | None]],
    *,
    hover: str,
    width: float = 2.0,
    mode: str = "lines",
) -> Json:
    """Return the line of one seed of a model; the first seed's stands out and is in the legend."""
    return line(
        model_label(model),
        [x for x, _ in points],
        [y for _, y in points],
        colour=COLOURS.get(model, MUTED),
        width=width,
        mode=mode,
        more={
            "opacity": 1.0 if index == 0 else 0.5,
            "legendgroup": model,
            "showlegend": index == 0,
            "hovertemplate": f"{model_label(model)}, seed {seed}: {hover}{NO_BOX}",
        },
    )


def _sweeps(row: Row, key: str) -> list[tuple[str, int, int, dict[str, Mapping[str, Json]]]]:
    """Return model, index of the seed, seed, and the metrics by value, of every sweep of a row."""
    return [
        (model, index, seed, points)
        for model in PAIR
        for index, (seed, run) in enumerate(row.by_seed(model))
        if (points := _points(run.sweeps.get(key, {})))
    ]


def _points(sweep: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    rows = sweep.get("rows")
    entries = [mapping(row) for row in rows] if isinstance(rows, list) else []
    return {str(entry.get("value")): mapping(entry.get("metrics")) for entry in entries}


def _commands(rows: list[Row], key: str) -> str:
    """Say with which commands the sweeps of one key were made; RUN is the folder of a run listed below."""
    if not key:
        return ""
    sweeps = [run.sweeps.get(key, {}) for row in rows for model in PAIR for _, run in row.by_seed(model)]
    commands = dict.fromkeys(sweep_command(key, sweep) for sweep in sweeps if sweep)
    return f" Made by: {'; '.join(commands)}." if commands else ""


def _test_metrics(row: Row, model: str) -> list[dict[str, float]]:
    """Return the finite test metrics of each run of a model; a record holds others as null."""
    found = [run.metrics.get("test", {}) for _, run in row.by_seed(model)]
    return [
        {name: value for name, value in metrics.items() if number_in(metrics, name) is not None}
        for metrics in found
    ]


def _read_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _margin_view(label: str, found: list[Comparison]) -> View:
    rows = list(reversed(found))
    data = [
        _margin_trace(outcome, f"@{colour}", chosen)
        for outcome, colour in OUTCOME_COLOURS.items()
        if (chosen := [(height, one) for height, one in enumerate(rows) if one.outcome == outcome])
    ]
    reach = 0.0
    for one in rows:
        advantage, margin = _in_margins(one)
        ends = [end for end in (advantage.low, advantage.high, advantage.mean) if end is not None]
        reach = max(reach, min(_FURTHEST, max(abs(end) for end in ends) / margin))
    extent = max(1.5, reach) * 1.05
    corners: dict[str, Json] = {"x0": -1, "x1": 1, "y0": 0, "y1": 1}
    return View(
        label=label,
        data=data,
        layout={
            "showlegend": True,
            "height": 150 + 20 * len(rows),
            "xaxis": axis("advantage of Aaren, in margins", range=[-extent, extent], zeroline=True),
            "yaxis": {
                "tickmode": "array",
                "tickvals": list(range(len(rows))),
                "ticktext": [_margin_label(one) for one in rows],
                "range": [-0.7, len(rows) - 0.3],
                "showgrid": False,
                "zeroline": False,
                "automargin": True,
            },
            "shapes": [
                {
                    "type": "rect",
                    "xref": "x",
                    "yref": "paper",
                    **corners,
                    "fillcolor": "@band",
                    "line": {"width": 0},
                    "layer": "below",
                }
            ],
        },
    )


def _margin_trace(outcome: Outcome, colour: str, chosen: list[tuple[int, Comparison]]) -> Json:
    centres, above, below, texts, symbols = [], [], [], [], []
    for _, one in chosen:
        advantage, margin = _in_margins(one)
        mean, low, high = advantage.mean, advantage.low, advantage.high
        centres.append(short(max(-_FURTHEST, min(_FURTHEST, mean / margin))))
        above.append(short((high - mean) / margin) if high is not None else 0.0)
        below.append(short((mean - low) / margin) if low is not None else 0.0)
        symbols.append("circle-open" if advantage.is_open else "circle")
        seeds = f"{advantage.count} seed{'s' if advantage.count > 1 else ''}"
        texts.append(f"{_margin_label(one)}: {one.metric.show(mean, signed=True)}, {seeds}")
    return {
        "type": "scatter",
        "mode": "markers",
        "name": OUTCOMES[outcome],
        "x": list(centres),
        "y": [height for height, _ in chosen],
        "text": list(texts),
        "hovertemplate": f"%{{text}}{NO_BOX}",
        "marker": {
            "color": colour,
            "size": 9,
            "symbol": list(symbols),
            "line": {"width": 2, "color": colour},
        },
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": list(above),
            "arrayminus": list(below),
            "color": colour,
            "thickness": 1.6,
            "width": 3,
        },
    }


def _margin_label(one: Comparison) -> str:
    return f"{one.key.name} ({one.key.variant})" if one.key.variant else one.key.name


def _in_margins(one: Comparison) -> tuple[Interval, float]:
    """Return advantage and margin of a comparison that has both."""
    assert one.advantage is not None
    assert one.margin is not None
    return one.advantage, one.margin


def _resource(
    record: BenchRecord, title: str, caption: str, *, x: tuple[str, str], y: tuple[str, str, float]
) -> Figure:
    """Draw one measured field against another, a line per contender: fields, titles of axes, unit of y."""
    (x_field, x_title), (y_field, y_title, unit) = x, y
    is_stream = record.kind == "stream"
    furthest = None
    if is_stream:
        counts = (row for row in record.measurements if row.get("contender") == TRANSFORMER_NAME)
        furthest = max((number(row, "tokens") for row in counts if row.get("size") == PAPER), default=0.0)
    data = []
    for contender, (label, colour, dash) in (_STREAM_STYLES if is_stream else _TRAIN_STYLES).items():
        rows = [
            row
            for row in record.measurements
            if row.get("contender") == contender
            and row.get(y_field) is not None
            and (furthest is None or _is_in_stream(row, furthest))
        ]
        if rows:
            start = [0.0] if is_stream else []
            xs = [*start, *(number(row, x_field) for row in rows)]
            ys = [*start, *(number(row, y_field) / unit for row in rows)]
            mode = "lines" if is_stream else "lines+markers"
            data.append(line(label, xs, ys, colour=colour, dash=dash, mode=mode))
    return Figure(
        name=f"{record.kind}-{y_field.replace('_', '-')}",
        title=title,
        caption=f"{caption} {describe(record)}",
        views=[View(label="", data=data, layout=_axes(x_title, y_title, rangemode="tozero"))],
    )


def _is_in_stream(row: Measurement, furthest: float) -> bool:
    return row["what"] == "stream" and row["size"] == PAPER and number(row, "tokens") <= furthest
