"""What an evaluation is summed up as: returns, D4RL's normalised score, failures. Plays nothing itself."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aaren.data.rl.reference_scores import REFERENCE_RETURNS, normalised_score
from aaren.tasks.rl_arena import Outcome


def has_score(environment: str) -> bool:
    """Tell whether D4RL says what random and expert collect there.

    >>> has_score("Hopper-v4"), has_score("Pendulum-v1")
    (True, False)
    """
    return environment.lower().partition("-")[0] in REFERENCE_RETURNS


def score(environment: str, total: float) -> float:
    """Return the normalised score of a return; NaN where D4RL has no reference."""
    return normalised_score(environment, total) if has_score(environment) else float("nan")


def sum_up(environment: str, outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the means over whole episodes, how many failed, and every episode's return.

    >>> found = sum_up("Hopper-v4", [Outcome(1607.0, 500), Outcome(0.0, 3, "step 3: it fell apart")])
    >>> round(found["score"], 2), found["length"], found["failed"], found["return_0"]
    (50.0, 500.0, 1.0, 1607.0)
    """
    whole = [outcome for outcome in outcomes if outcome.is_whole]
    returns = np.array([outcome.total for outcome in whole])
    found = spread(environment, returns)
    found["length"] = float(np.mean([outcome.steps for outcome in whole])) if whole else float("nan")
    found["failed"] = float(len(outcomes) - len(whole))
    for number, outcome in enumerate(outcomes):
        found[f"return_{number}"] = outcome.total if outcome.is_whole else float("nan")
    return found


def spread(environment: str, returns: NDArray[np.float64]) -> dict[str, float]:
    """Return mean and sample deviation of returns, and of their scores."""
    mean = float(returns.mean()) if len(returns) else float("nan")
    deviation = float(returns.std(ddof=1)) if len(returns) > 1 else float("nan")
    unit = score(environment, 1.0) - score(environment, 0.0)  # of the score, for one unit of return
    return {
        "score": score(environment, mean),
        "score_std": deviation * unit,
        "return": mean,
        "return_std": deviation,
    }
