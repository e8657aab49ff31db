"""One number per table: how much better or worse Aaren is than the Transformer, over all rows and seeds."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from aaren.report.comparison import Comparison
from aaren.report.names import Metric
from aaren.report.statistics import Interval, Outcome, interval

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
