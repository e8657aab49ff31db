"""The margins of equivalence between two models, fixed before the runs that are judged by them.

They do not depend on results, except for the level of an error that is judged in percent.
"""

from collections.abc import Mapping
from types import MappingProxyType

# In percent of the Transformer's mean.
RELATIVE = MappingProxyType({"mse": 0.03, "mae": 0.02})
# In the number's own unit: an accuracy is a fraction, a log-likelihood in nats, a score in points.
ABSOLUTE = MappingProxyType({"accuracy": 0.01, "nll": 0.05, "score": 5.0})
CASES = 3  # an accuracy on few test cases: at least so many of them
_COUNTS = ("test_cases", "test_events")  # facts of a record that tell how many cases an accuracy is of

WORDS = (
    "3 % of the Transformer's MSE, 2 % of its MAE, 1 point of accuracy or 3 test cases if that is more, "
    "0.05 nats of log-likelihood, 5 points of score"
)


def fixed_margin(metric: str, *, transformer: float | None, facts: Mapping[str, object]) -> float | None:
    """Return the margin of a number by its bare name; None where none was fixed.

    Args:
        metric: `mse`, `accuracy`, ...
        transformer: The Transformer's mean; None if it was not run.
        facts: Of a record of the row.

    >>> fixed_margin("mse", transformer=0.5, facts={}), fixed_margin("rmse", transformer=0.5, facts={})
    (0.015, None)
    >>> fixed_margin("accuracy", transformer=0.5, facts={"test_cases": 100})
    0.03
    """
    if metric in RELATIVE:
        return RELATIVE[metric] * abs(transformer) if transformer else None
    margin = ABSOLUTE.get(metric)
    if metric == "accuracy" and margin is not None:
        counts = (facts.get(name) for name in _COUNTS)
        count = next((count for count in counts if isinstance(count, int) and count > 0), None)
        return margin if count is None else max(margin, CASES / count)
    return margin
