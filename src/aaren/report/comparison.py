"""Aaren against Transformer in one row by one number: both summaries, their paired difference, the judgement.

The margin is the paper's own: it prints both models in bold, as equals, when mean ± deviation of one touches
that of the other, so a difference up to the sum of both published deviations counts as none.
"""

from dataclasses import dataclass

from aaren.lab import published
from aaren.lab.published import PublishedCell
from aaren.report.datasets import is_stand_in, papers_name
from aaren.report.names import Metric, half_digit
from aaren.report.rows import Place, Row
from aaren.report.statistics import (
    Interval,
    Outcome,
    Summary,
    equivalence_p,
    interval,
    judge,
    summarise,
)

# Settings in which a stand-in's numbers are not the paper's, nor on its scale; and why.
_OTHER_DATA = {
    "forecasting": "not the series of the paper's {}",
    "classification": "tested on a held-out part of TRAIN, the published {} on TEST",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One row by one number."""

    place: Place
    metric: Metric
    aaren: Summary | None
    transformer: Summary | None
    differences: dict[int, float]  # by seed, in the metric's own direction: Aaren - Transformer
    difference: Interval | None
    margin: float | None
    p_value: float | None  # of the equivalence test
    outcome: Outcome
    published: dict[str, PublishedCell]  # by model; empty where ours is not the same number
    remark: str  # why there is nothing published beside it, or what it stands for

    @property
    def is_gap(self) -> bool:
        """Tell whether neither model was run."""
        return self.aaren is None and self.transformer is None

    @property
    def is_of_held_out_cases(self) -> bool:
        """Tell whether the row was tested on a few cases of TRAIN: too few to be averaged with others."""
        return self.place.setting == "classification" and is_stand_in(self.place.dataset)

    @property
    def advantage(self) -> Interval | None:
        """Return the difference turned so that more is better for Aaren."""
        if self.difference is None or not self.metric.is_lower_better:
            return self.difference
        return turned(self.difference)

    def deviations_off(self, model: str) -> float | None:
        """Say how many published deviations our mean is from the published one."""
        ours, theirs = (self.aaren if model == "aaren" else self.transformer), self.published.get(model)
        if ours is None or theirs is None:
            return None
        return (ours.mean - theirs.mean) / max(theirs.std, half_digit(self.metric.name))


def compare(row: Row, metric: Metric) -> Comparison:
    """Compare both models in a row."""
    by_model = {model: row.values(model, metric.report) for model in ("aaren", "transformer")}
    seeds = sorted(by_model["aaren"].keys() & by_model["transformer"].keys())
    differences = {seed: by_model["aaren"][seed] - by_model["transformer"][seed] for seed in seeds}
    difference = interval(list(differences.values())) if differences else None
    margin = find_margin(row, metric)
    outcome: Outcome = "untested"
    if difference is not None:
        outcome = judge(turned(difference) if metric.is_lower_better else difference, margin)
    cells, remark = find_published(row, metric)
    return Comparison(
        place=row.place,
        metric=metric,
        aaren=_summary(by_model["aaren"]),
        transformer=_summary(by_model["transformer"]),
        differences=differences,
        difference=difference,
        margin=margin,
        p_value=equivalence_p(list(differences.values()), margin) if differences and margin else None,
        outcome=outcome,
        published=cells,
        remark=remark,
    )


def turned(one: Interval) -> Interval:
    """Look at an interval from the other side.

    >>> turned(Interval(mean=1.0, low=0.5, high=1.5, count=3))
    Interval(mean=-1.0, low=-1.5, high=-0.5, count=3)
    """
    if one.low is None or one.high is None:
        return Interval(mean=-one.mean, low=None, high=None, count=one.count)
    return Interval(mean=-one.mean, low=-one.high, high=-one.low, count=one.count)


def published_pair(place: Place, metric: Metric) -> dict[str, PublishedCell]:
    """Return what the paper has for this row's dataset, or for the one it stands for."""
    found = {
        model: published.lookup(place.setting, papers_name(place.dataset), place.horizon, metric.name, model)
        for model in published.MODELS
    }
    return {model: cell for model, cell in found.items() if cell is not None}


def margin_of(cells: dict[str, PublishedCell]) -> float | None:
    """Add up both published deviations; one printed as 0.00 counts as half a printed digit."""
    if len(cells) < len(published.MODELS):
        return None
    return sum(max(cell.std, half_digit(cell.metric)) for cell in cells.values())


def find_margin(row: Row, metric: Metric) -> float | None:
    """Return what difference does not matter in a row; None where the paper gives no measure for it.

    A log-likelihood moves with the unit of time, its differences do not; a root mean squared error is in that
    unit, so its margin holds only where the unit is the published one.
    """
    if row.place.setting == "events" and metric.name == "rmse" and not _is_same_number(row, metric):
        return None
    if row.place.setting in _OTHER_DATA and is_stand_in(row.place.dataset):
        return None
    return margin_of(published_pair(row.place, metric))


def find_published(row: Row, metric: Metric) -> tuple[dict[str, PublishedCell], str]:
    """Return the published numbers that may stand beside a row's, and what to say about them."""
    place, facts = row.place, row.facts
    cells = published_pair(place, metric)
    if not row.runs:
        return cells, ""
    if place.setting == "events":
        reason = str(facts.get("comparable_reason", ""))
        if not _is_same_number(row, metric):
            return {}, reason
        return cells, f"stands for {papers_name(place.dataset)}" if is_stand_in(place.dataset) else reason
    if place.setting in _OTHER_DATA and is_stand_in(place.dataset):
        return {}, _OTHER_DATA[place.setting].format(papers_name(place.dataset))
    if not cells:
        return {}, "not in the paper"
    if place.setting == "rl":
        return cells, "regenerated data" if is_stand_in(place.dataset) else ""
    return cells, ""


def _is_same_number(row: Row, metric: Metric) -> bool:
    comparable = row.facts.get("comparable")
    return isinstance(comparable, list) and metric.name in comparable


def _summary(by_seed: dict[int, float]) -> Summary | None:
    return summarise(list(by_seed.values())) if by_seed else None
