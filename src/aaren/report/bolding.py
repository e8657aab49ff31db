"""The paper's rule for bold type, applied to any pair and checked against the published tables.

Two results whose intervals mean ± deviation touch are both bold; otherwise the better one is.
"""

from dataclasses import dataclass
from types import MappingProxyType

from aaren.lab import published
from aaren.lab.published import PublishedCell
from aaren.report.comparison import margin_of
from aaren.report.names import metric
from aaren.report.statistics import ONE_SIDED_LEVEL, Summary, welch_equivalence_p

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
