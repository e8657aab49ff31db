"""Is Aaren as good as a Transformer? One pooled estimate per setting, and four plain lines."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from aaren.datasets.catalogue import DATASETS
from aaren.lab.comparison import OUTCOMES, Comparison, by_dataset, first_comparisons
from aaren.lab.names import CATALOGUE, GAP, MINUS, is_stand_in, names_of, papers_name
from aaren.lab.rows import Results
from aaren.lab.statistics import Interval, Outcome, Pooled, judge, pool
from aaren.lab.tables import Table, is_beaten, model_means

_WITHIN: tuple[Outcome, ...] = ("equivalent", "better_within", "worse_within")


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingPool:
    """All rows of a setting that the verdict counts, and the estimate over its datasets, in margins."""

    setting: str
    comparisons: list[Comparison]
    pooled: Pooled | None  # of fewer than two datasets there is none

    @property
    def outcome(self) -> Outcome:
        """Judge the pooled estimate; it is in margins, so its margin is 1."""
        return "untested" if self.pooled is None else judge(self.pooled.interval, 1.0)

    @property
    def is_prediction_within(self) -> bool:
        """Tell whether a new dataset is expected to be within the margin, too."""
        prediction = None if self.pooled is None else self.pooled.prediction
        return prediction is not None and judge(prediction, 1.0) in _WITHIN


def pool_settings(comparisons: Sequence[Comparison]) -> list[SettingPool]:
    """Pool the rows of every setting that have a margin."""
    pools = []
    usable = [one for one in comparisons if one.in_margins]
    for setting in dict.fromkeys(one.key.setting for one in usable):
        rows = [one for one in usable if one.key.setting == setting]
        rows = [one for one in rows if one.metric == rows[0].metric]  # a number never joins another one
        datasets = [[list(one.in_margins.values()) for one in group] for group in by_dataset(rows).values()]
        pools.append(SettingPool(setting=setting, comparisons=rows, pooled=pool(datasets)))
    return pools


def pooled_table(pools: Sequence[SettingPool]) -> Table:
    """Show the pooled estimates with both intervals, in margins."""
    frame = pd.DataFrame(
        {
            "setting": names_of(one.setting).title,
            "number": one.comparisons[0].metric.label,
            "datasets": str(len(by_dataset(one.comparisons))),
            "pairs of runs": str(sum(len(row.differences) for row in one.comparisons)),
            "mean, in margins [90 %]": show_margins(one.pooled.interval) if one.pooled else GAP,
            "a new dataset [90 %]": _ends(one.pooled.prediction if one.pooled else None),
            "judgement": OUTCOMES[one.outcome],
        }
        for one in pools
    )
    return Table(title="", frame=frame)


def show_margins(one: Interval) -> str:
    """Write an advantage in margins with its interval.

    >>> show_margins(Interval(mean=0.5, low=-0.25, high=1.25, count=3))
    '+0.50 [\u22120.25, +1.25]'
    """
    return f"{one.mean:+.2f} {_ends(one)}".replace("-", MINUS)


def _ends(one: Interval | None) -> str:
    if one is None or one.low is None or one.high is None:
        return GAP
    return f"[{one.low:+.2f}, {one.high:+.2f}]".replace("-", MINUS)


def verdict(results: Results) -> list[str]:
    """Return the verdict in four lines; every sentence has at most one number."""
    comparisons = first_comparisons(results)
    if not comparisons:
        return ["No row has both models yet."]
    pools = pool_settings(comparisons)
    return [_pooled_line(pools), _prediction_line(pools), _count_line(comparisons), _scope_line(comparisons)]


def _pooled_line(pools: Sequence[SettingPool]) -> str:
    """Name the settings by what their pooled estimates say."""
    settings: dict[str, list[str]] = {}
    for one in pools:
        words = OUTCOMES[one.outcome].removeprefix("Aaren ")
        settings.setdefault(words, []).append(names_of(one.setting).short_title)
    parts = [f"{words} in {_joined(names)}" for words, names in settings.items()]
    return f"Pooled over datasets: {'; '.join(parts) or 'nothing to pool'}."


def _prediction_line(pools: Sequence[SettingPool]) -> str:
    """Say for which settings the same may be expected of a new dataset."""
    interval = "The prediction interval for a dataset that was not run"
    within = [names_of(one.setting).short_title for one in pools if one.is_prediction_within]
    beyond = [
        names_of(one.setting).short_title for one in pools if one.pooled and not one.is_prediction_within
    ]
    parts = []
    if within:
        parts.append(f"{interval} lies inside the margin in {_joined(within)}.")
    if beyond:
        parts.append(f"{'It' if within else interval} reaches beyond the margin in {_joined(beyond)}.")
    return " ".join(parts) or "Too few datasets to predict another."


def _count_line(comparisons: Sequence[Comparison]) -> str:
    counts = Counter(one.outcome for one in comparisons)
    within = sum(counts[outcome] for outcome in _WITHIN)
    lines = [
        f"Row by row there are {len(comparisons)} comparisons",
        f"{within} {_is(within)} inside the margin",
        f"Aaren is better in {counts['better']}",
        f"it is worse in {counts['worse']}",
        f"{counts['undecided']} {_is(counts['undecided'])} open",
    ]
    if counts["untested"]:
        lines.append(f"{counts['untested']} cannot be tested: one seed or no margin")
    return " ".join(f"{line[0].upper()}{line[1:]}." for line in lines)


def _scope_line(comparisons: Sequence[Comparison]) -> str:
    """Say at what size models were run, and which data was a stand-in, generated or not there."""
    names = {one.key.dataset: one.key.setting for one in comparisons}
    run = {papers_name(name) for name in names if not is_stand_in(name)}
    stand_ins = {name: papers_name(name) for name in names if is_stand_in(name)}
    remade = [setting for setting in set(names.values()) if not set(_of(names, setting)) - stand_ins.keys()]
    stood_for = [f"all of {names_of(setting).short_title}" for setting in remade]
    stood_for += [paper for name, paper in stand_ins.items() if names[name] not in remade]
    generated = [name for name in names if name in CATALOGUE and CATALOGUE[name].is_generated]
    absent = [row.name for row in DATASETS if row.name not in run | set(stand_ins.values())]
    smaller = sum(one.key.profile != "paper" for one in comparisons)
    sentences = [
        f"{smaller} comparisons are of models smaller than the published ones." if smaller else "",
        f"Parts or remakes stand in for {len(stand_ins)} datasets: {_joined(stood_for)}."
        if stand_ins
        else "",
        f"Made by our own generators: {_joined(generated)}." if generated else "",
        f"{len(absent)} of the paper's datasets were not run: {_joined(absent)}." if absent else "",
    ]
    return " ".join(filter(None, sentences)) or "All datasets were run at the published size."


def _of(names: Mapping[str, str], setting: str) -> list[str]:
    return [name for name, other in names.items() if other == setting]


def reference_line(results: Results) -> str:
    """Say how often something simpler is ahead of both models."""
    rows = [
        (row, number)
        for setting in results.settings()
        for number in results.metrics(setting)[:1]
        for row in results.select(setting, variant="")
        if row.key.profile != "smoke"
    ]
    ahead = sum(is_beaten(model_means(row, number), number) for row, number in rows)
    return f"Simple references are ahead of both models in {ahead} rows."


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
