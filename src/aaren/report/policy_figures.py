"""Policies: do they collect the return they are asked for, and what does the context of acting change?

Drawn from the sweeps beside the records (`aaren evaluate RUN --targets 0.25,0.5,1` and
`--sweep context=window,carried,reset`).
"""

from collections.abc import Mapping
from pathlib import Path

from aaren.report.figure import COLOURS, MUTED, Figure, View, axis, line, mapping
from aaren.report.gathered import Gathered
from aaren.report.names import PAIR, model_label
from aaren.report.rows import Row
from aaren.report.run_files import figure_of, label_of, rows_of
from aaren.tasks.base import Json
from aaren.train.record import parse_json

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
