"""LagForecaster: a forecast with intervals after every row, in constant memory, of raw values in raw units.

    scale        by mean and standard deviation of the training rows, never of a window
    profile      the mean of each slot of the calendar is taken away, and put back where the forecast lies
    base         linear in the last rows (`aaren.forecasting.ridge`), in closed form
    intervals    quantiles of residuals, relative to a spread of the last rows, times a slow online scale

A stream holds the last rows, its place in the calendar, a few forecasts whose truth has not come yet, and the
scales of its intervals. Every series of a row may come or stay away (`mask`).
"""

import datetime
import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from aaren.datasets.dates import refuse_unordered
from aaren.engine.estimator import require_levels
from aaren.errors import ConfigError, ShapeError, require_at_least, unknown_name
from aaren.export.whole import WholeStep
from aaren.forecasting.calendar import CLOCKS, count_slots, find_slots
from aaren.forecasting.forecast_step import forecast_step
from aaren.forecasting.ridge import LAG_STEPS
from aaren.nn.checks import check_model_state
from aaren.nn.mixer import frozen_copy
from aaren.nn.state import State, describe_config, hash_weights
from aaren.stream.raw import names_in
from aaren.stream.session import Item, Session

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

PROBABILITIES = (0.005, 0.025, 0.05, *(round(0.1 * place, 1) for place in range(1, 10)), 0.95, 0.975, 0.995)
TRACKED_LEVELS = (0.8, 0.95)  # intervals whose scale is moved by what comes
TRACKED_MISSES = tuple(1.0 - level for level in TRACKED_LEVELS)
LOWER, UPPER = ([PROBABILITIES.index(p) for p in some] for some in ((0.1, 0.025), (0.9, 0.975)))
MOST_TRACKED = 12  # steps of the horizon
MOST_PENDING = 16  # forecasts kept until their truth comes
RATE = 0.003  # of the scales, per row; truth comes a horizon late, and a faster one under-covers
LEAST_SPREAD = 0.05**0.5  # root of a standard deviation, in those of the training rows
CHUNK = 256  # rows whose forecasts are made at once


@dataclass(frozen=True, kw_only=True, slots=True)
class LagForecasterConfig:
    """What a `LagForecaster` is made of."""

    num_series: int
    horizon_steps: int
    lag_steps: int = LAG_STEPS
    joint_steps: int = 0  # lags of all columns that add to the base of each; 0: every column by itself
    is_shared: bool = False  # one set of weights for all series
    clock: str = "none"  # what a row's place in the calendar is counted by
    slot_seconds: int = 3600  # between two slots of the clock "week"
    time_zone: str = ""  # whose clocks; empty: as dates are given
    num_covariates: int = 0  # numbers that are known of every row, future ones too

    def __post_init__(self) -> None:
        """Report a setting that cannot be."""
        require_at_least(self, num_series=1, horizon_steps=1, lag_steps=2, joint_steps=0, slot_seconds=1)
        if self.clock not in CLOCKS:
            raise unknown_name("clock", self.clock, CLOCKS)
        if self.joint_steps > self.lag_steps:
            raise ConfigError(
                f"joint_steps must be at most lag_steps, {self.lag_steps}; got {self.joint_steps}."
            )

    @property
    def num_slots(self) -> int:
        """Return the slots of the clock."""
        return count_slots(self.clock, self.slot_seconds)

    @property
    def tracked_steps(self) -> tuple[int, ...]:
        """Return the steps of the horizon whose quantiles and scales are kept; between them lines."""
        return tuple(sorted({round(x) for x in np.geomspace(1, self.horizon_steps, MOST_TRACKED)}))

    @property
    def pending_every(self) -> int:
        """Return the rows between two forecasts that are kept: no divisor of a day, so that hours change."""
        found = math.ceil(self.horizon_steps / MOST_PENDING)
        while found > 1 and math.gcd(found, 6) > 1:
            found += 1
        return found

    @property
    def num_pending(self) -> int:
        """Return how many are kept."""
        return self.horizon_steps // self.pending_every + 1


class _LagParts(NamedTuple):
    lags: Tensor  # (b, series, lag steps)  scaled, without profile, the latest last
    slot: Tensor  # (b, series) int64  of the latest row
    num_rows: Tensor  # (b, series) int64  so far
    pending: Tensor  # (b, series, pending, tracked, 2)  forecast and spread, until the truth comes
    log_scale: Tensor  # (b, series, tracked, 2)  of the intervals at TRACKED_LEVELS


class LagState(_LagParts, State):
    """Its size depends on the model and the number of streams, never on how many rows have come."""

    __slots__ = ()


class Along(NamedTuple):
    """What a model saw and learned at each of many rows."""

    lags: Tensor  # (b, series, t, lag steps), a view
    slots: Tensor  # (b, t, series)
    log_scale: Tensor  # (b, t, series, tracked, 2), after the row
    state: LagState  # after the last


class LagForecaster(nn.Module):
    """Forecast `horizon_steps` rows after each row: `forward` over many rows, `step` row by row.

    Its weights are set by `aaren.forecasting.fitting`; unfitted, it repeats the last value.

    >>> model = LagForecaster(LagForecasterConfig(num_series=2, horizon_steps=3, lag_steps=4))
    >>> forecasts, state = model(torch.tensor([[[1.0, 5.0], [2.0, 6.0]]]))
    >>> forecasts[0, -1].tolist(), model.step(torch.tensor([[3.0, 7.0]]), state)[0][0, 0].tolist()
    ([[2.0, 6.0], [2.0, 6.0], [2.0, 6.0]], [3.0, 7.0])
    """

    config_type: ClassVar[type[LagForecasterConfig]] = LagForecasterConfig
    computes_in_float64: ClassVar[bool] = True  # also on the native engine

    def __init__(self, config: LagForecasterConfig) -> None:
        super().__init__()
        self.config = config
        s, h = config.num_series, config.horizon_steps
        tracked = len(config.tracked_steps)

        def fixed(*shape: int, value: float = 0.0) -> nn.Parameter:
            return nn.Parameter(torch.full(shape, value, dtype=torch.float64), requires_grad=False)

        self.mean, self.deviation = fixed(s), fixed(s, value=1.0)
        self.profile = fixed(config.num_slots, s)
        self.weight = fixed(1 if config.is_shared else s, config.lag_steps, h)  # the last row is the bias
        self.joint = fixed(s * (config.joint_steps - 1), s * h) if config.joint_steps else None
        self.covariate = fixed(config.num_covariates, s) if config.num_covariates else None
        self.quantiles = fixed(s, tracked, len(PROBABILITIES))  # of residuals, in spreads of the last rows
        self.first_log_scale = fixed(s, tracked, len(TRACKED_LEVELS))
        steps = np.array(config.tracked_steps)
        mix = np.stack([np.interp(np.arange(1, h + 1), steps, row) for row in np.eye(tracked)], axis=1)
        self.register_buffer("spread_steps", torch.from_numpy(mix), persistent=False)  # (h, tracked)
        self.register_buffer("tracked", torch.from_numpy(steps), persistent=False)

    spread_steps: Tensor
    tracked: Tensor
    preprocessing: Mapping[str, Any] | None = None  # of the run that it comes from: names of columns

    def extra_repr(self) -> str:
        return f"horizon_steps={self.config.horizon_steps}, lag_steps={self.config.lag_steps}"

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> LagState:
        """Return the state before the first row, for `batch_size` streams."""
        del dtype  # always float64
        config = self.config
        device = device or self.mean.device
        shape = (batch_size, config.num_series)
        kept = (config.num_pending, len(config.tracked_steps), 2)
        return LagState(
            lags=torch.zeros(*shape, config.lag_steps, dtype=torch.float64, device=device),
            slot=torch.zeros(shape, dtype=torch.int64, device=device),
            num_rows=torch.zeros(shape, dtype=torch.int64, device=device),
            pending=torch.zeros(*shape, *kept, dtype=torch.float64, device=device),
            log_scale=self.first_log_scale.expand(batch_size, -1, -1, -1).clone(),
        )

    def forward(
        self,
        rows: Tensor,
        state: LagState | None = None,
        *,
        slots: Tensor | None = None,
        covariates: Tensor | None = None,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, LagState]:
        """Take in many rows.

        Args:
            rows: (b, t, series).
            state: what came before; default: nothing.
            slots: (b, t) int, places in the calendar; default: they count on.
            covariates: (b, t, covariates).
            mask: (b, t) or (b, t, series) bool, True = real.
            positions: (k,) int; forecast only after these rows; default: after all.

        Returns:
            Forecasts, (b, t or k, horizon steps, series), and the state.
        """
        if rows.ndim != 3:
            raise ShapeError(f"rows must be (b, t, {self.config.num_series}); got {tuple(rows.shape)}.")
        b, t, size = rows.shape
        state = self.init_state(b, device=rows.device) if state is None else state
        wanted = torch.arange(t, device=rows.device) if positions is None else positions.to(rows.device)
        if t == 0:
            return rows.new_zeros((b, 0, self.config.horizon_steps, size), dtype=torch.float64), state
        if mask is None and _is_even(state.num_rows):
            along = self.along(rows, state, slots=slots, covariates=covariates)
            lags, places, state = along.lags, along.slots, along.state
        else:
            kept = []
            for place in range(t):
                state = self.advance(
                    rows[:, place],
                    state,
                    slot=None if slots is None else slots[:, place],
                    covariates=None if covariates is None else covariates[:, place],
                    mask=None if mask is None else mask[:, place],
                )
                kept.append((state.lags, state.slot))
            lags = torch.stack([one for one, _ in kept], dim=2) if kept else state.lags[:, :, None][:, :, :0]
            places = torch.stack([one for _, one in kept], dim=1) if kept else state.slot[:, None][:, :0]
        found = [rows.new_zeros(b, 0, self.config.horizon_steps, size)]
        for some in torch.split(wanted, CHUNK) if len(wanted) else ():
            at = places[:, some]
            scaled = self.forecast_lags(lags[:, :, some].transpose(1, 2).flatten(0, 1))
            found.append(
                self._restore(scaled.transpose(1, 2), at.flatten(0, 1), None, None).view(
                    *at.shape[:2], self.config.horizon_steps, size
                )
            )
        return torch.cat(found[1:] or found, dim=1), state

    def along(
        self,
        rows: Tensor,
        state: LagState,
        *,
        slots: Tensor | None = None,
        covariates: Tensor | None = None,
    ) -> "Along":
        """Take in many whole rows at once, as `step` would one by one; only the scales go through a loop.

        Args:
            rows: (b, t, series), t at least 1.
            state: what came before; the same number of rows in every series.
            slots: (b, t) or (b, t, series), places in the calendar; default: they count on.
            covariates: (b, t, covariates) or (b, t, series, covariates).
        """
        config, t = self.config, rows.shape[1]
        if (covariates is None) != (self.covariate is None):
            raise ShapeError(f"this model takes {config.num_covariates} covariates with every row.")
        check_model_state(state, LagState, rows.shape[0])
        before = int(state.num_rows.reshape(-1)[0])
        if slots is None:
            ahead = torch.arange(1, t + 1, device=rows.device)
            slots = state.slot.unsqueeze(1) + ahead[:, None]
        slots = (slots.long() if slots.ndim == 3 else slots.long().unsqueeze(-1)) % config.num_slots
        slots = slots.expand(rows.shape)
        value = (rows.double() - self.mean) / self.deviation - self._profile(slots)
        if covariates is not None:
            value = value - self._effect(covariates, value.shape)
        value = value.transpose(1, 2)  # (b, series, t)
        past = state.lags if before else value[:, :, :1].expand_as(state.lags)
        lags = torch.cat([past, value], dim=2).unfold(2, config.lag_steps, 1)[:, :, 1:]
        every, ring = config.pending_every, config.num_pending
        oldest = max(1, -(-(before - config.horizon_steps) // every))  # forecasts kept, by their row / every
        old = torch.arange(oldest, before // every + 1, device=rows.device)
        new = torch.arange(before // every + 1, (before + t) // every + 1, device=rows.device)
        kept = [state.pending[:, :, old % ring]]
        with torch.no_grad():
            for some in torch.split(new * every - before - 1, CHUNK) if len(new) else ():
                seen = lags[:, :, some].transpose(1, 2).flatten(0, 1)
                chosen = self.forecast_lags(seen)[..., self.tracked - 1]
                spread = self.spread(seen).unsqueeze(-1).expand_as(chosen)
                found = torch.stack([chosen, spread], dim=-1)
                found = found.view(rows.shape[0], len(some), *found.shape[1:])
                kept.append(found.transpose(1, 2))
            pending = state.pending.clone()
            last = new[-ring:]
            if len(last):
                pending[:, :, last % ring] = torch.cat(kept[1:], dim=2)[:, :, -len(last) :]
            scales = self._learn_along(value, torch.cat(kept, dim=2), before, oldest, state.log_scale)
        final = LagState(
            lags[:, :, -1].clone(), slots[:, -1].clone(), state.num_rows + t, pending, scales[:, -1].clone()
        )
        return Along(lags=lags, slots=slots, log_scale=scales, state=final)

    def _learn_along(
        self, value: Tensor, kept: Tensor, before: int, oldest: int, log_scale: Tensor
    ) -> Tensor:
        """Return the scales after every row, (b, t, series, tracked, 2), as `_learn` moves them."""
        every = self.config.pending_every
        count = before + torch.arange(1, value.shape[2] + 1, device=value.device)
        origin = count.unsqueeze(-1) - self.tracked  # (t, tracked)
        is_due = (origin >= 1) & (origin % every == 0)
        if not bool(is_due.any()):
            return log_scale.unsqueeze(1).repeat(1, value.shape[2], 1, 1, 1)
        place = (origin // every - oldest).clamp(0, kept.shape[2] - 1)
        said = kept[
            :, :, place, torch.arange(len(self.tracked), device=value.device)
        ]  # (b, s, t, tracked, 2)
        ratios = self._ratio(value.unsqueeze(-1), said, lambda some: some.unsqueeze(1))
        ratio, due = ratios.transpose(1, 2).cpu().numpy(), is_due[:, None, :, None].cpu().numpy()
        miss = 1.0 - np.array(TRACKED_LEVELS)
        moves = due * (RATE * every * np.sqrt(TRACKED_MISSES[0] / miss))  # (t, 1, tracked, 2)
        scale, found = log_scale.cpu().numpy(), np.empty((ratio.shape[0], *ratio.shape[1:]))
        for row in range(ratio.shape[1]):
            scale = scale + moves[row] * ((ratio[:, row] > np.exp(scale)) - miss)
            found[:, row] = scale
        return torch.from_numpy(found).to(value.device)

    def step(
        self,
        row: Tensor,
        state: LagState,
        *,
        slot: Tensor | None = None,
        covariates: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, LagState]:
        """Take in one row per stream, (b, series), and return the new forecast, (b, horizon steps, series).

        Args:
            row: (b, series), raw.
            state: from `init_state`, `forward` or an earlier `step`.
            slot: (b,) or (b, series), the place in the calendar; default: the one after the latest row's.
            covariates: (b, covariates) or (b, series, covariates), of this row.
            mask: (b,) or (b, series) bool; what is False keeps its state bit for bit.
        """
        taken, real = self._take_in(row, state, slot, covariates, mask)
        forecast = self.forecast_lags(taken.lags)
        state = self._settle(self._keep(taken, forecast), state, real)
        if real is not None:  # a series that stayed away repeats its forecast
            forecast = torch.where(real.unsqueeze(-1), forecast, self.forecast_lags(state.lags))
        return self._restore(forecast.transpose(1, 2), state.slot, None, None), state

    def advance(
        self,
        row: Tensor,
        state: LagState,
        *,
        slot: Tensor | None = None,
        covariates: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> LagState:
        """Take in one row per stream as `step` does and forecast only where the intervals learn from it."""
        taken, real = self._take_in(row, state, slot, covariates, mask)
        if bool((taken.num_rows % self.config.pending_every == 0).any()):
            taken = self._keep(taken, self.forecast_lags(taken.lags))
        return self._settle(taken, state, real)

    def predict(
        self, state: LagState, *, slots: Tensor | None = None, covariates: Tensor | None = None
    ) -> Tensor:
        """Return the forecast of each stream as it stands, (b, horizon steps, series); no row is taken in.

        Args:
            state: of the streams.
            slots: (b, horizon steps) or with a third axis of series: places of the future in the calendar;
                default: they count on.
            covariates: (b, horizon steps, covariates), of the future; or with series as third axis.
        """
        scaled = self.forecast_lags(state.lags).transpose(1, 2)  # (b, h, series)
        return self._restore(scaled, state.slot, slots, covariates)

    def predict_quantiles(
        self,
        state: LagState,
        probabilities: Tensor,
        *,
        slots: Tensor | None = None,
        covariates: Tensor | None = None,
    ) -> Tensor:
        """Return quantiles of each stream's forecast, (b, horizon steps, series, probabilities)."""
        forecast = self.predict(state, slots=slots, covariates=covariates)
        return self.quantiles_of(forecast, state, probabilities)

    def quantiles_of(self, forecast: Tensor, state: LagState, probabilities: Tensor) -> Tensor:
        """Return quantiles around a forecast, (b, horizon steps, series, probabilities)."""
        return forecast.unsqueeze(-1) + self.residuals(state, probabilities)

    def keep_scale(self, state: LagState, before: LagState) -> LagState:
        """Return a state whose intervals are as wide as another's."""
        return state._replace(log_scale=before.log_scale)

    def residuals(self, state: LagState, probabilities: Tensor) -> Tensor:
        """Return quantiles of what the forecast will miss, in raw units; shape as `predict_quantiles`."""
        found = self.spread(state.lags).unsqueeze(-1).unsqueeze(-1) * torch.einsum(
            "hj,bsjq->bshq", self.spread_steps, self.bands(state.log_scale, probabilities)
        )
        return found.transpose(1, 2) * self.deviation.unsqueeze(-1)

    def bands(self, log_scale: Tensor, probabilities: Tensor) -> Tensor:
        """Return quantiles of residuals at the tracked steps, in spreads, (..., series, tracked, q)."""
        known = torch.tensor(PROBABILITIES, dtype=torch.float64, device=log_scale.device)
        table = interpolate(self.quantiles, known, probabilities)
        mirrored = interpolate(self.quantiles, known, 1.0 - probabilities)
        centre, half = (table + mirrored) / 2, (table - mirrored) / 2
        level = (1.0 - 2.0 * torch.minimum(probabilities, 1.0 - probabilities)).clamp(*TRACKED_LEVELS)
        share = (level - TRACKED_LEVELS[0]) / (TRACKED_LEVELS[1] - TRACKED_LEVELS[0])
        scale = log_scale[..., :1] * (1.0 - share) + log_scale[..., 1:] * share
        return centre + half * scale.exp()

    def forecast_windows(self, past: Tensor, past_slots: Tensor, future_slots: Tensor) -> Tensor:
        """Return forecasts (b, horizon steps, series) of raw windows, (b, lag steps, series), each by itself.

        Args:
            past: raw rows.
            past_slots: (b, lag steps) int, their places in the calendar.
            future_slots: (b, horizon steps) int.
        """
        known, ahead = (
            some.unsqueeze(-1).expand(-1, -1, self.config.num_series) for some in (past_slots, future_slots)
        )
        value = (past.double() - self.mean) / self.deviation - self._profile(known)
        scaled = self.forecast_lags(value.transpose(1, 2)).transpose(1, 2)
        return (scaled + self._profile(ahead)) * self.deviation + self.mean

    def forecast_lags(self, lags: Tensor) -> Tensor:
        """Return forecasts, scaled and without profile, (b, series, h), of lags (b, series, lag steps)."""
        last = lags[..., -1:]
        differences = lags[..., :-1] - last
        if self.config.is_shared:
            found = differences @ self.weight[0, :-1] + self.weight[0, -1]
        else:
            found = torch.einsum("bsp,sph->bsh", differences, self.weight[:, :-1]) + self.weight[:, -1]
        if self.joint is not None:
            seen = differences[..., -(self.config.joint_steps - 1) :].flatten(1)
            found = found + (seen @ self.joint).view(found.shape)
        return found + last

    def spread(self, lags: Tensor) -> Tensor:
        """Return what residuals are relative to, (b, series) of lags (b, series, lag steps), never quite 0.

        It is the root of the standard deviation of the last rows, half way between that and a constant:
        volatility persists, then reverts.
        """
        return lags.var(-1, correction=0).clamp(min=LEAST_SPREAD**4).sqrt().sqrt()

    def stream(self, batch_size: int | None = None, *, engine: str = "auto") -> "LagSession":
        """Open a session that holds the state: push raw rows, read forecasts.

        Args:
            batch_size: how many streams go side by side; None: one, whose rows and forecasts lack that axis.
            engine: "auto", "torch" or "native", as `aaren.stream.session.Session` takes it.
        """
        return LagSession(self.fold(), batch_size=batch_size, engine=engine)

    def whole_step(self) -> WholeStep:
        """Return the step from a raw row, and the time of its date, to forecasts with intervals."""
        return forecast_step(self, columns=names_in(self.preprocessing, "columns"))

    def fold(self) -> "LagForecaster":
        """Return a frozen copy for inference; states pass between it and the original."""
        return frozen_copy(self)

    def fingerprint(self) -> str:
        """Return a short name of these weights, to be kept with saved states."""
        named = describe_config(self.config) + hash_weights(list(self.state_dict().values()))
        return hashlib.sha256(named.encode()).hexdigest()[:16]

    def _profile(self, slots: Tensor) -> Tensor:
        """Return the profile of (..., series) slots."""
        return self.profile.gather(0, slots.reshape(-1, slots.shape[-1])).view(slots.shape)

    def _effect(self, covariates: Tensor, shape: torch.Size) -> Tensor:
        """Return what covariates, (..., k) or of each series (..., series, k), add, (..., series)."""
        assert self.covariate is not None
        if covariates.ndim > len(shape):
            return (covariates.double() * self.covariate.T).sum(-1)
        return covariates.double() @ self.covariate

    def _restore(
        self, scaled: Tensor, slot: Tensor, slots: Tensor | None, covariates: Tensor | None
    ) -> Tensor:
        """Put profile, covariates and units back on (b, h, series); slot: of the latest row."""
        if slots is None:
            ahead = torch.arange(1, self.config.horizon_steps + 1, device=scaled.device)
            slots = (slot.unsqueeze(1) + ahead[:, None]) % self.config.num_slots
        elif slots.ndim == 2:
            slots = slots.unsqueeze(-1).expand_as(scaled)
        scaled = scaled + self._profile(slots)
        if self.covariate is not None and covariates is not None:
            scaled = scaled + self._effect(covariates, scaled.shape)
        return scaled * self.deviation + self.mean

    def _take_in(
        self,
        row: Tensor,
        state: LagState,
        slot: Tensor | None,
        covariates: Tensor | None,
        mask: Tensor | None,
    ) -> tuple[LagState, Tensor | None]:
        """Return the state after a row, as if all of it were real, and which of it is, (b, series)."""
        config = self.config
        if row.ndim != 2 or row.shape[1] != config.num_series:
            raise ShapeError(f"a row must be (b, {config.num_series}); got {tuple(row.shape)}.")
        if (covariates is None) != (self.covariate is None):
            raise ShapeError(f"this model takes {config.num_covariates} covariates with every row.")
        check_model_state(state, LagState, row.shape[0])
        real = None
        if mask is not None:  # what stands in a missing value, even NaN, has no effect
            real = mask.unsqueeze(1).expand_as(row) if mask.ndim == 1 else mask
            row = row.masked_fill(~real, 0.0)
        slots = (state.slot + 1) % config.num_slots
        if slot is not None:
            slots = slot.long() % config.num_slots
            slots = slots.unsqueeze(1).expand_as(state.slot) if slots.ndim == 1 else slots
        value = (row.double() - self.mean) / self.deviation - self._profile(slots)
        if covariates is not None and self.covariate is not None:
            value = value - self._effect(covariates, value.shape)
        new = value.unsqueeze(-1)
        is_first = (state.num_rows == 0).unsqueeze(-1)  # before the first row its value, for ever
        lags = torch.where(is_first, new, torch.cat([state.lags[:, :, 1:], new], dim=2))
        return LagState(lags, slots, state.num_rows + 1, state.pending, self._learn(value, state)), real

    def _settle(self, taken: LagState, before: LagState, real: Tensor | None) -> LagState:
        """Keep the old state bit for bit where nothing real came."""
        if real is None:
            return taken
        return LagState(
            *(
                torch.where(real.view(*real.shape, *[1] * (now.ndim - 2)), now, old)
                for now, old in zip(taken, before, strict=True)
            )
        )

    def _keep(self, state: LagState, forecast: Tensor) -> LagState:
        """Keep the forecast of every so many rows at the tracked steps, and the spread it is judged by."""
        config, count = self.config, state.num_rows
        chosen = forecast[..., self.tracked - 1]
        spread = self.spread(state.lags).unsqueeze(-1).expand_as(chosen)
        new = torch.stack([chosen, spread], dim=-1).unsqueeze(2)
        place = (count // config.pending_every) % config.num_pending
        is_here = torch.arange(config.num_pending, device=count.device) == place.unsqueeze(-1)
        is_here = is_here & (count % config.pending_every == 0).unsqueeze(-1)
        return state._replace(pending=torch.where(is_here[..., None, None], new, state.pending))

    def _learn(self, value: Tensor, state: LagState) -> Tensor:
        """Move the scales of those tracked steps whose truth this row is."""
        config = self.config
        origin = state.num_rows.unsqueeze(-1) + 1 - self.tracked  # (b, series, tracked)
        is_due = (origin >= 1) & (origin % config.pending_every == 0)
        place = (origin.clamp(min=0) // config.pending_every) % config.num_pending
        kept = state.pending.gather(2, place[:, :, None, :, None].expand(-1, -1, 1, -1, 2)).squeeze(2)
        levels = torch.tensor(TRACKED_LEVELS, dtype=torch.float64, device=value.device)
        missed = (self._ratio(value.unsqueeze(-1), kept) > state.log_scale.exp()).double()
        rate = RATE * config.pending_every * (TRACKED_MISSES[0] / (1.0 - levels)).sqrt()
        moved = state.log_scale + rate * (missed - (1.0 - levels))
        return torch.where(is_due.unsqueeze(-1), moved, state.log_scale)

    def _ratio(
        self, value: Tensor, kept: Tensor, align: Callable[[Tensor], Tensor] = lambda some: some
    ) -> Tensor:
        """Return errors of kept forecasts in half widths of the unscaled intervals, (..., tracked, 2)."""
        error = ((value - kept[..., 0]) / kept[..., 1].clamp(min=LEAST_SPREAD)).unsqueeze(-1)
        low, high = align(self.quantiles[..., LOWER]), align(self.quantiles[..., UPPER])
        return (error - (low + high) / 2).abs() / ((high - low) / 2 + 1e-12)


class LagSession(Session[LagState]):
    """A session that also knows dates: `push(row, when=...)`."""

    model: LagForecaster

    def push(
        self, item: Item, *, when: "pandas.Timestamp | datetime.datetime | None" = None, **extras: Item
    ) -> Tensor:
        """Take in one raw row and return the forecast after it, in the same units.

        Args:
            item: (series,), or (b, series).
            when: its date, by which its place in the calendar is known; default: one step after the last.
            **extras: `slot`, `covariates`, `mask`, as `step` takes them.
        """
        if when is not None:
            slot = float(self.model_slot(when))
            extras["slot"] = slot if self.batch_size is None else [slot] * self.batch_size
        return super().push(item, **extras)

    def model_slot(self, when: Any) -> int:  # Any: whatever pandas reads as a date
        """Return the slot of a date."""
        import pandas

        config = self.model.config
        refuse_unordered(when, name="when")
        stamp = pandas.Timestamp(when)
        if stamp.tz is not None:
            stamp = stamp.tz_convert(config.time_zone or "UTC").tz_localize(None)
        return int(find_slots(np.array([stamp.to_datetime64()]), config.clock, config.slot_seconds)[0])

    def quantiles(self, levels: list[float]) -> Tensor:
        """Return the bounds of intervals, (..., horizon steps, series, 2 * levels): lower, then upper ones.

        Args:
            levels: in percent, as [80, 95].
        """
        sides = [0.5 + side * level / 200.0 for side in (-1.0, 1.0) for level in require_levels(levels)]
        with torch.no_grad():
            found = self.model.predict_quantiles(self.state, torch.tensor(sides, dtype=torch.float64))
        return found.squeeze(0) if self.batch_size is None else found


def _is_even(num_rows: Tensor) -> bool:
    """Tell whether as many rows came of every series."""
    return bool((num_rows == num_rows.reshape(-1)[0]).all())


def interpolate(table: Tensor, known: Tensor, wanted: Tensor) -> Tensor:
    """Return the table, (..., known), at other points; beyond its ends the ends."""
    wanted = wanted.to(known).clamp(known[0], known[-1])
    right = torch.searchsorted(known, wanted).clamp(1, len(known) - 1)
    share = (wanted - known[right - 1]) / (known[right] - known[right - 1])
    return table[..., right - 1] * (1.0 - share) + table[..., right] * share
