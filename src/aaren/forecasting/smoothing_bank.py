"""Exponential smoothers with fixed constants, run side by side over several series.

    forecast   level + phi·slope + season
    error      value - forecast, cut where a single value jumps
    level      forecast without season + alpha·error          season   season + gamma·error
    slope      phi·slope + beta·error

A level is attention with equal scores and a constant decay; slope and season are linear recurrences beside
it. Smoothers of one family differ in their constants only; a family forecasts as the mean of its best
few.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

BEST_MEMBERS = 8  # of a family, whose mean is its forecast
JUMP = 5.0  # error spreads that a single value moves a state at most; a second in a row is believed
SPREAD_RATE = 0.08  # of the running mean size of errors
NORMAL_SPREAD = 1.25  # standard deviation of normal errors in mean sizes
LEVELS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)
SEASONAL_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
SEASON_RATES = (0.0, 0.03, 0.1, 0.2, 0.35)
SLOW_SEASON = 0.05  # season rates below start with the season of all rows, the others with the first rows'


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Grid:
    """The constants of every smoother, (members,) each."""

    family: NDArray[np.str_]
    alpha: Numbers
    beta: Numbers
    gamma: Numbers
    phi: Numbers
    drift: Numbers  # share of the slope of all rows that is kept for ever

    @property
    def is_seasonal(self) -> NDArray[np.bool_]:
        """Tell which smoothers have a season."""
        return np.char.endswith(self.family, "season")


def make_grid(season: int) -> Grid:
    """Return all smoothers for a season of so many rows; 1: none.

    >>> sorted(set(make_grid(1).family.tolist()))
    ['damped trend', 'drift', 'half drift', 'level', 'trend']
    """
    rows: list[tuple[str, float, float, float, float, float]] = []
    for alpha in LEVELS:
        rows += [
            ("level", alpha, 0, 0, 1, 0),
            ("half drift", alpha, 0, 0, 1, 0.5),
            ("drift", alpha, 0, 0, 1, 1),
        ]
    for alpha in LEVELS[2:]:
        for share in (0.02, 0.05, 0.1, 0.2, 0.4):
            rows += [("damped trend", alpha, alpha * share, 0, phi, 0) for phi in (0.8, 0.9, 0.95, 0.98)]
            rows.append(("trend", alpha, alpha * share, 0, 1, 0))
    for alpha in SEASONAL_LEVELS if season > 1 else ():
        for rate in SEASON_RATES:
            gamma = rate * (1 - alpha) if rate < 0.3 else rate * (1 - 0.5 * alpha)
            rows += [
                ("level, season", alpha, 0, gamma, 1, 0),
                ("half drift, season", alpha, 0, gamma, 1, 0.5),
            ]
            for share in (0.02, 0.1):
                rows += [("damped trend, season", alpha, alpha * share, gamma, phi, 0) for phi in (0.9, 0.98)]
            rows += [("trend, season", alpha, alpha * share, gamma, 1, 0) for share in (0.01, 0.05)]
    columns = list(zip(*rows, strict=True))
    constants = [np.array(column, dtype=np.float64) for column in columns[1:]]
    alpha_, beta, gamma_, phi_, drift = constants
    return Grid(family=np.array(columns[0]), alpha=alpha_, beta=beta, gamma=gamma_, phi=phi_, drift=drift)


class Row(NamedTuple):
    """Where smoothers stand after a row, with one phase of their season; arrays or tensors of one shape."""

    level: Any  # Any, here and below: of numpy or of torch
    slope: Any
    phase: Any  # of the season, that the row had
    spread: Any
    jumped: Any  # whether the error was cut

    def follow(self, target: Any, alpha: Any, beta: Any, gamma: Any, phi: Any, where: Any) -> "Row":
        """Take in a value; the recurrence of every smoother, whoever runs it.

        Args:
            target: the value, in the space of each smoother.
            alpha: constant of the level.
            beta: of the slope.
            gamma: of the season.
            phi: damping of the slope.
            where: that of numpy or torch.
        """
        expected = self.level + phi * self.slope
        error = target - expected - self.phase
        size, most = abs(error), JUMP * self.spread
        jumps = size > most
        bounded = where(jumps, most, size)
        error = where(jumps & ~self.jumped, where(error > 0.0, most, -most), error)
        return Row(
            level=expected + alpha * error,
            slope=phi * self.slope + beta * error,
            phase=self.phase + gamma * error,
            spread=self.spread + SPREAD_RATE * (NORMAL_SPREAD * bounded - self.spread),
            jumped=jumps,
        )


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Smoothed:
    """What smoothers said and where they stand after the last row; s series, p smoothers."""

    forecasts: Numbers  # (origins, s, horizon, p)
    mean_errors: Numbers  # (origins, s, p): mean size of the errors of one step before each origin
    level: Numbers  # (s, p)
    slope: Numbers  # (s, p)
    season: Numbers  # (s, p, season), the next row's first
    spread: Numbers  # (s, p): running mean size of errors, as a standard deviation
    jumped: NDArray[np.bool_]  # (s, p): the last error was cut


def smooth(values: Numbers, grid: Grid, season: int, horizon: int, origins: NDArray[np.int64]) -> Smoothed:
    """Run all smoothers through series of equal length.

    Args:
        values: (s, rows).
        grid: the smoothers.
        season: rows of a season.
        horizon: rows to forecast at each origin.
        origins: increasing counts of rows known; the last one may be all.
    """
    size, rows = values.shape
    level, slope, seasons = _start(values, grid, season)
    changes = np.abs(np.diff(values[:, : max(3 * season, 20)], axis=1)).mean(1)
    spread = NORMAL_SPREAD * changes + 1e-9 * np.abs(values).max(1) + 1e-300
    spread = np.repeat(spread[:, None], len(grid.alpha), axis=1)
    jumped = np.zeros(level.shape, dtype=bool)
    slopes = np.cumsum(grid.phi ** np.arange(1, horizon + 1)[:, None], axis=0)  # (h, p)
    forecasts = np.empty((len(origins), size, horizon, len(grid.alpha)))
    means = np.empty((len(origins), size, len(grid.alpha)))
    total, place, steps = np.zeros(level.shape), 0, np.arange(horizon)
    for row in range(rows + 1):
        if place < len(origins) and origins[place] == row:
            ahead = np.moveaxis(seasons, 0, 1)[:, (row + steps) % season]
            forecasts[place] = level[:, None] + slopes * slope[:, None] + ahead
            means[place], place = total / max(row, 1), place + 1
        if row == rows:
            break
        phase = row % season
        value = values[:, row, None]
        total += np.abs(value - level - grid.phi * slope - seasons[phase])
        level, slope, seasons[phase], spread, jumped = Row(
            level, slope, seasons[phase], spread, jumped
        ).follow(value, grid.alpha, grid.beta, grid.gamma, grid.phi, np.where)
    return Smoothed(
        forecasts=forecasts,
        mean_errors=means,
        level=level,
        slope=slope,
        season=np.moveaxis(np.roll(seasons, -(rows % season), axis=0), 0, 2),
        spread=spread,
        jumped=jumped,
    )


def _start(values: Numbers, grid: Grid, season: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return level and slope (s, p) and season (season, s, p) before the first row, by least squares."""
    rows = values.shape[1]
    first, first_season = _line_and_season(values[:, : max(3 * season, 10)], season)
    whole, whole_season = _line_and_season(values, season)
    drift = grid.drift[None] * whole[:, :1]
    slope = np.where(grid.drift > 0, drift, np.where(grid.beta > 0, first[:, :1], 0.0))
    is_flat = (grid.beta == 0) & (grid.drift == 0)
    mean = values[:, : min(rows, max(season, 3))].mean(1, keepdims=True)
    level = np.where(is_flat, mean, first[:, 1:] - slope)
    slow = (grid.gamma < SLOW_SEASON)[None, None]
    seasons = np.where(slow, whole_season.T[:, :, None], first_season.T[:, :, None])
    return level, slope, np.where(grid.is_seasonal, seasons, 0.0)


def _line_and_season(values: Numbers, season: int) -> tuple[Numbers, Numbers]:
    """Return slope and start of a line (s, 2), and what is left of each phase (s, season), in turns."""
    size, rows = values.shape
    time = np.arange(rows, dtype=np.float64)
    design = np.column_stack([time, np.ones(rows)])
    line: Numbers = np.zeros((size, 2))
    left, phases = np.zeros((size, season)), np.arange(rows) % season
    is_whole = season > 1 and rows >= 2 * season
    for _ in range(3 if is_whole else 1):
        line = np.asarray(np.linalg.lstsq(design, (values - left[:, phases]).T, rcond=None)[0].T, np.float64)
        if is_whole:
            rest = values - line @ design.T
            left = np.stack([rest[:, phase::season].mean(1) for phase in range(season)], axis=1)
            left -= left.mean(1, keepdims=True)
    return line, left


def judge_members(smoothed: Smoothed, values: Numbers, origins: NDArray[np.int64]) -> Numbers:
    """Return the criterion of every smoother at every origin, (origins, s, p): smaller is better.

    It is the mean of two logarithms, each of what was known by then: of the mean size of one-step errors, and
    of the errors of forecasts whose truth had come.
    """
    count, size, horizon, members = smoothed.forecasts.shape
    rows = values.shape[1]
    due = origins[:, None] + np.arange(1, horizon + 1)  # rows known when the truth of a step has come
    truth = values[:, np.minimum(due, rows) - 1]  # (s, origins, h)
    known = (
        ((due[None] <= origins[:, None, None]) & (due[None] <= rows)).reshape(count, -1).astype(np.float64)
    )
    errors = np.abs(smoothed.forecasts - np.moveaxis(truth, 0, 1)[..., None])
    errors = np.moveaxis(errors, 1, 0).reshape(size, count * horizon, members)
    known_count = known.sum(1)
    criterion = np.log(smoothed.mean_errors + 1e-300)
    ahead = np.moveaxis(known @ errors, 0, 1) / np.maximum(known_count, 1.0)[:, None, None]
    is_enough = (known_count >= 3 * horizon)[:, None, None]
    return np.where(is_enough, 0.5 * criterion + 0.5 * np.log(ahead + 1e-300), criterion)


def best_of_family(criterion: Numbers, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of the best few of a family at every origin, (origins, few), of one series."""
    order = np.argsort(criterion[:, places], axis=1, kind="stable")[:, :BEST_MEMBERS]
    return places[order]
