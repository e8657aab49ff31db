"""BankForecaster: smoothers and regressions on lags, combined, as a stream of raw rows in constant memory.

`aaren.forecasting.bank_fitting` finds its constants and weights. Each space (raw values, logarithms, values
without the effect of covariates) has its own weights; spaces meet in raw units.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from aaren.errors import ConfigError, ShapeError, require_at_least
from aaren.export.whole import WholeStep
from aaren.forecasting.bank_fitting import SeriesFit
from aaren.forecasting.combination import LOCAL_POWER
from aaren.forecasting.forecast_step import forecast_step
from aaren.forecasting.lagged import PROBABILITIES, LagSession, interpolate
from aaren.forecasting.smoothing_bank import Row
from aaren.nn.checks import check_model_state
from aaren.nn.mixer import frozen_copy
from aaren.nn.state import State, describe_config, hash_weights
from aaren.ops.tracing import is_traced
from aaren.stream.raw import names_in

WIDEST = 30.0  # of relative misses, logarithms: no power of them overflows
SPACES = ("raw", "log", "covariates")


@dataclass(frozen=True, kw_only=True, slots=True)
class BankForecasterConfig:
    """What a `BankForecaster` is made of."""

    num_series: int
    horizon_steps: int
    num_members: int = 1  # smoothers of a series, at most
    season_steps: int = 1
    lag_steps: int = 1
    has_logs: bool = False
    num_covariates: int = 0  # numbers that are known of every row, future ones too

    def __post_init__(self) -> None:
        """Report a setting that cannot be."""
        require_at_least(
            self, num_series=1, horizon_steps=1, num_members=1, season_steps=1, lag_steps=1, num_covariates=0
        )
        if not isinstance(self.has_logs, bool):
            raise ConfigError(f"has_logs must be True or False; got {self.has_logs!r}.")

    @property
    def spaces(self) -> tuple[str, ...]:
        """Return the names of the spaces that candidates forecast in."""
        is_there = (True, self.has_logs, self.num_covariates > 0)
        return tuple(name for name, there in zip(SPACES, is_there, strict=True) if there)

    @property
    def clock(self) -> str:
        """Return that rows are counted, whatever their dates."""
        return "none"

    @property
    def slot_seconds(self) -> int:
        """Return the seconds of a slot of the clock, of which there is one."""
        return 3600

    @property
    def time_zone(self) -> str:
        """Return that no zone matters."""
        return ""


class _BankParts(NamedTuple):
    level: Tensor  # (b, series, members)
    slope: Tensor  # (b, series, members)
    season: Tensor  # (b, series, members, season), the next row's first
    spread: Tensor  # (b, series, members) of errors
    jumped: Tensor  # (b, series, members), 1.0 where the last error was cut
    lags: Tensor  # (b, series, lag steps), raw, the latest last
    effects: Tensor  # (b, series, lag steps) of covariates; no columns without them
    reach: Tensor  # (b, series, 2) the smallest and the largest value
    local: Tensor  # (b, series) spread of the last changes
    num_rows: Tensor  # (b, series) int64 so far


class BankState(_BankParts, State):
    """Its size depends on the model and the number of streams, never on how many rows have come."""

    __slots__ = ()


class BankForecaster(nn.Module):
    """Forecast `horizon_steps` rows after each row by a weighted bank of recurrences.

    `from_fits` makes one of fitted series; a stream goes on where the rows fitted to end.

    >>> from aaren.forecasting.bank_fitting import fit_bank
    >>> values = np.arange(24.0) + 10
    >>> model = BankForecaster.from_fits(fit_bank([values], horizon=2, season=1), horizon=2)
    >>> model.predict(model.init_state(1))[0, :, 0].round().tolist()
    [34.0, 35.0]
    """

    config_type: ClassVar[type[BankForecasterConfig]] = BankForecasterConfig
    computes_in_float64: ClassVar[bool] = True  # also on the native engine

    def __init__(self, config: BankForecasterConfig) -> None:
        super().__init__()
        self.config = config
        s, h, p, m = config.num_series, config.horizon_steps, config.num_members, config.season_steps
        spaces, lags = len(config.spaces), config.lag_steps

        def fixed(*shape: int, value: float = 0.0) -> nn.Parameter:
            return nn.Parameter(torch.full(shape, value, dtype=torch.float64), requires_grad=False)

        self.mean, self.deviation = fixed(s), fixed(s, value=1.0)
        self.alpha, self.beta, self.gamma, self.phi = (fixed(s, p) for _ in range(4))
        self.is_log, self.is_adjusted = fixed(s, p), fixed(s, p)  # of a smoother: 1.0 in that space
        self.space_weight = fixed(spaces, s)
        self.member_weight, self.slope_weight = fixed(spaces, s, p), fixed(spaces, s, p, h)
        self.matrix, self.bias = fixed(spaces, s, h, lags), fixed(spaces, s, h)
        self.covariate = fixed(config.num_covariates, s) if config.num_covariates else None
        self.log_floor = fixed(s, value=1.0)
        self.is_relative, self.floor = fixed(s), fixed(s, value=1.0)
        self.widths, self.quantiles = fixed(s, h), fixed(s, len(PROBABILITIES))
        self.local_reference, self.least_local = fixed(s, value=1.0), fixed(s, value=1e-12)
        self.local_rate = fixed(s)
        self.first_level, self.first_slope = fixed(s, p), fixed(s, p)
        self.first_spread, self.first_jumped = fixed(s, p, value=1.0), fixed(s, p)
        self.first_season, self.first_lags = fixed(s, p, m), fixed(s, lags)
        self.first_effects = fixed(s, lags if config.num_covariates else 0)
        self.first_reach, self.first_rows = fixed(s, 2), fixed(s)
        self.register_buffer("one", torch.ones(1, dtype=torch.float64), persistent=False)

    one: Tensor

    preprocessing: Mapping[str, Any] | None = None

    def extra_repr(self) -> str:
        config = self.config
        return f"horizon_steps={config.horizon_steps}, num_members={config.num_members}"

    @classmethod
    def from_fits(
        cls, fits: Sequence[SeriesFit], *, horizon: int, covariates: Sequence[np.ndarray] = ()
    ) -> "BankForecaster":
        """Return the model of fitted series.

        Args:
            fits: of each series.
            horizon: rows to forecast.
            covariates: (rows, k) of each series, to which it was fitted.
        """
        spaces = [space for fit in fits for space in fit.spaces.values()]
        members = [
            sum(
                0 if space.smoothers is None else len(space.smoothers.weights)
                for space in fit.spaces.values()
            )
            for fit in fits
        ]
        regressions = [space.regression for space in spaces if space.regression is not None]
        config = BankForecasterConfig(
            num_series=len(fits),
            horizon_steps=horizon,
            num_members=max(1, *members),
            season_steps=max(fit.season for fit in fits),
            lag_steps=max(1, *(regression.matrix.shape[1] for regression in regressions))
            if regressions
            else 1,
            has_logs=any("log" in fit.spaces for fit in fits),
            num_covariates=covariates[0].shape[1] if len(covariates) else 0,
        )
        model = cls(config).eval()
        with torch.no_grad():
            for place, fit in enumerate(fits):
                model._set(place, fit, covariates[place] if len(covariates) else None)
        return model

    def _set(self, place: int, fit: SeriesFit, covariates: np.ndarray | None) -> None:
        """Set everything of one series."""
        config, values, bands = self.config, fit.values, fit.intervals
        deviation = float(values.std())

        def put(target: Tensor, numbers: Any) -> None:  # Any: whatever numpy makes an array of
            target.copy_(torch.from_numpy(np.array(numbers, dtype=np.float64)))

        put(self.mean[place], values.mean())
        put(self.deviation[place], deviation if deviation > 0.0 else 1.0)
        put(self.log_floor[place], fit.log_floor)
        put(self.is_relative[place], bands.is_relative)
        put(self.floor[place], bands.floor or 1.0)
        put(self.widths[place], bands.widths)
        put(self.quantiles[place], bands.quantiles)
        put(self.local_reference[place], bands.local)
        put(self.least_local[place], bands.least_local)
        put(self.local_rate[place], bands.rate)
        put(self.first_reach[place], [values.min(), values.max()])
        put(self.first_rows[place], len(values))
        put(self.first_lags[place], _last(values, config.lag_steps))
        if self.covariate is not None and fit.effect is not None and covariates is not None:
            put(self.covariate[:, place], fit.effect)
            effects = covariates[-len(values) :] @ fit.effect
            put(self.first_effects[place], _last(effects, config.lag_steps))
        first, steps = 0, np.arange(1, config.horizon_steps + 1)
        for name, space in fit.spaces.items():
            index = config.spaces.index(name)
            put(self.space_weight[index, place], space.weight)
            if space.regression is not None:
                put(
                    self.matrix[index, place, :, config.lag_steps - space.regression.matrix.shape[1] :],
                    space.regression.matrix,
                )
                put(self.bias[index, place], space.regression.bias)
            own = space.smoothers
            if own is None:
                continue
            slots = slice(first, first + len(own.weights))
            first += len(own.weights)
            for target, constant in zip(
                (self.alpha, self.beta, self.gamma, self.phi), own.constants, strict=True
            ):
                put(target[place, slots], constant)
            put(self.is_log[place, slots], np.full(len(own.weights), name == "log"))
            put(self.is_adjusted[place, slots], np.full(len(own.weights), name == "covariates"))
            put(self.member_weight[index, place, slots], own.weights)
            slopes = np.cumsum(own.constants[3] ** steps[:, None], axis=0).T
            put(self.slope_weight[index, place, slots], own.weights[:, None] * slopes)
            put(self.first_level[place, slots], own.level)
            put(self.first_slope[place, slots], own.slope)
            put(self.first_spread[place, slots], own.spread)
            put(self.first_jumped[place, slots], own.jumped)
            put(self.first_season[place, slots, : own.season.shape[1]], own.season)

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> BankState:
        """Return the state after the rows fitted to, for `batch_size` streams."""
        del dtype  # always float64
        first = (
            self.first_level,
            self.first_slope,
            self.first_season,
            self.first_spread,
            self.first_jumped,
            self.first_lags,
            self.first_effects,
            self.first_reach,
            self.local_reference,
            self.first_rows.long(),
        )
        device = device or self.mean.device
        return BankState(
            *(part.detach().to(device).expand(batch_size, *part.shape).clone() for part in first)
        )

    def forward(
        self,
        rows: Tensor,
        state: BankState | None = None,
        *,
        slots: Tensor | None = None,
        covariates: Tensor | None = None,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, BankState]:
        """Take in many rows.

        Args:
            rows: (b, t, series).
            state: what came before; default: the rows fitted to.
            slots: not used: rows are counted.
            covariates: (b, t, covariates) or (b, t, series, covariates).
            mask: (b, t) or (b, t, series) bool, True = real.
            positions: (k,) int; forecast only after these rows; default: after all.

        Returns:
            Forecasts, (b, t or k, horizon steps, series), and the state.
        """
        del slots
        if rows.ndim != 3:
            raise ShapeError(f"rows must be (b, t, {self.config.num_series}); got {tuple(rows.shape)}.")
        b, t, size = rows.shape
        state = self.init_state(b, device=rows.device) if state is None else state
        wanted = set(range(t)) if positions is None else set(positions.tolist())
        forecasts = [rows.new_zeros((b, 0, self.config.horizon_steps, size), dtype=torch.float64)]
        for place in range(t):
            state = self.advance(
                rows[:, place],
                state,
                covariates=None if covariates is None else covariates[:, place],
                mask=None if mask is None else mask[:, place],
            )
            if place in wanted:
                forecasts.append(self.predict(state).unsqueeze(1))
        return torch.cat(forecasts, dim=1), state

    def step(
        self,
        row: Tensor,
        state: BankState,
        *,
        slot: Tensor | None = None,
        covariates: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, BankState]:
        """Take in one row per stream; return the forecast (b, horizon steps, series) after it and the state.

        Args:
            row: (b, series) raw.
            state: of the streams.
            slot: not used: rows are counted.
            covariates: (b, covariates).
            mask: (b,) or (b, series) bool, True = real.
        """
        state = self.advance(row, state, slot=slot, covariates=covariates, mask=mask)
        return self.predict(state), state

    def advance(
        self,
        row: Tensor,
        state: BankState,
        *,
        slot: Tensor | None = None,
        covariates: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> BankState:
        """Take in one row per stream as `step` does, without a forecast."""
        del slot
        config = self.config
        if row.ndim != 2 or row.shape[1] != config.num_series:
            raise ShapeError(f"a row must be (b, {config.num_series}); got {tuple(row.shape)}.")
        if (covariates is None) != (self.covariate is None):
            raise ShapeError(f"this model takes {config.num_covariates} covariates with every row.")
        check_model_state(state, BankState, row.shape[0])
        real = None
        if mask is not None:  # what stands in a missing value, even NaN, has no effect
            real = mask.unsqueeze(1).expand_as(row) if mask.ndim == 1 else mask
            row = torch.where(real, row, state.lags[..., -1].to(row.dtype))
        taken = self._take_in(row.double(), state, covariates)
        if real is None:
            return taken
        return BankState(
            *(
                torch.where(real.view(*real.shape, *[1] * (now.ndim - 2)), now, old)
                for now, old in zip(taken, state, strict=True)
            )
        )

    def _take_in(self, row: Tensor, state: BankState, covariates: Tensor | None) -> BankState:
        effect = None if covariates is None else self._effect(covariates, 2)
        constants = (self.alpha, self.beta, self.gamma, self.phi)
        if is_traced() or row.device.type != "cpu":
            return BankState(*self._follow(row, state, effect, constants, torch.where, _join, torch.log))
        numbers: Any = _BankParts(
            *(cast("Any", part.numpy()) for part in state)
        )  # numpy's small operations cost a fifth
        given = None if effect is None else effect.numpy()
        known = [constant.numpy() for constant in constants]
        with np.errstate(divide="ignore"):
            parts = self._follow(row.numpy(), numbers, given, known, np.where, _join_arrays, np.log)
        return BankState(*(torch.from_numpy(part) for part in parts))

    def _follow(
        self, row: Any, state: Any, effect: Any, constants: Any, where: Any, join: Any, log: Any
    ) -> tuple[Any, ...]:  # Any: of torch or of numpy
        """Return the parts of the state after a row, (b, series)."""
        value = targets = row[..., None]
        effects = state.effects
        if effect is not None:
            effects = join(effects[..., 1:], effect[..., None])
            targets = value - self._as(row, self.is_adjusted) * effect[..., None]
        if self.config.has_logs:
            floor = self._as(row, self.log_floor)
            logs = log(where(row > floor, row, floor))[..., None]
            targets = where(self._as(row, self.is_log) > 0.5, logs, targets)
        before = Row(state.level, state.slope, state.season[..., 0], state.spread, state.jumped > 0.5)
        alpha, beta, gamma, phi = constants
        after = before.follow(targets, alpha, beta, gamma, phi, where)
        relative, floor = self._as(row, self.is_relative) > 0.5, self._as(row, self.floor)
        last = state.lags[..., -1]
        ratio = where(row > floor, row, floor) / where(last > floor, last, floor)
        change = abs(where(relative, log(where(relative, ratio, 1.0)), row - last))
        low, high = state.reach[..., 0], state.reach[..., 1]
        low, high = where(row < low, row, low), where(row > high, row, high)
        return (
            after.level,
            after.slope,
            join(state.season[..., 1:], after.phase[..., None]),
            after.spread,
            after.jumped * self._as(row, self.one),
            join(state.lags[..., 1:], value),
            effects,
            join(low[..., None], high[..., None]),
            state.local + self._as(row, self.local_rate) * (change - state.local),
            state.num_rows + 1,
        )

    @staticmethod
    def _as(row: Any, constant: Tensor) -> Any:
        """Return a constant as the row is, an array or a tensor."""
        return constant if isinstance(row, Tensor) else constant.numpy()

    def predict(
        self, state: BankState, *, slots: Tensor | None = None, covariates: Tensor | None = None
    ) -> Tensor:
        """Return the forecast of each stream as it stands, (b, horizon steps, series); no row is taken in.

        Args:
            state: of the streams.
            slots: not used: rows are counted.
            covariates: (b, horizon steps, covariates), of the future; or with series as third axis; default:
                those of the latest row.
        """
        del slots
        low, high = state.reach[..., :1], state.reach[..., 1:]
        total = torch.zeros_like(low)
        for place, name in enumerate(self.config.spaces):
            if name == "log":
                floor = self.log_floor.unsqueeze(-1)
                bottom, top, past = (_larger(some, floor).log() for some in (low, high, state.lags))
                forecast = _limit(self._in_space(place, past, state), bottom, top).exp()
            elif name == "raw":
                forecast = _limit(self._in_space(place, state.lags, state), low, high)
            else:
                effects = state.effects[..., -1:]
                if covariates is not None:
                    effects = self._effect(covariates, 3).transpose(1, 2)
                forecast = self._in_space(place, state.lags - state.effects, state) + effects
            total = total + self.space_weight[place].unsqueeze(-1) * forecast
        return torch.where(low >= 0.0, total.clamp(min=0.0), total).transpose(1, 2)

    def _in_space(self, place: int, past: Tensor, state: BankState) -> Tensor:
        """Return the forecast in one space, (b, series, h)."""
        weight = self.member_weight[place]
        linear = torch.einsum("bsl,shl->bsh", past, self.matrix[place]) + self.bias[place]
        level = (state.level * weight).sum(-1, keepdim=True)
        trend = torch.einsum("bsp,sph->bsh", state.slope, self.slope_weight[place])
        season = torch.einsum("bspm,sp->bsm", state.season, weight)
        turns = -(-self.config.horizon_steps // self.config.season_steps)
        return linear + level + trend + torch.cat([season] * turns, -1)[..., : self.config.horizon_steps]

    def predict_quantiles(
        self,
        state: BankState,
        probabilities: Tensor,
        *,
        slots: Tensor | None = None,
        covariates: Tensor | None = None,
    ) -> Tensor:
        """Return quantiles of each stream's forecast, (b, horizon steps, series, probabilities)."""
        return self.quantiles_of(
            self.predict(state, slots=slots, covariates=covariates), state, probabilities
        )

    def quantiles_of(self, forecast: Tensor, state: BankState, probabilities: Tensor) -> Tensor:
        """Return quantiles around a forecast, (b, horizon steps, series, probabilities)."""
        known = torch.tensor(PROBABILITIES, dtype=torch.float64, device=forecast.device)
        table = interpolate(self.quantiles, known, probabilities)  # (series, q)
        local = _larger(state.local, self.least_local) / self.local_reference
        widths = self.widths * (LOCAL_POWER * local.log()).exp().unsqueeze(-1)  # (b, series, h)
        misses = widths.transpose(1, 2).unsqueeze(-1) * table
        relative = self.is_relative.unsqueeze(-1) > 0.5
        misses = torch.where(relative, misses.clamp(-WIDEST, WIDEST), misses)
        scaled = self._scale(forecast).unsqueeze(-1) + misses
        bounds = torch.where(relative, torch.where(relative, scaled, 0.0).exp(), scaled)
        is_positive = (state.reach[..., 0] >= 0.0).unsqueeze(1).unsqueeze(-1)
        return torch.where(is_positive, bounds.clamp(min=0.0), bounds)

    def keep_scale(self, state: BankState, before: BankState) -> BankState:
        """Return a state whose intervals are as wide as another's."""
        return state._replace(local=before.local)

    def stream(self, batch_size: int | None = None, *, engine: str = "auto") -> LagSession:
        """Open a session that holds the state: push raw rows, read forecasts.

        Args:
            batch_size: how many streams go side by side; None: one, whose rows and forecasts lack that axis.
            engine: "auto", "torch" or "native", as `aaren.stream.session.Session` takes it.
        """
        model: Any = self.fold()  # a session asks for no more than both kinds of forecaster have
        return LagSession(model, batch_size=batch_size, engine=engine)

    def whole_step(self) -> WholeStep:
        """Return the step from a raw row to forecasts with intervals."""
        return forecast_step(self, columns=names_in(self.preprocessing, "columns"))

    def fold(self) -> "BankForecaster":
        """Return a frozen copy for inference; states pass between it and the original."""
        return frozen_copy(self)

    def fingerprint(self) -> str:
        """Return a short name of these weights, to be kept with saved states."""
        named = describe_config(self.config) + hash_weights(list(self.state_dict().values()))
        return hashlib.sha256(named.encode()).hexdigest()[:16]

    def _effect(self, covariates: Tensor, ndim: int) -> Tensor:
        """Return what covariates, (..., k) or of each series (..., series, k), add, (..., series)."""
        assert self.covariate is not None
        if covariates.ndim > ndim:
            return (covariates.double() * self.covariate.T).sum(-1)
        return covariates.double() @ self.covariate

    def _scale(self, values: Tensor) -> Tensor:
        """Return (..., series) values as intervals are measured: logarithms where they are relative."""
        return torch.where(self.is_relative > 0.5, _larger(values, self.floor).log(), values)


def _larger(one: Tensor, other: Tensor) -> Tensor:
    """Return the larger of two, by operations that the native engine has."""
    return torch.where(one > other, one, other)


def _join(first: Tensor, second: Tensor) -> Tensor:
    return torch.cat([first, second], dim=-1)


def _join_arrays(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.concatenate([first, second], axis=-1)


def _limit(forecast: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Keep forecasts within twice the range of the values beyond it."""
    bottom, top = low - 2.0 * (high - low), high + 2.0 * (high - low)
    forecast = torch.where(forecast < bottom, bottom, forecast)
    return torch.where(forecast > top, top, forecast)


def _last(values: np.ndarray, rows: int) -> np.ndarray:
    """Return the last rows, the first one repeated before them where there are fewer."""
    missing = max(0, rows - len(values))
    return np.concatenate([np.repeat(values[:1], missing), values[-rows:]])
