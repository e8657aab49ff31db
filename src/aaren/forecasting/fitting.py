"""Fit a LagForecaster: choose and solve its base, train and judge its correction, measure its intervals.

Nothing is chosen on rows that were fitted: the base by rolling origins, the correction by blocks of rows that
it has not seen, the quantiles from residuals at those origins.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aaren.forecasting.calendar import count_slots, season_rows
from aaren.forecasting.lagged import (
    CorrectionConfig,
    LagForecaster,
    LagForecasterConfig,
    LagState,
)
from aaren.forecasting.residuals import (
    FEW_RESIDUALS,
    Residuals,
    choose_spread,
    join_residuals,
    measure_residuals,
    set_quantiles,
    set_student_quantiles,
    steady_spread,
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
BLOCKS = 6  # of unseen rows by which a correction is judged
JUDGED_WINDOWS = 300  # of them
COMPARED_WINDOWS = 200  # of each series, for the table beside the baselines
NOISE = 2.0  # standard errors that a gain must exceed
CHECKS = 6  # of a correction while it is trained
PATIENCE = 3  # of them: a correction that has not helped by then is given up
WARM_UP = 50  # updates
CLIP = 5.0  # residuals of training, in their scale: faults of sensors teach nothing


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class History:
    """What a model is fitted to."""

    series: Sequence[Numbers]  # raw, (rows,) each
    slots: Sequence[NDArray[np.int64]]  # of the clock, (rows,) each
    covariates: Sequence[Numbers] | None = None  # (rows, k) each
    groups: Sequence[int] | None = None  # of each series, counted from 0; series of one may share weights
    is_table: bool = False  # rows of all series belong together
    clock: str = "none"
    slot_seconds: int = 3600
    time_zone: str = ""

    @property
    def seasons(self) -> dict[str, int]:
        """Return the rows of the seasons that the clock has, by name."""
        return season_rows(self.clock, self.slot_seconds, max(self.slots, key=len))


@dataclass(frozen=True, kw_only=True, slots=True)
class CorrectionTraining:
    """How long the correction is trained."""

    updates: int = 600
    batch_size: int = 256
    learning_rate: float = 1e-3
    seed: int = 0
    most_seconds: float = 60.0  # of processor time


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Fitted:
    """A model and how it came about."""

    model: LagForecaster
    choice: Choice
    factor: float  # of the correction; 0: it was dropped
    gain: float  # of its squared error on unseen blocks, relative; not beyond noise: dropped
    held_out: Mapping[str, float]  # squared errors on the last part, scaled: ours and the baselines


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
    """Choose by rolling origins, solve, and measure the intervals; the correction comes later.

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
            groups=history.groups,
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
        weights = fit_weights(window_moments(known, lag_steps, horizon_steps), base, history.groups)
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
        held_out = compare(model, rest, series, fit_ends, judge_ends, history.seasons)
        residuals = [join_residuals(some) for some in zip(*parts, strict=True)]
        if max(len(some.errors) for some in residuals) >= FEW_RESIDUALS:
            model.config = replace(config, spread=choose_spread(parts))
            set_quantiles(model, residuals)
        else:  # forecast from every row, as it would have been, as far as the truth is known
            parts = []
            for ends, nexts in itertools.pairwise(_refit_ends(begins[0], judge_ends, config, base)):
                rest = solve(model, ends)
                parts.append(measure_residuals(model, rest, ends, nexts, judge_ends))
            residuals = [join_residuals(some) for some in zip(*parts, strict=True)]
            model.config = replace(config, spread=steady_spread(residuals))
            set_student_quantiles(model, residuals)
            solve(model, fit_ends)
        # The weights are now those of the third origin, for which the rows after it are new.
        first = [max(0, end - lag_steps) for end in fit_ends]
        state = replay(model, history, first, judge_ends)
        model.first_log_scale.copy_(state.log_scale[0])
        if is_refitted:
            solve(model, judge_ends)
    return Fitted(model=model, choice=choice, factor=0.0, gain=0.0, held_out=held_out)


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
) -> dict[str, float]:
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
    count = 0
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
            said = model.base_lags(torch.from_numpy(rows))[:, place].numpy()
        sums["AarenForecaster"] += float(((rest[place][origins[:, None] + ahead] - said) ** 2).sum())
        known, now = values[origins[:, None] + np.arange(-lags + 1, 0)], values[origins][:, None]
        sums["linear"] += float((((known - now) @ linear[:-1] + linear[-1] + now - truth) ** 2).sum())
        for name, back in seasons.items():
            repeated = values[origins[:, None] + (ahead - 1) % back + 1 - back]
            sums[name] += float(((repeated - truth) ** 2).sum())
        count += truth.size
    return {name: total / count for name, total in sums.items()} if count else {}


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


def add_correction(
    fitted: Fitted,
    history: History,
    *,
    fit_ends: Sequence[int],
    judge_ends: Sequence[int],
    config: CorrectionConfig,
    training: CorrectionTraining,
    tell: Callable[[str], None] = lambda _: None,
) -> Fitted:
    """Train a correction on the rows before `fit_ends`; keep it if it helps on those after, beyond noise.

    The factor is the one in [0, 1] with the least squared error on unseen rows, shrunk by how uncertain the
    gain is. The gain is judged on blocks of them, each with the factor of the others; below two standard
    errors it is dropped. Training ends at half its budget if nothing has helped by then.
    """
    base = fitted.model
    if base.config.lag_steps < config.patch_steps or fitted.choice.weights == "last":
        return fitted
    with torch.random.fork_rng(devices=[]):
        generator = torch.default_generator.manual_seed(training.seed)
        model = LagForecaster(replace(base.config, correction=config))
        model.load_state_dict(base.state_dict(), strict=False)
        windows = Windows(model, history)
        train = windows.origins([base.config.lag_steps - 1] * len(fit_ends), fit_ends)
        judged = windows.origins([end - 1 for end in fit_ends], judge_ends)
        if len(train) < training.batch_size or len(judged) < 10 * BLOCKS:
            return fitted
        judged = judged[torch.linspace(0, len(judged) - 1, min(len(judged), JUDGED_WINDOWS * 4)).long()]
        windows.judge(judged)
        _set_residual_scale(model, windows, train, generator)
        best: tuple[float, float, dict[str, Tensor]] = (0.0, 0.0, {})
        began, update, checked = time.process_time(), 0, 0
        optimiser = torch.optim.AdamW(
            [weight for weight in model.parameters() if weight.requires_grad],
            lr=training.learning_rate,
            weight_decay=1e-2,
        )
        spent = 0.0
        while spent < 1.0:
            rate = min(1.0, (update + 1) / WARM_UP) * max(0.02, 0.5 * (1.0 + np.cos(np.pi * spent)))
            optimiser.param_groups[0]["lr"] = training.learning_rate * rate
            chosen = train[torch.randint(len(train), (training.batch_size,), generator=generator)]
            model.train()
            loss = windows.loss(chosen)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            update += 1
            spent = max(update / training.updates, (time.process_time() - began) / training.most_seconds)
            if int(min(spent, 1.0) * CHECKS) > checked:  # the last one is at the end, however early it comes
                checked = int(min(spent, 1.0) * CHECKS)
                factor, gain = judge_correction(windows.terms(judged))
                left = (time.process_time() - began) * max(0.0, 1.0 / spent - 1.0)
                tell(
                    f"correction: update {update} of {training.updates}, gain {100 * gain:.1f} %, "
                    f"{left:.0f} s left at most"
                )
                if gain > best[1]:
                    best = (factor, gain, {k: v.clone() for k, v in model.state_dict().items()})
                if checked >= PATIENCE and not best[0]:
                    break
    factor, gain, weights = best
    if factor == 0.0:
        return fitted
    model.load_state_dict(weights)
    model.eval().requires_grad_(False)
    model.factor.fill_(factor)
    held_out = dict(fitted.held_out)
    if held_out:
        held_out["AarenForecaster"] *= 1.0 - gain
    return replace(fitted, model=model, factor=factor, gain=gain, held_out=held_out)


def judge_correction(terms: Numbers) -> tuple[float, float]:
    """Return factor and relative gain from blocks' sums (blocks, 3) of r·r, r·c, c·c; (0, 0): only noise.

    >>> round(judge_correction(np.array([[1.0, 0.2, 0.2], [1.1, 0.22, 0.2], [1.0, 0.21, 0.2]]))[0], 2)
    1.0
    >>> judge_correction(np.array([[1.0, 0.2, 0.2], [1.0, -0.2, 0.2], [1.0, 0.1, 0.2]]))
    (0.0, 0.0)
    """
    total, gains = terms.sum(0), []
    for block in terms:
        others = total - block
        factor = float(np.clip(others[1] / max(others[2], 1e-12), 0.0, 1.0))
        gains.append((2 * factor * block[1] - factor**2 * block[2]) / max(block[0], 1e-12))
    mean, error = float(np.mean(gains)), float(np.std(gains, ddof=1) / np.sqrt(len(gains)))
    if not mean > NOISE * error:
        return 0.0, 0.0
    sure = 1.0 - (NOISE * error / mean) ** 2  # as an estimate is drawn to 0 in proportion to its noise
    return sure * float(np.clip(total[1] / max(total[2], 1e-12), 0.0, 1.0)), mean


class Windows:
    """Windows of a history as the correction sees them, in single precision."""

    def __init__(self, model: LagForecaster, history: History) -> None:
        self.model = model
        self.weight = model.weight.float()
        self.joint = None if model.joint is None else model.joint.float()
        self.values, self.slots, offsets = [], [], [0]
        with torch.no_grad():
            for place, (values, slots) in enumerate(zip(history.series, history.slots, strict=True)):
                scaled = (torch.from_numpy(values) - model.mean[place]) / model.deviation[place]
                scaled = scaled - model.profile[torch.from_numpy(slots), place]
                if history.covariates is not None and model.covariate is not None:
                    scaled = scaled - torch.from_numpy(history.covariates[place]) @ model.covariate[:, place]
                self.values.append(scaled.float())
                self.slots.append(torch.from_numpy(slots))
                offsets.append(offsets[-1] + len(values))
        self.flat, self.flat_slots = torch.cat(self.values), torch.cat(self.slots)
        self.offsets = offsets
        self.bounds = torch.tensor(offsets[1:])

    def origins(self, begins: Sequence[int], ends: Sequence[int]) -> Tensor:
        """Return the flat places of last known rows whose futures end before `ends`."""
        horizon, lags = self.model.config.horizon_steps, self.model.config.lag_steps
        if self.model.joint is not None:  # all columns are inputs: one origin stands for all of them
            return torch.arange(max(begins[0], lags - 1), ends[0] - horizon)
        return torch.cat(
            [
                offset + torch.arange(max(begin, lags - 1), max(max(begin, lags - 1), end - horizon))
                for offset, begin, end in zip(self.offsets, begins, ends, strict=False)
            ]
        )

    def take(self, origins: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return lags (n, p), series (n,), slots (n,) and residuals of the base (n, h)."""
        model, config = self.model, self.model.config
        past, ahead = torch.arange(-config.lag_steps + 1, 1), torch.arange(1, config.horizon_steps + 1)
        with torch.no_grad():
            if model.joint is not None:
                places = torch.tensor(self.offsets[:-1])
                origins = (origins[:, None] + places).reshape(-1)
                lags = self.flat[origins[:, None] + past]
                series = torch.arange(config.num_series).repeat(len(origins) // config.num_series)
            else:
                series = torch.searchsorted(self.bounds, origins, right=True)
                lags = self.flat[origins[:, None] + past]
            last = lags[:, -1:]
            seen = lags[:, :-1] - last
            if config.is_shared:
                base = seen @ self.weight[0, :-1] + self.weight[0, -1] + last
            else:
                base = last.repeat(1, config.horizon_steps)
                for place in sorted(set(series.tolist())):
                    mine = (series == place).nonzero()[:, 0]
                    base[mine] += seen[mine] @ self.weight[place, :-1] + self.weight[place, -1]
            if self.joint is not None:
                joined = seen[:, -(config.joint_steps - 1) :].reshape(-1, self.joint.shape[0])
                base += (joined @ self.joint).view(base.shape)
            return lags, series, self.flat_slots[origins], self.flat[origins[:, None] + ahead] - base

    def loss(self, origins: Tensor) -> Tensor:
        """Return the squared error of the correction, in the scale of each series' residuals."""
        lags, series, slots, residuals = self.take(origins)
        scale = self.model.residual[series][:, None].float()
        assert self.model.correction is not None
        said = self.model.correction(lags, series, self.model.calendar(slots))
        weight = (scale / self.model.residual.square().mean().sqrt()).clamp(min=0.3)
        target = (residuals / scale).clamp(-CLIP, CLIP)
        loss: Tensor = ((target - said).square() * weight).mean()
        return loss

    @torch.no_grad()
    def terms(self, origins: Tensor) -> Numbers:
        """Return r·r, r·c, c·c of blocks of time, (blocks, 3)."""
        self.model.eval()
        assert self.model.correction is not None
        found = np.zeros((BLOCKS, 3))
        for part in torch.split(origins, 256):
            lags, series, slots, residuals = self.take(part)
            residuals = residuals.double()
            said = self.model.correction(lags, series, self.model.calendar(slots)).double()
            said = said * self.model.residual[series][:, None]
            places = self._block(part, len(lags) // len(part))
            for number, pair in enumerate(((residuals, residuals), (residuals, said), (said, said))):
                sums = (pair[0] * pair[1]).sum(1).numpy()
                found[:, number] += np.bincount(places, weights=sums, minlength=BLOCKS)
        return found

    def judge(self, origins: Tensor) -> None:
        """Divide the time of these origins into blocks."""
        time_of = self._time(origins)
        self.first, self.last = int(time_of.min()), int(time_of.max())

    def _time(self, origins: Tensor) -> Tensor:
        if self.model.joint is not None:
            return origins
        return origins - torch.tensor(self.offsets)[torch.searchsorted(self.bounds, origins, right=True)]

    def _block(self, origins: Tensor, repeats: int) -> NDArray[np.int64]:
        share = (self._time(origins) - self.first).double() / (self.last - self.first + 1)
        return (share * BLOCKS).long().clamp(0, BLOCKS - 1).repeat_interleave(repeats).numpy()


def _set_residual_scale(
    model: LagForecaster, windows: Windows, train: Tensor, generator: torch.Generator
) -> None:
    some = train[torch.randint(len(train), (min(4000, len(train)),), generator=generator)]
    _, series, _, residuals = windows.take(some)
    overall = residuals.clamp(-CLIP, CLIP).square().mean().sqrt().clamp(min=1e-2)
    with torch.no_grad():
        for place in range(model.config.num_series):
            mine = residuals[series == place].clamp(-CLIP, CLIP)
            model.residual[place] = mine.square().mean().sqrt().clamp(min=1e-2) if len(mine) else overall


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


def describe_choice(choice: Choice) -> Mapping[str, str | float]:
    """Return what was chosen and its error over the origins, for a record."""
    return {"profile": choice.profile, "weights": choice.weights, "origin_mse": round(choice.score, 5)}
