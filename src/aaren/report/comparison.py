"""Aaren against Transformer: row by row against a fixed margin, in bold by the paper's rule, and on average.

The paper's own margin is shown too: it prints both models in bold, as equals, when mean ± standard deviation
of one touches that of the other, so a difference up to the sum of both published standard deviations counts
as none.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from aaren.lab import published
from aaren.lab.margins import fixed_margin
from aaren.lab.published import PublishedCell
from aaren.lab.statistics import (
    ONE_SIDED_LEVEL,
    Interval,
    Outcome,
    Summary,
    equivalence_p,
    interval,
    judge,
    seeds_to_decide,
    summarise,
    welch_equivalence_p,
)
from aaren.report.names import (
    GAP,
    PAIR,
    Metric,
    half_digit,
    is_stand_in,
    metric,
    other_data_reason,
    papers_name,
    setting_of,
    stand_in_note,
)
from aaren.report.rows import Results, Row, RowKey

OUTCOMES: dict[Outcome, str] = {
    "equivalent": "within the margin",
    "better_within": "better, within the margin",
    "worse_within": "worse, within the margin",
    "better": "Aaren better",
    "worse": "Aaren worse",
    "undecided": "open",
    "untested": "not tested",
}
COLOURS: dict[Outcome, str] = {  # as the page calls them
    outcome: {"worse": "bad", "undecided": "muted", "untested": "muted"}.get(outcome, "good")
    for outcome in OUTCOMES
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One row by one number."""

    key: RowKey
    metric: Metric
    aaren: Summary | None
    transformer: Summary | None
    differences: dict[int, float]  # by seed, in the metric's own direction: Aaren - Transformer
    difference: Interval | None
    margin: float | None  # fixed beforehand; see `aaren.lab.margins`
    published_margin: float | None  # the sum of both published standard deviations
    p_value: float | None  # of the equivalence test
    outcome: Outcome
    published: dict[str, PublishedCell]  # by model; empty where ours is not the same number
    remark: str  # why there is nothing published beside it, or what it stands for

    @property
    def is_gap(self) -> bool:
        """Tell whether neither model was run."""
        return self.aaren is None and self.transformer is None

    @property
    def is_averaged(self) -> bool:
        """Tell whether the row counts in averages over its table."""
        return setting_of(self.key.setting).averages_stand_ins or not is_stand_in(self.key.dataset)

    @property
    def advantage(self) -> Interval | None:
        """Return the difference turned so that more is better for Aaren."""
        if self.difference is None or not self.metric.is_lower_better:
            return self.difference
        return turned(self.difference)

    @property
    def judgement(self) -> str:
        """Return the outcome in words, or why there is none."""
        if self.difference is None:
            return "not run" if self.is_gap else "one model only"
        if self.outcome == "untested":
            return "one seed" if self.difference.is_open else "no margin"
        if self.outcome == "undecided":
            needed = self.seeds_needed
            return f"open: {'over 1,000' if needed is None else f'about {needed:,}'} seeds"
        return OUTCOMES[self.outcome]

    @property
    def seeds_needed(self) -> int | None:
        """Return how many seeds would decide an open row, if mean and standard deviation stay; None: many."""
        assert self.margin is not None
        return seeds_to_decide(summarise(list(self.differences.values())), self.margin)

    @property
    def in_margins(self) -> list[float]:
        """Return the advantage of each seed, divided by the margin; nothing without a margin."""
        sign = -1.0 if self.metric.is_lower_better else 1.0
        return [sign * one / self.margin for one in self.differences.values()] if self.margin else []

    @property
    def bold(self) -> tuple[bool, bool]:
        """Return whether Aaren and the Transformer are printed in bold."""
        if self.aaren is None or self.transformer is None:
            return False, False
        return which_are_bold(self.aaren, self.transformer, is_lower_better=self.metric.is_lower_better)

    @property
    def seeds(self) -> tuple[int, int]:
        """Return how many seeds of Aaren and of the Transformer there are."""
        aaren, transformer = (0 if one is None else one.count for one in (self.aaren, self.transformer))
        return aaren, transformer

    def deviations_off(self, model: str) -> float | None:
        """Say how many published standard deviations our mean is from the published one."""
        ours, theirs = (self.aaren if model == "aaren" else self.transformer), self.published.get(model)
        if ours is None or theirs is None:
            return None
        return (ours.mean - theirs.mean) / max(theirs.std, half_digit(self.metric.name))


def compare_rows(
    results: Results, setting: str, profile: str, variant: str, number: Metric
) -> list[Comparison]:
    """Compare both models in every row that has either, and the paper's rows that have none, as gaps.

    A smoke run has no gaps: it is not meant to fill the paper's table.
    """
    rows = [
        row
        for row in results.select(setting, profile, variant)
        if row.runs.keys() & set(PAIR) and row.is_judged_by(number.report)
    ]
    found = [one for one in (compare(row, number) for row in rows) if not one.is_gap]
    if not variant and profile != "smoke":
        found += _gaps(setting, profile, number, rows)
    return sorted(found, key=lambda one: one.key.order)


def compare(row: Row, metric: Metric) -> Comparison:
    """Compare both models in a row."""
    by_model = {model: row.values(model, metric.report) for model in PAIR}
    seeds = sorted(by_model["aaren"].keys() & by_model["transformer"].keys())
    differences = {seed: by_model["aaren"][seed] - by_model["transformer"][seed] for seed in seeds}
    difference = interval(list(differences.values())) if differences else None
    transformer = _summary(by_model["transformer"])
    margin = fixed_margin(metric.name, transformer=transformer.mean if transformer else None, facts=row.facts)
    outcome: Outcome = "untested"
    if difference is not None:
        outcome = judge(turned(difference) if metric.is_lower_better else difference, margin)
    cells, remark, published_margin = find_published(row, metric)
    return Comparison(
        key=row.key,
        metric=metric,
        aaren=_summary(by_model["aaren"]),
        transformer=transformer,
        differences=differences,
        difference=difference,
        margin=margin,
        published_margin=published_margin,
        p_value=equivalence_p(list(differences.values()), margin) if differences and margin else None,
        outcome=outcome,
        published=cells,
        remark=remark,
    )


def turned(one: Interval) -> Interval:
    """Change the sign of an interval.

    >>> turned(Interval(mean=1.0, low=0.5, high=1.5, count=3))
    Interval(mean=-1.0, low=-1.5, high=-0.5, count=3)
    """
    if one.low is None or one.high is None:
        return Interval(mean=-one.mean, low=None, high=None, count=one.count)
    return Interval(mean=-one.mean, low=-one.high, high=-one.low, count=one.count)


def published_pair(key: RowKey, metric: Metric) -> dict[str, PublishedCell]:
    """Return what the paper has for this row's dataset, or for the one it stands for."""
    found = {
        model: published.lookup(key.setting, papers_name(key.dataset), key.horizon, metric.name, model)
        for model in published.MODELS
    }
    return {model: cell for model, cell in found.items() if cell is not None}


def margin_of(cells: dict[str, PublishedCell]) -> float | None:
    """Add up both published standard deviations; one printed as 0.00 counts as half a printed digit."""
    if len(cells) < len(published.MODELS):
        return None
    return sum(max(cell.std, half_digit(cell.metric)) for cell in cells.values())


def find_published(row: Row, metric: Metric) -> tuple[dict[str, PublishedCell], str, float | None]:
    """Return the published numbers that may stand beside a row's, what to say of them, and their margin.

    A log-likelihood moves with the unit of time, its differences do not; a root mean squared error is in that
    unit, so its margin holds only where the unit is the published one. Without a measure in the paper it is
    None.
    """
    key, setting = row.key, setting_of(row.key.setting)
    cells = published_pair(key, metric)
    is_same, why = setting.comparable(metric.name, row.facts)
    reason = other_data_reason(key.setting, key.dataset)
    has_margin = not reason and (is_same or metric.name not in setting.in_data_units)
    margin = margin_of(cells) if has_margin else None
    if not row.runs:
        return cells, "", margin
    if not is_same or reason:
        return {}, reason if is_same else why, margin
    return cells, (stand_in_note(key.setting, key.dataset) or why) if cells else "not in the paper", margin


_ROUNDING = 1e-9  # 0.44 + 0.01 and 0.48 - 0.02 are printed decimals, not binary fractions


def which_are_bold(one: Summary, other: Summary, *, is_lower_better: bool) -> tuple[bool, bool]:
    """Apply the paper's rule: both are bold if mean ± standard deviation of one touches the other's.

    Otherwise the better one is; none where a standard deviation is unknown.

    >>> a, b = Summary(mean=0.50, deviation=0.02, count=5), Summary(mean=0.53, deviation=0.01, count=5)
    >>> which_are_bold(a, b, is_lower_better=True)
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
    equivalent: int  # pairs that pass an equivalence test with the same margin (Welch)


def check_published() -> PublishedCheck:
    """Apply the rule to all pairs of the paper."""
    sides = {"both": 0, "transformer": 0, "aaren": 0}
    exceptions = []
    equivalent = 0
    firsts = [cell for cell in published.cells() if cell.model == "aaren"]
    for aaren in firsts:
        cell = (aaren.setting, aaren.dataset, aaren.horizon, aaren.metric)
        transformer = published.lookup(*cell, "transformer")
        assert transformer is not None
        found = which_are_bold(
            as_summary(aaren),
            as_summary(transformer),
            is_lower_better=metric(aaren.metric).is_lower_better,
        )
        side = {(True, True): "both", (True, False): "aaren", (False, True): "transformer"}[found]
        sides[side] += 1
        if side != published.PRINTED_ONE_SIDED.get(cell, "both"):
            name = ", ".join(str(word) for word in cell[1:] if word is not None)
            exceptions.append(f"{name}: {describe(aaren)} and {describe(transformer)}")
        margin = margin_of({"aaren": aaren, "transformer": transformer})
        assert margin is not None
        p_value = welch_equivalence_p(as_summary(aaren), as_summary(transformer), margin)
        equivalent += p_value is not None and p_value < ONE_SIDED_LEVEL
    return PublishedCheck(pairs=len(firsts), exceptions=exceptions, equivalent=equivalent, **sides)


def as_summary(cell: PublishedCell) -> Summary:
    """Return a published cell as mean and standard deviation over five seeds."""
    return Summary(mean=cell.mean, deviation=cell.std, count=published.NUM_SEEDS)


def describe(cell: PublishedCell) -> str:
    """Write a published cell as the paper does."""
    known = metric(cell.metric)
    return f"{cell.mean * known.scale:.2f} ± {cell.std * known.scale:.2f}"


# In a unit of its own for every dataset: averaged in percent of the Transformer's.
_RELATIVE = ("rmse", "return")


@dataclass(frozen=True, kw_only=True, slots=True)
class AverageDifference:
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


def average_difference(comparisons: Sequence[Comparison]) -> AverageDifference | None:
    """Average over the rows of a table that have both models and a test part; None if there is none."""
    is_relative = any(one.metric.name in _RELATIVE for one in comparisons)
    usable = [
        (one, abs(one.transformer.mean) if is_relative else 1.0)
        for one in comparisons
        if one.differences and one.transformer is not None and one.is_averaged
    ]
    usable = [(one, base) for one, base in usable if base]  # nothing is a percentage of zero
    if not usable:
        return None
    pairs: list[float] = []
    by_dataset: dict[str, list[float]] = defaultdict(list)
    outcomes: dict[Outcome, int] = defaultdict(int)
    for one, base in usable:
        values = [difference / base for difference in one.differences.values()]
        pairs += values
        by_dataset[one.key.dataset] += values
        outcomes[one.outcome] += 1
    means = [sum(values) / len(values) for values in by_dataset.values()]
    return AverageDifference(
        metric=usable[0][0].metric,
        is_relative=is_relative,
        over_pairs=interval(pairs),
        over_datasets=interval(means),
        outcomes=dict(outcomes),
    )


def show_interval(one: Interval | None, number: Metric, *, scale: float | None = None) -> str:
    """Write a difference with its interval, if it has one.

    Args:
        one: The difference; None: a gap.
        number: Of which metric; decides the digits.
        scale: Percent: 100; None: as the metric is shown.
    """

    def show(value: float) -> str:
        if scale is None:
            return number.show(value, signed=True)
        return f"{value * scale:+.1f}".replace("-", "\u2212")

    if one is None:
        return GAP
    if one.low is None or one.high is None:
        return show(one.mean)
    return f"{show(one.mean)} [{show(one.low)}, {show(one.high)}]"


def _summary(by_seed: dict[int, float]) -> Summary | None:
    return summarise(list(by_seed.values())) if by_seed else None


def _gaps(setting: str, profile: str, number: Metric, rows: list[Row]) -> list[Comparison]:
    """Return the rows of the paper's table that none of ours is about."""
    covered = {(papers_name(row.key.dataset), row.key.horizon) for row in rows}
    wanted = dict.fromkeys(
        (cell.dataset, cell.horizon)
        for cell in published.cells()
        if cell.setting == setting and cell.metric == number.name
    )
    keys = [
        RowKey(setting=setting, profile=profile, variant="", dataset=dataset, horizon=horizon)
        for dataset, horizon in wanted
        if (dataset, horizon) not in covered
    ]
    return [compare(Row(key=key), number) for key in keys]
