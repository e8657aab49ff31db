"""Policies compared episode by episode: a bootstrap over seeds and, within each, over fresh episodes.

A policy's return differs from episode to episode at least as much as from seed to seed, so a t interval over
a few seeds leaves most of what is known unused.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from aaren.data.rl.reference_scores import REFERENCE_RETURNS, normalised_score
from aaren.report.gathered import Gathered
from aaren.report.macro import show_interval
from aaren.report.names import metric
from aaren.report.rows import Row
from aaren.report.statistics import ONE_SIDED_LEVEL, Interval
from aaren.report.table import Cell, Column, Table

DRAWS = 2_000
_PREFIX = "return_"
_OTHERS = {"transformer": "Transformer", "bc": "cloning, same network without returns"}


def episodes_table(gathered: Gathered, profile: str) -> Table | None:
    """Show Aaren's lead over the Transformer and over behaviour cloning, with bootstrap intervals."""
    number = metric("test.score")
    table = Table(
        name=f"rl-{profile}-episodes",
        title="Score of fresh episodes, bootstrap over seeds and episodes",
        columns=[
            Column(label="dataset", kind="text"),
            Column(label="changed", kind="text"),
            Column(label="seeds"),
            Column(label="episodes"),
            *(Column(label=f"Aaren \u2212 {name} [90 %]") for name in _OTHERS.values()),
        ],
        notes=[
            "With one seed the interval knows nothing of how much seeds differ: it is of these weights alone."
        ],
    )
    for row in gathered.select("rl", profile):
        scores = {model: episode_scores(row, model) for model in ("aaren", *_OTHERS)}
        found = {other: difference(scores["aaren"], scores[other]) for other in _OTHERS}
        if not any(found.values()):
            continue
        episodes = [score for by_seed in scores["aaren"].values() for score in by_seed]
        table.add(
            Cell.of(row.place.name),
            Cell.of(row.place.variant),
            Cell.of(len(scores["aaren"])),
            Cell.of(len(episodes)),
            *(
                Cell(
                    text="\u2013" if one is None else show_interval(one, number),
                    key=None if one is None else one.mean,
                )
                for one in found.values()
            ),
        )
    return table if table.rows else None


def episode_scores(row: Row, model: str) -> dict[int, NDArray[np.float64]]:
    """Return the normalised scores of a model's fresh episodes by seed; failed episodes have none."""
    environment = str(row.facts.get("environment", ""))
    if environment.lower().partition("-")[0] not in REFERENCE_RETURNS:
        return {}
    found = {}
    for seed, run in sorted(row.runs.get(model, {}).items()):
        returns = _returns(run.record.metrics.get("test", {}))
        if returns:
            found[seed] = np.array([normalised_score(environment, total) for total in returns])
    return found


def difference(
    ours: Mapping[int, NDArray[np.float64]], theirs: Mapping[int, NDArray[np.float64]]
) -> Interval | None:
    """Return the mean lead over common seeds with its percentile interval; equal input, equal answer.

    >>> scores = {0: np.array([50.0, 52.0]), 1: np.array([51.0, 49.0])}
    >>> lead = difference(scores, {seed: values - 10.0 for seed, values in scores.items()})
    >>> lead.mean, lead.low < 10.0 < lead.high
    (10.0, True)
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    rng = np.random.default_rng(0)
    chosen = rng.integers(len(seeds), size=(DRAWS, len(seeds)))
    leads = np.empty(chosen.shape)
    for index, seed in enumerate(seeds):
        places = chosen == index  # a seed that is drawn twice has other episodes the second time
        count = int(places.sum())
        leads[places] = _resampled(ours[seed], count, rng) - _resampled(theirs[seed], count, rng)
    low, high = np.quantile(leads.mean(axis=1), [ONE_SIDED_LEVEL, 1.0 - ONE_SIDED_LEVEL])
    mean = float(np.mean([ours[seed].mean() - theirs[seed].mean() for seed in seeds]))
    return Interval(mean=mean, low=float(low), high=float(high), count=len(seeds))


def _resampled(scores: NDArray[np.float64], draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the means of so many draws of as many episodes."""
    means: NDArray[np.float64] = scores[rng.integers(len(scores), size=(draws, len(scores)))].mean(axis=1)
    return means


def _returns(metrics: Mapping[str, float | None]) -> Sequence[float]:
    return [
        float(value)
        for name, value in metrics.items()
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX).isdigit() and value is not None
    ]
