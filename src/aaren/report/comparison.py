"""Aaren against Transformer in one row by one number: both summaries, their paired difference, the judgement.

The margin is the paper's own: it prints both models in bold, as equals, when mean ± deviation of one touches
that of the other, so a difference up to the sum of both published deviations counts as none.

The paper's rule for bold type, applied to any pair and checked against the published tables.

Two results whose intervals mean ± deviation touch are both bold; otherwise the better one is.

One number per table: how much better or worse Aaren is than the Transformer, over all rows and seeds.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from aaren.lab import published
from aaren.lab.published import PublishedCell
from aaren.report.names import Metric, half_digit, is_stand_in, metric, papers_name
from aaren.report.rows import Place, Row
from aaren.report.statistics import (
    ONE_SIDED_LEVEL,
    Interval,
    Outcome,
    Summary,
    equivalence_p,
    interval,
    judge,
    summarise,
    welch_equivalence_p,
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


# Which pairs the paper prints with one side bold, read from its tables: all others have both.
PRINTED_ONE_SIDED = MappingProxyType(
    {
        ("events", "taxi", None, "nll"): "transformer",
        ("events", "uber", None, "rmse"): "aaren",
        ("forecasting", "ETTm1", 96, "mse"): "transformer",
        ("forecasting", "ETTm1", 96, "mae"): "transformer",
        ("forecasting", "Weather", 336, "mae"): "aaren",
        ("forecasting", "Traffic", 96, "mae"): "transformer",
        ("forecasting", "Traffic", 192, "mae"): "transformer",
        ("forecasting", "Traffic", 336, "mae"): "transformer",
        ("forecasting", "ECL", 96, "mae"): "transformer",
    }
)
_ROUNDING = 1e-9  # 0.44 + 0.01 and 0.48 - 0.02 are printed decimals, not binary fractions


def bold(one: Summary, other: Summary, *, is_lower_better: bool) -> tuple[bool, bool]:
    """Say which of two results are bold; none where a deviation is not known.

    >>> a, b = Summary(mean=0.50, deviation=0.02, count=5), Summary(mean=0.53, deviation=0.01, count=5)
    >>> bold(a, b, is_lower_better=True)
    (True, True)
    """
    if one.deviation is None or other.deviation is None:
        return False, False
    if abs(one.mean - other.mean) <= one.deviation + other.deviation + _ROUNDING:
        return True, True
    is_first = (one.mean < other.mean) == is_lower_better
    return is_first, not is_first


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedCheck:
    """What the rule gives on the published tables."""

    pairs: int
    both: int
    transformer: int
    aaren: int
    exceptions: list[str]  # where the printed bold type is not what the rule gives
    equivalent: int  # pairs that pass an equivalence test with the same margin, from means and deviations


def check_published() -> PublishedCheck:
    """Apply the rule to all pairs of the paper."""
    sides = {"both": 0, "transformer": 0, "aaren": 0}
    exceptions = []
    equivalent = 0
    firsts = [cell for cell in published.cells() if cell.model == "aaren"]
    for aaren in firsts:
        place = (aaren.setting, aaren.dataset, aaren.horizon, aaren.metric)
        transformer = published.lookup(*place, "transformer")
        assert transformer is not None
        found = bold(
            as_summary(aaren),
            as_summary(transformer),
            is_lower_better=metric(aaren.metric).is_lower_better,
        )
        side = {(True, True): "both", (True, False): "aaren", (False, True): "transformer"}[found]
        sides[side] += 1
        if side != PRINTED_ONE_SIDED.get(place, "both"):
            name = ", ".join(str(word) for word in place[1:] if word is not None)
            exceptions.append(f"{name}: {describe(aaren)} and {describe(transformer)}")
        margin = margin_of({"aaren": aaren, "transformer": transformer})
        assert margin is not None
        p_value = welch_equivalence_p(as_summary(aaren), as_summary(transformer), margin)
        equivalent += p_value is not None and p_value < ONE_SIDED_LEVEL
    return PublishedCheck(pairs=len(firsts), exceptions=exceptions, equivalent=equivalent, **sides)


def as_summary(cell: PublishedCell) -> Summary:
    """Read a published cell as what it is: mean and deviation over five seeds."""
    return Summary(mean=cell.mean, deviation=cell.std, count=published.NUM_SEEDS)


def describe(cell: PublishedCell) -> str:
    """Write a published cell as the paper does."""
    known = metric(cell.metric)
    return f"{cell.mean * known.scale:.2f} ± {cell.std * known.scale:.2f}"


_RELATIVE = (
    "rmse",
    "return",
)  # in a unit of its own for every dataset: averaged in percent of the Transformer's


@dataclass(frozen=True, kw_only=True, slots=True)
class Macro:
    """Aaren - Transformer over a whole table."""

    metric: Metric
    is_relative: bool  # in percent of the Transformer's number
    over_pairs: Interval  # every dataset, horizon and seed is one observation
    over_datasets: Interval  # every dataset is one, its seeds and horizons averaged: the cautious reading
    outcomes: dict[Outcome, int]

    @property
    def unit(self) -> str:
        """Return what the differences are in."""
        return "%" if self.is_relative else self.metric.unit

    def show(self, one: Interval) -> str:
        """Write a difference with its interval."""
        return show_interval(one, self.metric, scale=None if not self.is_relative else 100.0)


def summarise_table(comparisons: Sequence[Comparison]) -> Macro | None:
    """Average over the rows of a table that have both models and a test part; None if there is none."""
    usable = [one for one in comparisons if one.differences and not one.is_of_held_out_cases]
    if not usable:
        return None
    number = usable[0].metric
    is_relative = number.name in _RELATIVE
    pairs: list[float] = []
    by_dataset: dict[str, list[float]] = defaultdict(list)
    outcomes: dict[Outcome, int] = defaultdict(int)
    for one in usable:
        base = abs(one.transformer.mean) if is_relative and one.transformer is not None else 1.0
        values = [difference / base for difference in one.differences.values()]
        pairs += values
        by_dataset[one.place.dataset] += values
        outcomes[one.outcome] += 1
    means = [sum(values) / len(values) for values in by_dataset.values()]
    return Macro(
        metric=number,
        is_relative=is_relative,
        over_pairs=interval(pairs),
        over_datasets=interval(means),
        outcomes=dict(outcomes),
    )


def show_interval(one: Interval, number: Metric, *, scale: float | None = None) -> str:
    """Write a difference with its interval, if it has one.

    Args:
        one: The difference.
        number: Of which metric; decides the digits.
        scale: Percent: 100; None: as the metric is shown.
    """

    def show(value: float) -> str:
        if scale is None:
            return number.show(value, signed=True)
        return f"{value * scale:+.1f}".replace("-", "\u2212")

    if one.low is None or one.high is None:
        return show(one.mean)
    return f"{show(one.mean)} [{show(one.low)}, {show(one.high)}]"
