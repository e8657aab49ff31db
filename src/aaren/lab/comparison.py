"""Aaren against Transformer: row by row against a fixed margin, and which rows the verdict counts.

The margins and their reasons stand in results/plan.md, which was written before the runs that they judge.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aaren.engine.experiment import Json
from aaren.lab import published
from aaren.lab.names import (
    ADAM,
    EARLIER_ADAM,
    NEW_SEEDS,
    PAIR,
    RADAM,
    TUNED,
    Metric,
    half_digit,
    is_stand_in,
    names_of,
    papers_name,
    stand_in_note,
)
from aaren.lab.published import PublishedCell
from aaren.lab.rows import TODAY, Results, Row, RowKey
from aaren.lab.statistics import Interval, Outcome, deviation, interval, judge, seeds_to_decide

MARGINS = (
    (
        "MSE, MAE",
        "3 %, 2 % of the Transformer's mean",
        "what two seeds of one model differ by: the median of the Transformer's standard deviations",
    ),
    (
        "accuracy",
        "1 point, or 3 test cases if that is more",
        "below the standard deviation of most sets; 180 test cases cannot show less than three",
    ),
    (
        "log-likelihood per event",
        "10 % of what the Transformer gains over the best of Poisson, renewal and Markov, at most 0.05 nats",
        "a model that gives away less than a tenth of what memory is worth does the same job",
    ),
    ("score (RL)", "5 points", "a twentieth of the way from a random policy to an expert"),
)
_RELATIVE = MappingProxyType({"mse": 0.03, "mae": 0.02})  # of the Transformer's mean
_ACCURACY, _CASES, _SCORE = 0.01, 3, 5.0
_GAIN, _MOST_NATS = 0.1, 0.05
_COUNTS = ("test_cases", "test_events")  # facts of a record: how many cases an accuracy is of
_ROUNDING = 1e-9  # 0.44 + 0.01 and 0.48 - 0.02 are printed decimals, not binary fractions

OUTCOMES: Mapping[Outcome, str] = MappingProxyType(
    {
        "equivalent": "within the margin",
        "better_within": "better, within the margin",
        "worse_within": "worse, within the margin",
        "better": "Aaren better",
        "worse": "Aaren worse",
        "undecided": "open",
        "untested": "not tested",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """One model's numbers in a row."""

    mean: float
    deviation: float | None
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One row by one number."""

    key: RowKey
    metric: Metric
    aaren: Numbers | None
    transformer: Numbers | None
    differences: dict[int, float]  # by seed, in the metric's own direction: Aaren - Transformer
    margin: float | None
    published: dict[str, PublishedCell]  # by model; empty where ours is not the same number
    remark: str  # why there is nothing published beside it, or what it stands for

    @property
    def is_gap(self) -> bool:
        """Tell whether neither model was run."""
        return self.aaren is None and self.transformer is None

    @property
    def difference(self) -> Interval | None:
        """Return the mean difference with its interval."""
        return interval(list(self.differences.values())) if self.differences else None

    @property
    def outcome(self) -> Outcome:
        """Judge the difference."""
        if self.difference is None:
            return "untested"
        return judge(self.difference.scaled(self.metric.direction), self.margin)

    @property
    def judgement(self) -> str:
        """Return the outcome in words, or why there is none."""
        if self.difference is None:
            return "not run" if self.is_gap else "one model only"
        if self.outcome == "untested":
            return "one seed" if self.difference.low is None else "no margin"
        if self.outcome == "undecided" and self.margin is not None:
            needed = seeds_to_decide(list(self.differences.values()), self.margin)
            return f"open: {'over 1,000' if needed is None else f'about {needed:,}'} seeds"
        return OUTCOMES[self.outcome]

    @property
    def in_margins(self) -> dict[int, float]:
        """Return the advantage of each seed, divided by the margin; nothing without a margin."""
        if not self.margin:
            return {}
        scale = self.metric.direction / self.margin
        return {seed: scale * value for seed, value in self.differences.items()}

    @property
    def bold(self) -> tuple[bool, bool]:
        """Return whether Aaren and the Transformer are printed in bold."""
        if self.aaren is None or self.transformer is None:
            return False, False
        return which_are_bold(self.aaren, self.transformer, is_lower_better=self.metric.is_lower_better)

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
    references = baseline_levels(results, setting, number)
    comparisons = [compare(row, number, references.get(_data_of(row.key))) for row in rows]
    comparisons = [one for one in comparisons if not one.is_gap]
    if not variant and profile != "smoke":
        comparisons += _gaps(setting, profile, number, rows)
    return sorted(comparisons, key=lambda one: one.key.order)


def compare(row: Row, metric: Metric, baseline: float | None = None) -> Comparison:
    """Compare both models in a row.

    Args:
        row: The runs.
        metric: The number.
        baseline: The best mean of the baselines on the same data, for the margin of a log-likelihood.
    """
    ours, theirs = (row.values(model, metric.report) for model in PAIR)
    transformer = _numbers(theirs)
    cells, remark = find_published(row, metric)
    return Comparison(
        key=row.key,
        metric=metric,
        aaren=_numbers(ours),
        transformer=transformer,
        differences={seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())},
        margin=fixed_margin(
            metric.name,
            transformer=transformer.mean if transformer else None,
            baseline=baseline,
            facts=row.facts,
        ),
        published=cells,
        remark=remark,
    )


def fixed_margin(
    metric: str, *, transformer: float | None, baseline: float | None, facts: Mapping[str, object]
) -> float | None:
    """Return the margin of a number by its bare name; None where none was fixed.

    Args:
        metric: `mse`, `accuracy`, ...
        transformer: The Transformer's mean; None if it was not run.
        baseline: The best mean of the baselines.
        facts: Of a record of the row.

    >>> fixed_margin("mse", transformer=0.5, baseline=None, facts={})
    0.015
    >>> fixed_margin("accuracy", transformer=0.5, baseline=None, facts={"test_cases": 100})
    0.03
    >>> round(fixed_margin("nll", transformer=1.0, baseline=1.2, facts={}), 3)
    0.02
    """
    if transformer is None:
        return None
    if metric in _RELATIVE:
        return _RELATIVE[metric] * abs(transformer) or None
    if metric == "nll":
        gain = 0.0 if baseline is None else baseline - transformer
        return min(_MOST_NATS, _GAIN * gain) if gain > 0.0 else None
    if metric == "accuracy":
        counts = (facts.get(name) for name in _COUNTS)
        count = next((count for count in counts if isinstance(count, int) and count > 0), None)
        return _ACCURACY if count is None else max(_ACCURACY, _CASES / count)
    return _SCORE if metric == "score" else None


def baseline_levels(results: Results, setting: str, number: Metric) -> dict[tuple[object, ...], float]:
    """Return the best mean of a setting's baselines on each version of each dataset, at any profile."""
    levels: dict[tuple[object, ...], float] = {}
    for row in results.select(setting):
        for model in names_of(setting).baselines:
            values = list(row.values(model, number.report).values())
            if values:
                mean, place = math.fsum(values) / len(values), _data_of(row.key)
                levels[place] = min(mean, levels.get(place, mean))
    return levels


def first_comparisons(results: Results) -> list[Comparison]:
    """Return every row that the verdict counts: by its setting's first number, at the published variant.

    A dataset that was run at several profiles, on several versions of its files or in several groups counts
    once: see `_rank`. Smoke runs are left out unless there is nothing else.
    """
    pairs: list[Comparison] = []
    for setting in results.settings():
        for profile in results.profiles(setting):
            by_key: dict[RowKey, Comparison] = {}
            for number in results.metrics(setting):
                for one in compare_rows(results, setting, profile, "", number):
                    if one.differences and one.key.group != TUNED:
                        by_key.setdefault(one.key, one)
            pairs += by_key.values()
    serious = [one for one in pairs if one.key.profile != "smoke"] or pairs
    groups: dict[tuple[str, ...], list[Comparison]] = {}
    for one in serious:
        key = one.key
        groups.setdefault((key.setting, key.dataset, key.profile, key.data, key.group), []).append(one)
    chosen: dict[tuple[str, str], list[Comparison]] = {}
    for (setting, dataset, *_), rows in groups.items():
        best = chosen.setdefault((setting, dataset), rows)
        if _rank(rows) > _rank(best):
            chosen[setting, dataset] = rows
    return [one for rows in chosen.values() for one in rows]


def _rank(rows: list[Comparison]) -> tuple[int, int, bool]:
    """Prefer Adam with all new seeds, then Adam, then most pairs of runs, then the published profile."""
    key, pairs = rows[0].key, sum(len(one.differences) for one in rows)
    is_complete = all(one.differences.keys() >= set(NEW_SEEDS) for one in rows)
    ranks = {ADAM: 3 if is_complete else 0, EARLIER_ADAM: 2, RADAM: 1}
    return ranks.get(key.group, 0), pairs, key.profile == "paper"


def find_published(row: Row, metric: Metric) -> tuple[dict[str, PublishedCell], str]:
    """Return the published numbers that may stand beside those of a row, and what to say of them."""
    key, names = row.key, names_of(row.key.setting)
    cells = {
        model: cell
        for model in published.MODELS
        if (cell := published.lookup(key.setting, papers_name(key.dataset), key.horizon, metric.name, model))
    }
    if not row.runs:
        return cells, ""
    comparable: Json = row.facts.get("comparable")
    if isinstance(comparable, list) and metric.name not in comparable:
        return {}, str(row.facts.get("comparable_reason", ""))
    if is_stand_in(key.dataset) and names.stand_in_reason:
        return {}, names.stand_in_reason.format(papers_name(key.dataset))
    return cells, stand_in_note(key.setting, key.dataset) if cells else "not in the paper"


def which_are_bold(one: Numbers, other: Numbers, *, is_lower_better: bool) -> tuple[bool, bool]:
    """Apply the paper's rule: both are bold if mean ± standard deviation of one touches the other's.

    Otherwise the better one is; none where a standard deviation is unknown.

    >>> a, b = Numbers(mean=0.50, deviation=0.02, count=5), Numbers(mean=0.53, deviation=0.01, count=5)
    >>> which_are_bold(a, b, is_lower_better=True)
    (True, True)
    """
    if one.deviation is None or other.deviation is None:
        return False, False
    if abs(one.mean - other.mean) <= one.deviation + other.deviation + _ROUNDING:
        return True, True
    is_first = (one.mean < other.mean) == is_lower_better
    return is_first, not is_first


def by_dataset(comparisons: Iterable[Comparison]) -> dict[str, list[Comparison]]:
    """Return the rows of each dataset: its horizons."""
    groups: dict[str, list[Comparison]] = {}
    for one in comparisons:
        groups.setdefault(one.key.dataset, []).append(one)
    return groups


def _numbers(by_seed: Mapping[int, float]) -> Numbers | None:
    values = list(by_seed.values())
    if not values:
        return None
    return Numbers(mean=math.fsum(values) / len(values), deviation=deviation(values), count=len(values))


def _data_of(key: RowKey) -> tuple[object, ...]:
    return key.dataset, key.horizon, key.data, key.protocol


def _gaps(setting: str, profile: str, number: Metric, rows: list[Row]) -> list[Comparison]:
    """Return the rows of the paper's table that none of ours is about."""
    covered = {(papers_name(row.key.dataset), row.key.horizon) for row in rows}
    wanted = dict.fromkeys(
        (cell.dataset, cell.horizon)
        for cell in published.cells()
        if cell.setting == setting and cell.metric == number.name
    )
    keys = [
        RowKey(setting=setting, profile=profile, variant="", dataset=dataset, horizon=horizon, protocol=TODAY)
        for dataset, horizon in wanted
        if (dataset, horizon) not in covered
    ]
    return [compare(Row(key=key), number) for key in keys]
