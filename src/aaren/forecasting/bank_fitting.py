"""Fit the bank: run every candidate through a series, weigh them, and keep those that carry weight."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aaren.forecasting.autoregressions import (
    DIRECT_ROWS,
    LinearMap,
    Regression,
    direct_lags,
    fit_direct,
    fit_recursive,
    make_plans,
    repeat_season,
)
from aaren.forecasting.combination import (
    Candidate,
    Combination,
    Intervals,
    Space,
    combine,
    measure_intervals,
)
from aaren.forecasting.smoothing_bank import Grid, Smoothed, best_of_family, judge_members, make_grid, smooth

Numbers = NDArray[np.float64]

MOST_ROWS = 2000  # of a series, the latest: the bank is fitted to
MOST_ORIGINS = 48
FEWEST_ROWS = 4
FALLBACK_ROWS = 8  # below, only levels are smoothed, with equal weights
LEAST_SEASONS = 2  # and two rows, from which a season is looked for
MOST_FORECASTS = 40_000_000  # numbers held at once, by which series are taken together
WIDEST_LOG = 1e4  # ratio of the largest to the smallest value, up to which logarithms are tried
COVARIATE_RIDGE = 1e-3
LEAST_WEEKS = 4
EARLY = "covariates, early"  # the series without the effect that was known at the first origin
LAST_SEASON = "last season"


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Smoothers:
    """Smoothers of one series in one space that carry weight, and where they stand; (members,) each."""

    constants: Numbers  # (4, members): alpha, beta, gamma, phi
    weights: Numbers
    level: Numbers
    slope: Numbers
    season: Numbers  # (members, season), the next row's first
    spread: Numbers
    jumped: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class SpaceFit:
    """What carries weight in one space of one series."""

    weight: float
    regression: LinearMap | None  # their weighted sum, in units of the space's own weights
    smoothers: Smoothers | None


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class SeriesFit:
    """A fitted series."""

    values: Numbers  # the rows fitted to
    season: int
    spaces: dict[str, SpaceFit]
    effect: Numbers | None  # (covariates,) of the space "covariates"
    intervals: Intervals
    log_floor: float
    weights: dict[str, float]  # by the candidates' names
    scores: dict[str, float]


def choose_origins(rows: int, season: int) -> NDArray[np.int64]:
    """Return the counts of rows known at which forecasts are judged; the last is all.

    >>> choose_origins(10, 1)
    array([ 8,  9, 10])
    """
    first = max(min(2 * season + 2, rows - 2), min(8, rows - 2), int(0.3 * rows))
    first = min(first, rows - 2)
    spaced = np.linspace(first, rows - 1, min(MOST_ORIGINS, rows - first)).astype(np.int64)
    return np.unique(np.append(spaced, rows))


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Setup:
    """What is the same for series of equal length."""

    horizon: int
    season: int
    week: int
    origins: NDArray[np.int64]
    grid: Grid


def fit_bank(
    series: Sequence[Numbers], *, horizon: int, season: int, week: int = 0, covariates: Sequence[Numbers] = ()
) -> list[SeriesFit]:
    """Fit every series; those of equal length run side by side.

    Args:
        series: (rows,) each, at least `FEWEST_ROWS`.
        horizon: rows to forecast.
        season: rows of a season; 1: there is none.
        week: rows of a week where the season is a day; 0: there is none.
        covariates: (rows, k) of each series; none: there are none.
    """
    latest = [values[-MOST_ROWS:] for values in series]
    known = [given[-MOST_ROWS:] for given in covariates]
    fits: dict[int, SeriesFit] = {}
    for rows in sorted({len(values) for values in latest}):
        places = [place for place, values in enumerate(latest) if len(values) == rows]
        own_season = season if rows >= LEAST_SEASONS * season + 2 else 1
        setup = Setup(
            horizon=horizon,
            season=own_season,
            week=week if week and own_season > 1 and rows >= LEAST_WEEKS * week else 0,
            origins=choose_origins(rows, own_season),
            grid=make_grid(own_season),
        )
        numbers = 2 * len(setup.origins) * horizon * len(setup.grid.alpha)
        together = max(1, MOST_FORECASTS // numbers)
        for first in range(0, len(places), together):
            part = places[first : first + together]
            given = [known[place] for place in part] if known else None
            found = _fit_equal([latest[place] for place in part], given, setup)
            fits |= dict(zip(part, found, strict=True))
    return [fits[place] for place in range(len(latest))]


def _fit_equal(
    series: Sequence[Numbers], covariates: Sequence[Numbers] | None, setup: Setup
) -> list[SeriesFit]:
    """Fit series of equal length: all smoothers of all spaces at once, the rest one by one."""
    prepared = [
        _prepare(values, None if covariates is None else covariates[place], setup)
        for place, values in enumerate(series)
    ]
    stacked = np.stack([values for one in prepared for values in one.rows.values()])
    smoothed = smooth(stacked, setup.grid, setup.season, setup.horizon, setup.origins)
    criterion = judge_members(smoothed, stacked, setup.origins)
    fits, row = [], 0
    for values, one in zip(series, prepared, strict=True):
        places = {name: row + place for place, name in enumerate(one.rows)}
        row += len(places)
        fits.append(_fit_one(values, one, places, smoothed, criterion, setup))
    return fits


class Prepared(NamedTuple):
    """A series in every space."""

    spaces: dict[str, Space]
    rows: dict[str, Numbers]  # what smoothers run through: of each space, and `EARLY`
    effect: Numbers | None  # (covariates,)


def _prepare(values: Numbers, covariates: Numbers | None, setup: Setup) -> Prepared:
    """Transform a series; the effect of covariates before the last origin is that of the first rows."""
    spaces = {"raw": Space(values, False, None)}
    is_long = len(values) >= FALLBACK_ROWS
    if is_long and values.min() > 0 and values.max() / values.min() < WIDEST_LOG:
        spaces["log"] = Space(np.log(values), True, None)
    rows = {name: space.values for name, space in spaces.items()}
    if covariates is None or not is_long:
        return Prepared(spaces, rows, None)
    origins = setup.origins
    effect = covariate_effect(values, covariates)
    early = covariates @ covariate_effect(values[: origins[0]], covariates[: origins[0]])
    late = covariates @ effect
    ahead = np.minimum(origins[:, None] + np.arange(setup.horizon), len(values) - 1)
    effects = early[ahead]
    effects[-1] = late[-1]
    spaces["covariates"] = Space(values - late, False, effects)
    return Prepared(spaces, {**rows, "covariates": values - late, EARLY: values - early}, effect)


def covariate_effect(values: Numbers, covariates: Numbers) -> Numbers:
    """Return what a unit of each covariate adds to a change of the series, (k,), by least squares."""
    y, x = np.diff(values), np.diff(covariates, axis=0)
    gram = x.T @ x
    penalty = (COVARIATE_RIDGE * np.trace(gram) / len(gram) + 1e-9) * np.eye(len(gram))
    found: Numbers = np.linalg.solve(gram + penalty, x.T @ y)
    return found


class Source(NamedTuple):
    """Where a candidate comes from: smoothers by their places, or a linear map."""

    members: NDArray[np.int64] | None
    linear: LinearMap | None


def _fit_one(
    values: Numbers,
    prepared: Prepared,
    places: Mapping[str, int],
    smoothed: Smoothed,
    criterion: Numbers,
    setup: Setup,
) -> SeriesFit:
    """Collect the candidates of one series, weigh them, and keep what carries weight."""
    candidates: list[Candidate] = []
    sources: list[Source] = []
    for name in prepared.spaces:
        early = EARLY if name == "covariates" else name
        for candidate, source in (
            *_smoother_candidates(name, (places[early], places[name]), smoothed, criterion, setup),
            *_regression_candidates(name, prepared.rows[early], prepared.rows[name], setup),
        ):
            candidates.append(candidate)
            sources.append(source)
    combination = combine(values, candidates, prepared.spaces, setup.origins)
    fits = {
        name: _fit_space(name, candidates, combination, sources, smoothed, places[name], setup.grid)
        for name in prepared.spaces
    }
    weights = zip(candidates, combination.weights.tolist(), strict=True)
    return SeriesFit(
        values=values,
        season=setup.season,
        spaces={name: fit for name, fit in fits.items() if fit.weight > 0},
        effect=prepared.effect,
        intervals=measure_intervals(
            values, combination, candidates, prepared.spaces, setup.origins, setup.season
        ),
        log_floor=float(values.min() * 0.1) if values.min() > 0 else 1.0,
        weights={one.name: weight for one, weight in weights if weight > 0},
        scores={one.name: float(score) for one, score in zip(candidates, combination.scores, strict=True)},
    )


def _smoother_candidates(
    space: str, places: tuple[int, int], smoothed: Smoothed, criterion: Numbers, setup: Setup
) -> Iterator[tuple[Candidate, Source]]:
    """Give a candidate for each family; places: of the series before the last origin, and at it."""
    is_fallback = setup.origins[-1] < FALLBACK_ROWS
    family_of = setup.grid.family
    for family in ("level",) if is_fallback else dict.fromkeys(family_of.tolist()):
        chosen = np.flatnonzero(family_of == family)
        forecasts, best = [], chosen
        for place in dict.fromkeys(places):
            best = best_of_family(criterion[:, place], chosen)
            said = smoothed.forecasts[:, place]
            forecasts.append(np.take_along_axis(said, best[:, None, :], axis=2).mean(2))
        mean = np.concatenate([forecasts[0][:-1], forecasts[-1][-1:]])
        name = family if space == "raw" else f"{space}: {family}"
        yield (
            Candidate(name=name, space=space, is_regression=False, forecasts=mean),
            Source(best[-1], None),
        )


def _regression_candidates(
    space: str, early: Numbers, late: Numbers, setup: Setup
) -> Iterator[tuple[Candidate, Source]]:
    """Give a candidate for each regression; of the series before the last origin, and at it."""
    if len(late) < FALLBACK_ROWS:
        return
    last = _regressions(space, late, setup)
    before = last if late is early else _regressions(space, early, setup)
    for title, regression in last.items():
        if title not in before:
            continue
        forecasts = np.concatenate([before[title].forecasts[:-1], regression.forecasts[-1:]])
        yield (
            Candidate(
                name=title if space == "raw" else f"{space}: {title}",
                space=space,
                is_regression=title != LAST_SEASON,
                forecasts=forecasts,
            ),
            Source(None, regression.final),
        )


def _regressions(space: str, values: Numbers, setup: Setup) -> dict[str, Regression]:
    rows, origins = len(values), setup.origins
    regressions = {}
    for title, plan in make_plans(rows, setup.season, setup.week).items():
        regression = fit_recursive(values, plan, setup.horizon, origins)
        if regression is not None:
            regressions[title] = regression
    if rows >= DIRECT_ROWS:
        regressions |= fit_direct(values, setup.horizon, origins, direct_lags(rows, setup.season))
    if setup.season > 1 and space == "raw":
        regressions[LAST_SEASON] = repeat_season(values, setup.season, setup.horizon, origins)
    return regressions


def _fit_space(
    name: str,
    candidates: Sequence[Candidate],
    combination: Combination,
    sources: Sequence[Source],
    smoothed: Smoothed,
    row: int,
    grid: Grid,
) -> SpaceFit:
    """Add up what carries weight in one space."""
    weights = combination.weights
    chosen = [place for place, one in enumerate(candidates) if one.space == name and weights[place] > 0]
    weight = float(weights[chosen].sum())
    share = np.zeros(len(grid.alpha))
    regression: LinearMap | None = None
    for place in chosen:
        own = float(weights[place]) / weight
        members, linear = sources[place]
        if members is not None:
            share[members] += own / len(members)
        if linear is not None:
            regression = _add(regression, own, linear)
    places = np.flatnonzero(share)
    smoothers = None
    if len(places):
        smoothers = Smoothers(
            constants=np.stack([grid.alpha, grid.beta, grid.gamma, grid.phi])[:, places],
            weights=share[places],
            level=smoothed.level[row, places],
            slope=smoothed.slope[row, places],
            season=smoothed.season[row, places],
            spread=smoothed.spread[row, places],
            jumped=smoothed.jumped[row, places],
        )
    return SpaceFit(weight=weight, regression=regression, smoothers=smoothers)


def _add(known: LinearMap | None, weight: float, new: LinearMap) -> LinearMap:
    """Return the sum of a map and a weighted one; the shorter past is as if zeros came before it."""
    if known is None:
        return LinearMap(weight * new.matrix, weight * new.bias)
    rows = max(known.matrix.shape[1], new.matrix.shape[1])
    padded = [np.pad(one.matrix, ((0, 0), (rows - one.matrix.shape[1], 0))) for one in (known, new)]
    return LinearMap(padded[0] + weight * padded[1], known.bias + weight * new.bias)
