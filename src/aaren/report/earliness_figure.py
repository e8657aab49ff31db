"""How early a class is known: accuracy against the share of each series that was seen."""

from collections.abc import Mapping

from aaren.report.figure import COLOURS, Figure, View, axis, line, number_in
from aaren.report.gathered import Gathered
from aaren.report.names import PAIR, model_label
from aaren.report.run_files import figure_of, rows_of
from aaren.tasks.base import Json
from aaren.tasks.classification_earliness import curve_of

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
