"""Small classifiers, and waves that they can tell apart."""

from typing import Any

import numpy as np

from aaren.classification.estimator import AarenClassifier

SMALL: dict[str, Any] = {"size": "small", "random_state": 0, "threads": 1}


def small(**options: Any) -> AarenClassifier:
    return AarenClassifier(**{**SMALL, **options})


def waves(cases: int = 40, *, channels: int = 2, steps: int = 20, seed: int = 0) -> tuple[Any, Any]:
    """Slow and fast waves around 50, (cases, channels, steps), and their names."""
    random = np.random.default_rng(seed)
    speed = np.where(np.arange(cases) % 2, 1.0, 0.3)[:, None, None]
    start = random.uniform(0.0, 6.0, (cases, channels, 1))
    names = np.where(np.arange(cases) % 2, "fast", "slow")
    return 50.0 + 9.0 * np.sin(speed * np.arange(steps) + start), names


def ragged(cases: int = 40, *, seed: int = 0) -> tuple[list[Any], Any]:
    panel, names = waves(cases, seed=seed)
    return [case[:, : 12 + place % 9] for place, case in enumerate(panel)], names
