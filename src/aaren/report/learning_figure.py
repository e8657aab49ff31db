"""Learning curves: the validation number of every seed of both models against the updates."""

from collections.abc import Mapping

from aaren.report.figure import COLOURS, Figure, View, axis, line, mapping, number_in
from aaren.report.gathered import Gathered
from aaren.report.names import PAIR, metric, model_label
from aaren.report.run_files import figure_of, label_of, read_curve, rows_of, thin
from aaren.tasks.base import Json

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
