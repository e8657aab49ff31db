"""The linear base in closed form: ridge on the lags of a series, fitted and chosen without a single epoch.

Features are the lags minus the last value, and 1; targets are the horizon minus the last value, so that a
level that drifts needs no window to be divided by. Sums over *all* windows come from a recursion along
diagonals, which costs the square of a window's length and not the number of windows. What is fitted (nothing:
the last value or the last season; one set of weights for all series, or one per series drawn to the shared
one, all columns as inputs) and which profile of the calendar is taken away first is chosen by the mean
log error over three rolling origins: one held-out part alone chooses wrongly on series that wander.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

LAG_STEPS = 336  # fixed beforehand: a look-back chosen by validation prefers 96 rows and loses
JOINT_STEPS = 168  # lags of every column where all columns are inputs of each
JOINT_SERIES = 6  # columns, at most, for that: its cost grows with their square
JOINT_MARGIN = 0.01  # of the error that all columns as inputs must save, at every origin
SHARED_RIDGE, BIAS_RIDGE = 1e-2, 1e-6  # relative to the mean square of the features
DRAWN = {"series": 1.0, "series-0.1": 0.1}  # how strongly each is drawn to the shared weights
JOINT = {"joint": 1.0, "joint-0.1": 0.1, "joint-0.01": 0.01}  # ridge of what all columns add


class Moments(NamedTuple):
    """Sums over all windows of each series; with them every error of a linear model is exact."""

    features: Numbers  # (s, p, p)
    cross: Numbers  # (s, p, h)
    targets: Numbers  # (s, h)
    num_windows: Numbers  # (s,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What the rolling origins chose, and what everything cost there."""

    profile: str
    weights: str
    scores: Mapping[tuple[str, str], float]  # geometric mean of the squared error over the origins

    @property
    def score(self) -> float:
        """Return the error of what was chosen; infinite if nothing could be judged."""
        return self.scores.get((self.profile, self.weights), float("inf"))

    @property
    def is_fixed(self) -> bool:
        """Tell whether nothing is fitted."""
        return is_fixed(self.weights)


def window_moments(
    series: Sequence[Numbers], lag_steps: int, horizon_steps: int, *, is_relative: bool = True
) -> Moments:
    """Sum over all windows of every series; one that is too short for a window adds nothing.

    G[i+1, j+1] = G[i, j] - (the product that leaves) + (the product that comes).

    Args:
        series: (rows,) each.
        lag_steps: p.
        horizon_steps: h.
        is_relative: to the last value, which is then no feature; otherwise there are p + 1 features.
    """
    p, h = lag_steps, horizon_steps
    length, size = p + h, len(series)
    f = p if is_relative else p + 1
    features, cross, targets = np.zeros((size, f, f)), np.zeros((size, f, h)), np.zeros((size, h))
    count = np.zeros(size)
    inputs, outputs = np.r_[0 : f - 1, length], np.r_[p:length]
    shifted = np.r_[0 : p - 1, p:length]
    for place, values in enumerate(series):
        n = len(values) - length + 1
        if n < 1:
            continue
        gram = np.zeros((length + 1, length + 1))
        gram[0, :length] = np.lib.stride_tricks.sliding_window_view(values, n) @ values[:n]
        for i in range(length - 1):
            gram[i + 1, i + 1 : length] = (
                gram[i, i : length - 1]
                - values[i] * values[i : length - 1]
                + values[n + i] * values[n + i : n + length - 1]
            )
        sums = np.concatenate([[0.0], np.cumsum(values)])
        gram[:length, length] = sums[n : n + length] - sums[:length]
        gram[length, length] = n
        gram = np.triu(gram) + np.triu(gram, 1).T
        if is_relative:
            gram[shifted] -= gram[p - 1]
            gram[:, shifted] -= gram[:, p - 1 : p]
        features[place], cross[place] = gram[np.ix_(inputs, inputs)], gram[np.ix_(inputs, outputs)]
        targets[place], count[place] = gram[outputs, outputs], n
    return Moments(features, cross, targets, count)


def squared_error(weights: Numbers, moments: Moments) -> float:
    """Return the mean squared error of weights (s or 1, p, h) over all windows, steps and series, exactly."""
    total = moments.targets.sum()
    for place in range(len(moments.features)):
        chosen = weights[place % len(weights)]
        total += (chosen * (moments.features[place] @ chosen - 2.0 * moments.cross[place])).sum()
    return float(max(total, 0.0) / max(moments.num_windows.sum() * moments.targets.shape[1], 1.0))


def fit_shared(moments: Moments, ridge: float = SHARED_RIDGE) -> Numbers:
    """Return one set of weights for all series, (1, p, h)."""
    gram = moments.features.sum(0)
    return np.linalg.solve(gram + _penalty(gram, ridge, BIAS_RIDGE), moments.cross.sum(0))[None]


def repeat_season(season: int, lag_steps: int, horizon_steps: int) -> Numbers:
    """Return the weights, (1, p, h), that repeat the last season of so many rows.

    >>> repeat_season(2, 3, 3)[0].T  # of lags -2 and -1 minus the last one, and of 1
    array([[0., 1., 0.],
           [0., 0., 0.],
           [0., 1., 0.]])
    """
    weights = np.zeros((1, lag_steps, horizon_steps))
    for step in range(horizon_steps):
        back = season - 1 - step % season
        if back:  # otherwise it is the last value
            weights[0, lag_steps - 1 - back, step] = 1.0
    return weights


def is_fixed(name: str) -> bool:
    """Tell whether weights of this name are fitted to nothing.

    >>> is_fixed("season-24"), is_fixed("season-24+joint")
    (True, False)
    """
    return name == "last" or (name.startswith("season-") and "+" not in name)


def fit_weights(moments: Moments, name: str) -> Numbers:
    """Return the named weights, (s or 1, p, h).

    Args:
        moments: of each series.
        name: one of `weight_names`.
    """
    if name == "last":
        return np.zeros((1, *moments.cross.shape[1:]))
    if is_fixed(name):
        return repeat_season(int(name.removeprefix("season-")), *moments.cross.shape[1:])
    shared = fit_shared(moments)
    if name == "shared":
        return shared
    errors = moments.cross - moments.features @ shared
    return shared + _drawn(moments.features, errors, name)


def _drawn(features: Numbers, cross: Numbers, name: str) -> Numbers:
    """Solve for each series by itself, drawn to 0; (s, p, h)."""
    strength = DRAWN[name]
    return np.stack(
        [
            np.linalg.solve(gram + _penalty(gram, strength, strength), target)
            for gram, target in zip(features, cross, strict=True)
        ]
    )


def weight_names(num_series: int, seasons: Sequence[int] = ()) -> tuple[str, ...]:
    """Return what can be fitted to so many series, the simplest first."""
    drawn = list(DRAWN) if num_series > 1 else []
    repeated = (f"season-{season}" for season in seasons)
    return ("last", *repeated, "shared", *drawn)


def joint_features(values: Numbers, lag_steps: int, origins: NDArray[np.int64]) -> Numbers:
    """Return lags minus last of all columns before each origin, (n, s * (lags - 1)), column by column."""
    lags = values[origins[:, None] + np.arange(-lag_steps + 1, 1)]  # (n, lags, s)
    flat: Numbers = (lags[:, :-1] - lags[:, -1:]).transpose(0, 2, 1).reshape(len(origins), -1)
    return flat


def fit_joint(values: Numbers, weights: Numbers, joint_steps: int) -> dict[str, Numbers]:
    """Fit what the lags of all columns say about the errors of each column's own base, at each strength.

    Args:
        values: (rows, s).
        weights: of the base, (s or 1, p, h).
        joint_steps: lags of every column.

    Returns:
        By name (s * (joint_steps - 1), s * h).
    """
    size, outputs = values.shape[1] * (joint_steps - 1), values.shape[1] * weights.shape[2]
    gram, cross = np.zeros((size, size)), np.zeros((size, outputs))
    for origins in _origins(len(values), weights):
        features = joint_features(values, joint_steps, origins)
        gram += features.T @ features
        cross += features.T @ _base_errors(values, weights, origins)
    scale = np.diag(gram).mean() + 1e-9
    return {
        name: np.linalg.solve(gram + strength * scale * np.eye(size), cross)
        for name, strength in JOINT.items()
    }


def joint_error(values: Numbers, weights: Numbers, joint: Numbers, joint_steps: int) -> float:
    """Return the mean squared error of base and joint weights over all windows of these rows."""
    total, count = 0.0, 0
    for origins in _origins(len(values), weights):
        errors = _base_errors(values, weights, origins) - joint_features(values, joint_steps, origins) @ joint
        total, count = total + float((errors**2).sum()), count + errors.size
    return total / max(count, 1)


def _origins(rows: int, weights: Numbers, chunk: int = 2048) -> Iterator[NDArray[np.int64]]:
    """Walk through the last rows of all pasts, some at a time."""
    stop = rows - weights.shape[2]
    for first in range(weights.shape[1] - 1, stop, chunk):
        yield np.arange(first, min(first + chunk, stop))


def _base_errors(values: Numbers, weights: Numbers, origins: NDArray[np.int64]) -> Numbers:
    """Return truth minus the base's forecasts, (n, s * h)."""
    lag_steps, horizon_steps = weights.shape[1:]
    parts = []
    for place in range(values.shape[1]):
        column = values[:, place]
        lags, last = column[origins[:, None] + np.arange(-lag_steps + 1, 0)], column[origins][:, None]
        chosen = weights[place % len(weights)]
        future = column[origins[:, None] + np.arange(1, horizon_steps + 1)]
        parts.append(future - last - (lags - last) @ chosen[:-1] - chosen[-1])
    return np.concatenate(parts, axis=1)


def mean_profile(series: Sequence[Numbers], slots: Sequence[NDArray[np.int64]], num_slots: int) -> Numbers:
    """Return the mean of each slot of the calendar, (slots, s); an empty slot has its series' mean."""
    found = np.zeros((num_slots, len(series)))
    for place, (values, some) in enumerate(zip(series, slots, strict=True)):
        counts = np.bincount(some, minlength=num_slots)
        sums = np.bincount(some, weights=values, minlength=num_slots)
        found[:, place] = np.where(
            counts > 0, sums / np.maximum(counts, 1), values.mean() if len(values) else 0
        )
    return found


def choose(
    series: Sequence[Numbers],
    slots: Mapping[str, Sequence[NDArray[np.int64]]],
    cuts: Sequence[Sequence[int]],
    *,
    lag_steps: int,
    horizon_steps: int,
    can_join: bool = False,
    seasons: Sequence[int] = (),
) -> Choice:
    """Fit before each origin, judge until the next: the smallest mean log error; ties go to the simpler.

    Args:
        series: standardised, (rows,) each.
        slots: of each profile that may be taken away, by its name, the slot of every row; "none" is one.
        cuts: of each origin where the parts of every series end; the last is the end of the last judged part.
        lag_steps: of the past.
        horizon_steps: of the future.
        can_join: rows of all series belong together, so that all may be inputs of each.
        seasons: rows of those that may be repeated; longer ones than the past cannot be.
    """
    names = weight_names(len(series), [season for season in seasons if season <= lag_steps])
    scores: dict[tuple[str, str], list[float]] = {}
    unfitted: dict[int, float] = {}  # by origin the least error of what needs no fit, where others cannot be
    for kind, some in slots.items():  # "none" first
        num_slots = 1 + max(int(places.max(initial=0)) for places in some)
        for origin, (ends, nexts) in enumerate(itertools.pairwise(cuts)):
            rest = _without(series, some, num_slots, ends if kind != "none" else None)
            known = [values[:end] for values, end in zip(rest, ends, strict=True)]
            ahead = [
                values[max(0, end - lag_steps) : stop]
                for values, end, stop in zip(rest, ends, nexts, strict=True)
            ]
            judge = window_moments(ahead, lag_steps, horizon_steps)
            moments = window_moments(known, lag_steps, horizon_steps)
            if not judge.num_windows.sum():
                continue
            for name in names:
                if kind != "none" and is_fixed(name):
                    continue
                error = unfitted.get(origin, np.inf)  # of the best that needs no fit: scores stay comparable
                if is_fixed(name) or moments.num_windows.sum():
                    error = np.log(squared_error(fit_weights(moments, name), judge) + 1e-12)
                if is_fixed(name):
                    unfitted[origin] = min(error, unfitted.get(origin, np.inf))
                scores.setdefault((kind, name), []).append(error)
    if not scores:
        return Choice(profile="none", weights="last", scores={})
    best = min(scores, key=lambda key: float(np.mean(scores[key])))
    if can_join and 1 < len(series) <= JOINT_SERIES:
        alone, (kind, name), is_fitted = scores[best], best, []
        joints: dict[str, list[float]] = {joined: [] for joined in JOINT}
        num_slots = 1 + max(int(places.max(initial=0)) for places in slots[kind])
        for ends, nexts in itertools.pairwise(cuts):
            rest = _without(series, slots[kind], num_slots, ends if kind != "none" else None)
            values = np.stack(rest, axis=1)
            moments = window_moments([some[: ends[0]] for some in rest], lag_steps, horizon_steps)
            begin = max(0, ends[0] - lag_steps)
            if nexts[0] - begin < lag_steps + horizon_steps:
                continue
            is_fitted.append(bool(moments.num_windows.sum()))
            if not is_fitted[-1]:
                for found in joints.values():
                    found.append(alone[len(found)])
                continue
            weights = fit_weights(moments, name)
            steps = min(JOINT_STEPS, lag_steps)
            for joined, joint in fit_joint(values[: ends[0]], weights, steps).items():
                error = joint_error(values[begin : nexts[0]], weights, joint, steps)
                joints[joined].append(np.log(error + 1e-12))
        for joined, found in joints.items():
            if any(is_fitted) and np.subtract(alone, found)[is_fitted].min() > JOINT_MARGIN:
                scores[kind, f"{name}+{joined}"] = found
        best = min(scores, key=lambda key: float(np.mean(scores[key])))
    return Choice(
        profile=best[0],
        weights=best[1],
        scores={key: float(np.exp(np.mean(found))) for key, found in scores.items()},
    )


def _without(
    series: Sequence[Numbers],
    slots: Sequence[NDArray[np.int64]],
    num_slots: int,
    ends: Sequence[int] | None,
) -> Sequence[Numbers]:
    """Take away the profile of the rows before the ends; None: there is none."""
    if ends is None:
        return series
    profile = mean_profile(
        [values[:end] for values, end in zip(series, ends, strict=True)],
        [some[:end] for some, end in zip(slots, ends, strict=True)],
        num_slots,
    )
    return [
        values - profile[some, place] for place, (values, some) in enumerate(zip(series, slots, strict=True))
    ]


def _penalty(gram: Numbers, ridge: float, bias: float) -> Numbers:
    """Return a diagonal: relative to the mean square of the features; the last one is the 1."""
    diagonal = np.diag(gram)
    scale = diagonal[:-1].mean() if len(diagonal) > 1 else 0.0
    found = np.full(len(gram), ridge * scale + 1e-9)
    found[-1] = bias * diagonal[-1] + 1e-9
    return np.diag(found)
