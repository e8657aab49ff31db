"""Fit a LagForecaster: choose and solve its base, measure its intervals.

Nothing is chosen on rows that were fitted: the base by rolling origins, the quantiles from residuals there.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from aaren.forecasting.bank_fitting import FEWEST_ROWS, fit_bank
from aaren.forecasting.bank_forecaster import BankForecaster
from aaren.forecasting.calendar import count_slots, season_rows
from aaren.forecasting.lagged import LagForecaster, LagForecasterConfig, LagState
from aaren.forecasting.residuals import (
    FEW_RESIDUALS,
    Residuals,
    join_residuals,
    measure_residuals,
    set_quantiles,
    set_student_quantiles,
)
from aaren.forecasting.ridge import (
    JOINT_STEPS,
    Choice,
    Numbers,
    choose,
    fit_joint,
    fit_weights,
    is_fixed,
    mean_profile,
    window_moments,
)

ORIGINS = (
    1 / 2,
    3 / 4,
)  # of the rows to fit, where the first two rolling origins are; the third is their end
MOST_REFITS = 24  # of the base, where residuals are few
REFIT_SERIES = 5000  # in all of these together, about: of many series fewer origins say as much
INDEPENDENT_HORIZONS = 2  # between the first and the last held-out window: fewer say nothing of two models
COMPARED_SERIES = 8  # by which the bank is compared
COMPARED_WINDOWS = 200  # of each series, for the table beside the baselines


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class History:
    """What a model is fitted to."""

    series: Sequence[Numbers]  # raw, (rows,) each
    slots: Sequence[NDArray[np.int64]]  # of the clock, (rows,) each
    covariates: Sequence[Numbers] | None = None  # (rows, k) each
    is_table: bool = False  # rows of all series belong together
    clock: str = "none"
    slot_seconds: int = 3600
    time_zone: str = ""

    @property
    def seasons(self) -> dict[str, int]:
        """Return the rows of the seasons that the clock has, by name."""
        return season_rows(self.clock, self.slot_seconds, max(self.slots, key=len))


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Fitted:
    """A model and how it came about."""

    model: LagForecaster
    choice: Choice
    held_out: Mapping[str, float]  # squared errors on the last part, scaled: ours and the baselines
    windows: Mapping[int, tuple[NDArray[np.int64], float]]  # by series: held-out origins, and our error there


def profile_kinds(history: History) -> dict[str, list[NDArray[np.int64]]]:
    """Return the profiles that could be taken away: the slots of each, for every row."""
    kinds = {"none": [np.zeros(len(some), dtype=np.int64) for some in history.slots]}
    num_slots = count_slots(history.clock, history.slot_seconds)
    longest = max(len(some) for some in history.slots)
    if history.clock == "week" and longest >= 3 * num_slots // 7:
        kinds["day"] = [some % (num_slots // 7) for some in history.slots]
    if history.clock != "none" and longest >= 3 * num_slots:
        kinds["week" if history.clock in ("week", "weekday") else "year"] = list(history.slots)
    return kinds


def fit_base(
    history: History,
    *,
    horizon_steps: int,
    lag_steps: int,
    fit_ends: Sequence[int],
    judge_ends: Sequence[int],
    is_refitted: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Fitted:
    """Choose by rolling origins, solve, and measure the intervals.

    Args:
        history: all that is known.
        horizon_steps: to forecast.
        lag_steps: of the past.
        fit_ends: of each series the end of the rows that weights are fitted to.
        judge_ends: the end of the rows that choices and intervals may look at.
        is_refitted: fit the final weights to all rows until `judge_ends`.
        tell: gets a line now and then.
    """
    size = len(history.series)
    final_ends = judge_ends if is_refitted else fit_ends
    scales = [_scale(values[:end]) for values, end in zip(history.series, final_ends, strict=True)]
    series = [(v - m) / d for v, (m, d) in zip(history.series, scales, strict=True)]
    cuts = [[int(share * end) for end in fit_ends] for share in ORIGINS]
    cuts = [*cuts, list(fit_ends), list(judge_ends)]
    kinds = profile_kinds(history)
    judged = {
        kind: [some[:end] for some, end in zip(slots, judge_ends, strict=True)]
        for kind, slots in kinds.items()
    }
    can_join = history.is_table and len({*fit_ends}) == 1

    def pick(values: Sequence[Numbers]) -> Choice:
        known = [some[:end] for some, end in zip(values, judge_ends, strict=True)]
        return choose(
            known,
            judged,
            cuts,
            lag_steps=lag_steps,
            horizon_steps=horizon_steps,
            can_join=can_join,
            seasons=list(history.seasons.values()),
        )

    tell(f"choosing a base of {lag_steps} lags by rolling origins")
    effect: Callable[[Sequence[int]], Numbers] | None = None
    choice = pick(series)
    if history.covariates is not None:
        for is_difference in (True, False):
            found = _covariate_effect(series, history.covariates, cuts[0], is_difference)
            other = pick([v - c @ e for v, c, e in zip(series, history.covariates, found.T, strict=True)])
            if min(other.scores.values(), default=0.0) < min(choice.scores.values(), default=0.0):
                choice = other
                effect = lambda ends, way=is_difference: _covariate_effect(  # noqa: E731
                    series, history.covariates or (), ends, way
                )
    base, _, joined = choice.weights.partition("+")
    config = LagForecasterConfig(
        num_series=size,
        horizon_steps=horizon_steps,
        lag_steps=lag_steps,
        joint_steps=min(JOINT_STEPS, lag_steps) if joined else 0,
        is_shared=base == "shared" or is_fixed(base),
        clock=history.clock,
        slot_seconds=history.slot_seconds,
        time_zone=history.time_zone,
        num_covariates=0 if history.covariates is None else history.covariates[0].shape[1],
    )

    def solve(model: LagForecaster, ends: Sequence[int]) -> list[Numbers]:
        """Set the weights from the rows before the ends; return the values without profile."""
        rest = series
        if effect is not None and model.covariate is not None and history.covariates is not None:
            found = effect(ends)
            model.covariate.copy_(torch.from_numpy(found))
            rest = [v - c @ e for v, c, e in zip(series, history.covariates, found.T, strict=True)]
        slots = kinds[choice.profile]
        known = [some[:end] for some, end in zip(rest, ends, strict=True)]
        if choice.profile != "none":
            count = 1 + max(int(some.max(initial=0)) for some in slots)
            profile = mean_profile(known, [some[:end] for some, end in zip(slots, ends, strict=True)], count)
            model.profile.copy_(torch.from_numpy(profile[np.arange(config.num_slots) % count]))
            rest = [v - profile[some, place] for place, (v, some) in enumerate(zip(rest, slots, strict=True))]
            known = [some[:end] for some, end in zip(rest, ends, strict=True)]
        weights = fit_weights(window_moments(known, lag_steps, horizon_steps), base)
        model.weight.copy_(torch.from_numpy(weights))
        if model.joint is not None:
            joint = fit_joint(np.stack(known, axis=1), weights, config.joint_steps)[joined]
            model.joint.copy_(torch.from_numpy(joint))
        return list(rest)

    with torch.no_grad():
        model = LagForecaster(config).eval()
        model.mean.copy_(torch.tensor([mean for mean, _ in scales], dtype=torch.float64))
        model.deviation.copy_(torch.tensor([scale for _, scale in scales], dtype=torch.float64))
        tell("measuring its residuals")
        # A base without weights has fitted nothing: for it the rows before the first origin are new, too.
        begins = [[0] * size, *cuts] if choice.is_fixed and effect is None else cuts
        parts: list[list[Residuals]] = []
        for ends, nexts in itertools.pairwise(begins):
            rest = solve(model, ends)
            parts.append(measure_residuals(model, rest, ends, nexts))
        held_out, windows = compare(model, rest, series, fit_ends, judge_ends, history.seasons)
        residuals = [join_residuals(some) for some in zip(*parts, strict=True)]
        if max(len(some.errors) for some in residuals) >= FEW_RESIDUALS:
            set_quantiles(model, residuals)
        else:  # forecast from every row, as it would have been, as far as the truth is known
            parts = []
            for ends, nexts in itertools.pairwise(_refit_ends(begins[0], judge_ends, config, base)):
                rest = solve(model, ends)
                parts.append(measure_residuals(model, rest, ends, nexts, judge_ends))
            residuals = [join_residuals(some) for some in zip(*parts, strict=True)]
            set_student_quantiles(model, residuals)
            solve(model, fit_ends)
        # The weights are now those of the third origin, for which the rows after it are new.
        first = [max(0, end - lag_steps) for end in fit_ends]
        state = replay(model, history, first, judge_ends)
        model.first_log_scale.copy_(state.log_scale[0])
        if is_refitted:
            solve(model, judge_ends)
    return Fitted(model=model, choice=choice, held_out=held_out, windows=windows)


def _refit_ends(
    begins: Sequence[int], ends: Sequence[int], config: LagForecasterConfig, base: str
) -> list[list[int]]:
    """Return where the base is fitted again to measure few residuals, rows of every series, the ends too.

    Not before there are some windows: weights of one or two say little of those that all rows will give.
    """
    least = 0 if is_fixed(base) else config.lag_steps + config.horizon_steps + config.horizon_steps // 2
    firsts = [
        max(begin, min(least, end - config.horizon_steps)) for begin, end in zip(begins, ends, strict=True)
    ]
    return [
        [int(first + share * (end - first)) for first, end in zip(firsts, ends, strict=True)]
        for share in np.linspace(0.0, 1.0, int(np.clip(REFIT_SERIES // len(ends), 3, MOST_REFITS)) + 1)
    ]


def compare(
    model: LagForecaster,
    rest: Sequence[Numbers],
    series: Sequence[Numbers],
    fit_ends: Sequence[int],
    judge_ends: Sequence[int],
    naive_rows: Mapping[str, int],
) -> tuple[dict[str, float], dict[int, tuple[NDArray[np.int64], float]]]:
    """Return the squared errors of the base and of simple baselines on held-out windows.

    Weights have not seen them; the kind of base was chosen partly on them, which favours the base a little.

    Args:
        model: fitted before `fit_ends`.
        rest: the scaled series without profile.
        series: the scaled series.
        fit_ends: where the unseen rows begin.
        judge_ends: and end.
        naive_rows: of the seasons that naive baselines repeat, by name.
    """
    config = model.config
    lags = min(96, config.lag_steps)
    linear = fit_weights(
        window_moments(
            [v[:end] for v, end in zip(series, fit_ends, strict=True)], lags, config.horizon_steps
        ),
        "shared",
    )[0]
    seasons = {"last value": 1} | {f"seasonal naive, {name}": rows for name, rows in naive_rows.items()}
    sums = dict.fromkeys(("AarenForecaster", "linear", *seasons), 0.0)
    ahead, past = np.arange(1, config.horizon_steps + 1), np.arange(-config.lag_steps + 1, 1)
    count, windows = 0, {}
    for place, (values, begin, end) in enumerate(zip(series, fit_ends, judge_ends, strict=True)):
        first = max(begin, config.lag_steps, *seasons.values()) - 1
        if end - config.horizon_steps <= first:
            continue
        origins = np.unique(
            np.linspace(first, end - config.horizon_steps - 1, COMPARED_WINDOWS).astype(np.int64)
        )
        truth = values[origins[:, None] + ahead]
        if model.joint is None:
            window = torch.from_numpy(rest[place][origins[:, None] + past])
            weight, last = model.weight[place % len(model.weight)], window[:, -1:]
            said = ((window[:, :-1] - last) @ weight[:-1] + weight[-1] + last).numpy()
        else:
            rows = np.stack([some[origins[:, None] + past] for some in rest], axis=1)
            said = model.forecast_lags(torch.from_numpy(rows))[:, place].numpy()
        own = float(((rest[place][origins[:, None] + ahead] - said) ** 2).sum())
        sums["AarenForecaster"] += own
        windows[place] = origins, own / truth.size
        known, now = values[origins[:, None] + np.arange(-lags + 1, 0)], values[origins][:, None]
        sums["linear"] += float((((known - now) @ linear[:-1] + linear[-1] + now - truth) ** 2).sum())
        for name, back in seasons.items():
            repeated = values[origins[:, None] + (ahead - 1) % back + 1 - back]
            sums[name] += float(((repeated - truth) ** 2).sum())
        count += truth.size
    return ({name: total / count for name, total in sums.items()} if count else {}), windows


@torch.no_grad()
def compare_with_bank(
    fitted: Fitted,
    history: History,
    fit_ends: Sequence[int],
    *,
    season: int,
    week: int,
) -> dict[str, float]:
    """Return the squared error of the bank on the windows that the linear model was judged by; empty: none.

    Of many series some are looked at, and the error is brought to all by the linear model's.
    """
    horizon = fitted.model.config.horizon_steps
    compared = [
        place
        for place, (origins, _) in fitted.windows.items()
        if fit_ends[place] >= FEWEST_ROWS and origins[-1] - origins[0] >= INDEPENDENT_HORIZONS * horizon
    ]
    chosen = np.linspace(0, len(compared) - 1, min(COMPARED_SERIES, len(compared))).astype(int)
    compared = [compared[place] for place in chosen]
    ratios = []
    for place in compared:
        values, end = history.series[place], fit_ends[place]
        origins, error = fitted.windows[place]
        given = [] if history.covariates is None else [history.covariates[place]]
        known = [covariates[:end] for covariates in given]
        fits = fit_bank([values[:end]], horizon=horizon, season=season, week=week, covariates=known)
        bank = BankForecaster.from_fits(fits, horizon=horizon, covariates=known)
        state, scale = bank.init_state(1), float(fitted.model.deviation[place])
        squares, nexts = [], set((origins + 1).tolist())
        for row in range(end, int(origins[-1]) + 2):
            if row in nexts:
                ahead = torch.from_numpy(given[0][None, row : row + horizon]) if given else None
                forecast = bank.predict(state, covariates=ahead)[0, :, 0].numpy()
                squares.append(np.mean(((forecast - values[row : row + horizon]) / scale) ** 2))
            extra = torch.from_numpy(given[0][row : row + 1]) if given else None
            state = bank.advance(torch.from_numpy(values[None, row : row + 1]), state, covariates=extra)
        ratios.append(np.log(np.mean(squares) + 1e-12) - np.log(error + 1e-12))
    if not ratios:
        return {}
    return {"bank of smoothers": float(np.exp(np.mean(ratios)) * fitted.held_out["AarenForecaster"])}


@torch.no_grad()
def replay(model: LagForecaster, history: History, begins: Sequence[int], ends: Sequence[int]) -> LagState:
    """Run rows through an empty state, series that end together side by side; return the state."""
    longest = max(end - begin for begin, end in zip(begins, ends, strict=True))
    shortest = min(end - begin for begin, end in zip(begins, ends, strict=True))
    size, k = len(ends), model.config.num_covariates
    rows, slots = np.zeros((longest, size)), np.zeros((longest, size), dtype=np.int64)
    real, covariates = np.zeros((longest, size), dtype=bool), np.zeros((longest, size, k))
    for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        part = slice(longest - (end - begin), None)
        rows[part, place] = history.series[place][begin:end]
        slots[part, place] = history.slots[place][begin:end]
        real[part, place] = True
        if history.covariates is not None:
            covariates[part, place] = history.covariates[place][begin:end]
    given = [torch.from_numpy(some).unsqueeze(0) for some in (rows, slots, real, covariates)]
    state, nothing = model.init_state(1), torch.zeros(0, dtype=torch.int64)
    late = longest - shortest  # until then some series have not begun
    for part, mask in ((slice(0, late), given[2][:, :late]), (slice(late, longest), None)):
        if part.stop > part.start:
            _, state = model(
                given[0][:, part],
                state,
                slots=given[1][:, part],
                covariates=given[3][:, part] if k else None,
                mask=mask,
                positions=nothing,
            )
    return state


def _scale(values: Numbers) -> tuple[float, float]:
    deviation = float(values.std())
    return float(values.mean()), deviation if deviation > 0.0 else 1.0


def _covariate_effect(
    series: Sequence[Numbers], covariates: Sequence[Numbers], ends: Sequence[int], is_difference: bool
) -> Numbers:
    """Return what a unit of each covariate adds to each series, (k, s), by least squares before the ends."""
    found = []
    for values, given, end in zip(series, covariates, ends, strict=True):
        y, x = values[:end], given[:end]
        y, x = (np.diff(y), np.diff(x, axis=0)) if is_difference else (y - y.mean(), x - x.mean(0))
        gram = x.T @ x
        found.append(
            np.linalg.solve(gram + (1e-3 * np.trace(gram) / len(gram) + 1e-9) * np.eye(len(gram)), x.T @ y)
        )
    return np.stack(found, axis=1)
