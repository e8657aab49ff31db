"""AarenForecaster: fit a frame of series, forecast what follows with intervals, take in rows as they come.

The model is a bank of recurrences (`BankForecaster`), or, where it is better on many rows, a `LagForecaster`.
Each series has a state of its own: `update` costs time in proportion to the new rows, `predict` none that
grows with the past.
"""

import datetime
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from aaren.engine.estimator import Estimator, Learned, require_whole
from aaren.errors import ConfigError, DataError, require_extra
from aaren.export.whole import WholeStep
from aaren.files.stdio import write_line
from aaren.forecasting.bank_fitting import FEWEST_ROWS, SeriesFit, fit_bank
from aaren.forecasting.bank_forecaster import BankForecaster
from aaren.forecasting.calendar import Dates, find_clock, find_season, find_slots
from aaren.forecasting.fitting import History, compare_with_bank, fit_base, replay
from aaren.forecasting.forecast_step import forecast_step
from aaren.forecasting.frames import (
    FORECAST,
    Fill,
    Panel,
    SeriesId,
    SeriesRows,
    Table,
    read_frame,
    write_frame,
)
from aaren.forecasting.lagged import LagForecaster
from aaren.forecasting.live import LiveSeries, cut_rows, last_rows
from aaren.forecasting.ridge import LAG_STEPS
from aaren.nn.blocks import state_from_bytes, state_to_bytes

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

FITTED_SHARE = 0.8  # of the rows, before the last of three rolling origins; all are fitted in the end
MANY_ROWS = 3000  # of the longest series, from which the linear model on many lags is a candidate
BETTER = 0.75  # of the squared error of the linear model, below which the bank takes its place on many rows
REPLAYED_ROWS = 2000  # at most, through which the state goes after fitting


class AarenForecaster(Estimator, LiveSeries):
    """Forecast many series by a bank of recurrences, not a network, with intervals, as a stream.

    Args:
        horizon: rows to forecast; `predict` goes beyond it by recursion.
        freq: the step between times as pandas calls it, or a whole number; default: that of the rows.
        season_length: rows of a season; default: what the step suggests (24 hours, 7 days, 12 months ...).
        fill: "error" refuses missing rows and values; "interpolate" puts in what lies between the
            neighbours, "seasonal" what was there a season before.
        covariates: columns that are known of the future too, such as prices or holidays.
        id_column: a long frame's column of names.
        time_column: of dates, or of whole numbers.
        target_column: a long frame's column of values.
        verbose: show progress, and the table of candidates after a fit.

    >>> import pandas as pd
    >>> days = pd.date_range("2024-01-01", periods=120, freq="D")
    >>> frame = pd.DataFrame({"unique_id": "shop", "ds": days, "y": [day % 7 for day in range(120)]})
    >>> model = AarenForecaster(horizon=7).fit(frame)
    >>> list(model.predict(levels=[80]).columns)
    ['unique_id', 'ds', 'AarenForecaster', 'AarenForecaster-lo-80', 'AarenForecaster-hi-80']
    >>> tomorrow = pd.DataFrame({"unique_id": "shop", "ds": [days[-1] + pd.Timedelta(days=1)], "y": [1.0]})
    >>> str(model.update(tomorrow).predict()["ds"].iloc[0].date())
    '2024-05-01'
    """

    def __init__(
        self,
        horizon: int,
        *,
        freq: str | int | None = None,
        season_length: int | None = None,
        fill: Fill = "error",
        covariates: Sequence[str] = (),
        id_column: str = "unique_id",
        time_column: str = "ds",
        target_column: str = "y",
        verbose: bool = False,
    ) -> None:
        self.horizon = horizon
        self.freq = freq
        self.season_length = season_length
        self.fill = fill
        self.covariates = covariates
        self.id_column = id_column
        self.time_column = time_column
        self.target_column = target_column
        self.verbose = verbose
        self._settings()  # with all checks, here rather than at fit

    def fit(self, frame: Table) -> "AarenForecaster":
        """Fit to all series of a frame, compare with baselines on its last rows, and take in all rows.

        Args:
            frame: long or wide; a Series of pandas; an array (rows, series); or a dictionary or list of
                series, of any lengths.
        """
        settings = self._settings()
        panel = read_frame(frame, self._columns(), fill=self.fill)
        self._warn_of_unused(frame, panel)
        series, horizon = panel.series, settings["horizon"]
        for name, rows in series.items():
            if len(rows.values) < FEWEST_ROWS:
                raise DataError(
                    f"series {name!r} has {len(rows.values)} rows; at least {FEWEST_ROWS} are needed."
                    + (" An array is (rows, series): is it transposed?" if len(series) > 3 else "")
                )
            _require_finite_scale(name, rows.values)
        self.panel_ = replace(panel, series={})  # its form; the rows are in the state
        self.series_ = tuple(series)
        self.recent_ = {name: last_rows(rows) for name, rows in series.items()}
        self._ahead, self._slots_ahead = {}, {}
        self.held_out_: dict[str, float] = {}
        if not self._fit_lags(series, horizon):
            self._fit_bank(series, horizon)
        self._tell(self.table())
        return self

    def _season(self, series: Mapping[SeriesId, SeriesRows]) -> tuple[int, int]:
        """Return the rows of a season, and of a week where the season is a day."""
        longest = max(series.values(), key=lambda rows: len(rows.times)).times
        season = find_season(longest) if self.season_length is None else int(self.season_length)
        is_day = longest.dtype.kind == "M" and find_clock(cast("Dates", longest))[0] == "week"
        return season, 7 * season if is_day else 0

    def _fit_bank(self, series: Mapping[SeriesId, SeriesRows], horizon: int) -> None:
        """Fit the bank to the latest rows of every series."""
        self._tell("fitting the bank")
        season, week = self._season(series)
        covariates = [cast("NDArray[np.float64]", rows.covariates) for rows in series.values()]
        covariates = covariates if self.covariates else []
        fits = fit_bank(
            [rows.values for rows in series.values()],
            horizon=horizon,
            season=season,
            week=week,
            covariates=covariates,
        )
        self.model_ = BankForecaster.from_fits(fits, horizon=horizon, covariates=covariates)
        self.state_ = self.model_.init_state(1)
        self.candidates_ = _weigh(fits)

    def _fit_lags(self, series: Mapping[SeriesId, SeriesRows], horizon: int) -> bool:
        """Fit the linear model on many lags where rows are many and it is better than the bank."""
        ends = [len(rows.values) for rows in series.values()]
        if max(ends) < MANY_ROWS:
            return False
        fit_ends = [max(1, min(int(FITTED_SHARE * end), end - horizon)) for end in ends]
        most = min(LAG_STEPS, (max(fit_ends) - horizon) // 2)
        if most < 2:
            return False
        history = self._history(series, *self._clock(series))
        fitted = fit_base(
            history,
            horizon_steps=horizon,
            lag_steps=most,
            fit_ends=fit_ends,
            judge_ends=ends,
            is_refitted=True,
            tell=self._tell,
        )
        season, week = self._season(series)
        bank = compare_with_bank(fitted, history, fit_ends, season=season, week=week)
        self.held_out_ = {**fitted.held_out, **bank}
        if bank and bank["bank of smoothers"] < BETTER * fitted.held_out[FORECAST]:
            return False
        self.model_ = fitted.model
        begins = [max(0, end - max(most, REPLAYED_ROWS)) for end in ends]
        state = replay(fitted.model, history, begins, ends)
        first = fitted.model.first_log_scale.unsqueeze(0).clone()
        self.state_ = state._replace(log_scale=first)
        name = f"{most} lags, weights: {fitted.choice.weights}, profile: {fitted.choice.profile}"
        self.candidates_ = {name: (1.0, 1.0)}
        return True

    def _warn_of_unused(self, frame: object, panel: Panel) -> None:
        """Warn of columns of a long frame that nothing names: elsewhere they would count as inputs."""
        used = {self.id_column, self.time_column, self.target_column, *self.covariates}
        unused = [name for name in getattr(frame, "columns", ()) if name not in used]
        if unused and panel.layout == "long":
            warnings.warn(
                f"column(s) {', '.join(map(repr, unused[:8]))} are not used. Name those that are known of "
                f"the future too in covariates=, or drop them.",
                stacklevel=3,
            )

    def cross_validation(
        self,
        frame: Table,
        h: int | None = None,
        *,
        n_windows: int = 1,
        step_size: int | None = None,
        levels: Sequence[float] = (),
    ) -> "pandas.DataFrame":
        """Fit to the rows before the first of some windows, then forecast each window as it would have been.

        Args:
            frame: all rows; this estimator stays as it is.
            h: rows of a window; default: the horizon.
            n_windows: the last of them ends with the frame.
            step_size: rows between two windows; default: h.
            levels: of intervals, in percent.

        Returns:
            A long frame with the columns of `predict`, `cutoff` (the last known time) and the truth.
        """
        pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
        h = self.horizon if h is None else require_whole("h", h)
        step_size = h if step_size is None else require_whole("step_size", step_size)
        require_whole("n_windows", n_windows)
        panel = read_frame(frame, self._columns(), fill=self.fill)
        self._warn_of_unused(frame, panel)
        long = replace(panel, layout="long")
        model = type(self)(**self.get_params())
        found = []
        for window in range(n_windows):
            cut = {
                name: len(rows.values) - h - (n_windows - 1 - window) * step_size
                for name, rows in panel.series.items()
            }
            short = [name for name, rows in cut.items() if rows < 1]
            if short:
                raise DataError(f"series {short[0]!r} is too short for {n_windows} windows of {h} rows.")
            if not window:
                known = {name: cut_rows(rows, 0, cut[name]) for name, rows in panel.series.items()}
                model.fit(self._as_long(long, known))
            else:
                known = {
                    name: cut_rows(rows, cut[name] - step_size, cut[name])
                    for name, rows in panel.series.items()
                }
                model._take_in(known)
            ahead = {name: cut_rows(rows, cut[name], cut[name] + h) for name, rows in panel.series.items()}
            future = self._as_long(long, ahead) if self.covariates else None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                forecast = model.predict(h, levels=levels, X_future=future)
            forecast[self.target_column] = np.concatenate([ahead[name].values for name in model.series_])
            cutoffs = {name: panel.series[name].times[cut[name] - 1] for name in model.series_}
            stamps = pandas.Series(np.repeat([cutoffs[name] for name in model.series_], h))
            if panel.time_zone is not None:
                stamps = stamps.dt.tz_localize("UTC").dt.tz_convert(panel.time_zone)
            forecast.insert(2, "cutoff", stamps)
            found.append(forecast)
        return pandas.concat(found, ignore_index=True)

    def score(self, frame: Table) -> float:
        """Return R² of the forecast of rows that follow those known: 1 is perfect, 0 as good as the mean."""
        self._require_fitted()
        frame = self._following_on(frame)
        panel = read_frame(
            frame, self._columns(), layout=self.panel_.layout, fill=self.fill, after=self._known(frame)
        )
        h = max(len(rows.values) for rows in panel.series.values())
        longest = max((rows.times for rows in self.recent_.values()), key=len)
        times = {name: self._following(self.recent_[name].times, h, like=longest) for name in self.series_}
        future = cast("pandas.DataFrame", frame) if self.covariates else None
        found, _ = self._forecast(h, times, (), self._future(times, future))
        squared = total = 0.0
        for place, name in enumerate(self.series_):
            rows = panel.series.get(name)
            if rows is not None:
                mean, scale = float(self.model_.mean[place]), float(self.model_.deviation[place])
                squared += float((((rows.values - found[: len(rows.values), place]) / scale) ** 2).sum())
                total += float((((rows.values - mean) / scale) ** 2).sum())
        return 1.0 - squared / max(total, 1e-12)

    def table(self) -> str:
        """Return which candidates carry the weight, and how their errors compare; the means of all series.

        Errors are root mean squares of forecasts made before the truth came, beside the median candidate's.
        Of many rows also squared errors on held-out rows, ours and the baselines'.
        """
        self._require_fitted()
        lines = [f"{'candidate':48} weight   error"]
        lines += [
            f"{name:48} {weight:6.3f}  {score:6.3f}"
            for name, (weight, score) in sorted(self.candidates_.items(), key=lambda x: -x[1][0])
        ]
        if self.held_out_:
            lines.append(f"\n{'on held-out rows':48} mean squared error")
            lines += [
                f"{name:48} {error:.4f}" for name, error in sorted(self.held_out_.items(), key=lambda x: x[1])
            ]
        return "\n".join(lines)

    def plot(
        self,
        series: SeriesId | None = None,
        *,
        h: int | None = None,
        levels: Sequence[float] = (80, 95),
        past: int = 96,
        X_future: "pandas.DataFrame | None" = None,  # noqa: N803  the name that the field uses
        ax: Any = None,  # Any: of matplotlib
    ) -> Any:
        """Draw the last rows of a series and the fan of its forecast; return the axes."""
        self._require_fitted()
        pyplot = require_extra("matplotlib.pyplot", extra="report", purpose="drawing forecasts")
        name = self.series_[0] if series is None else series
        if name not in self.series_:
            raise DataError(f"no series {name!r}; known are {', '.join(map(repr, self.series_[:8]))}.")
        forecast = self.predict(h, levels=levels, X_future=X_future)
        if self.panel_.layout == "long":
            forecast = forecast[forecast[self.id_column] == name]
        prefix = FORECAST if self.panel_.layout == "long" else name
        ax = pyplot.subplots(figsize=(8, 3.2))[1] if ax is None else ax
        rows = self.recent_[name]
        times = rows.times[-past:]
        ax.plot(times, rows.values[-past:], color="0.25", label="known")
        ahead = forecast[self.time_column]
        if self.panel_.time_zone is not None:
            ahead = ahead.dt.tz_convert("UTC").dt.tz_localize(None)
        for level in sorted(levels, reverse=True):
            ax.fill_between(
                ahead,
                forecast[f"{prefix}-lo-{level:g}"].astype(float),
                forecast[f"{prefix}-hi-{level:g}"].astype(float),
                color="tab:blue",
                alpha=0.2,
                linewidth=0,
                label=f"{level:g} %",
            )
        ax.plot(ahead, forecast[prefix], color="tab:blue", label="forecast")
        ax.set_title(str(name))
        ax.legend(loc="upper left", ncols=2 + len(levels), fontsize="small")
        return ax

    def whole_step(self) -> WholeStep:
        """Return what is exported: forecasts with intervals, from where `stream()` begins."""
        self._require_fitted()
        return forecast_step(self.model_, state=self.state_, columns=[str(name) for name in self.series_])

    def _state_dict(self) -> Learned:
        for name in self.series_:
            if not isinstance(name, str | int | float):
                raise DataError(
                    f"series {name!r}: ids of type {type(name).__name__} cannot be saved. Fit with text or "
                    f"numbers as ids."
                )
        rows = [self.recent_[name] for name in self.series_]
        facts = {
            "layout": self.panel_.layout,
            "id_type": self.panel_.id_type,
            "time_zone": _name_zone(self.panel_.time_zone),
            "ids": list(self.series_),
            "time_types": [str(one.times.dtype) for one in rows],
            "held_out": self.held_out_,
            "candidates": {name: list(numbers) for name, numbers in self.candidates_.items()},
        }
        state = state_to_bytes(self.state_, fingerprint=self.model_.fingerprint())
        arrays: dict[str, NDArray[Any]] = {"state": np.frombuffer(state, np.uint8)}
        for place, one in enumerate(rows):
            arrays[f"times.{place}"], arrays[f"values.{place}"] = one.times.astype(np.int64), one.values
            if one.covariates is not None:
                arrays[f"covariates.{place}"] = one.covariates
        return Learned(model=self.model_, facts=cast("Any", facts), arrays=arrays)

    def _restore(self, learned: Learned) -> None:
        facts, arrays, model = cast("dict[str, Any]", learned.facts), learned.arrays, learned.model
        if not isinstance(model, BankForecaster | LagForecaster):
            raise DataError(f"expected a forecaster; got a {type(model).__name__}.")
        self.model_ = model
        self.panel_ = Panel(
            layout=facts["layout"],
            series={},
            id_type=facts["id_type"],
            time_zone=_find_zone(facts["time_zone"]),
        )
        self.series_ = tuple(facts["ids"])
        self.recent_ = {
            name: SeriesRows(
                times=arrays[f"times.{place}"].astype(kind),
                values=arrays[f"values.{place}"],
                covariates=arrays.get(f"covariates.{place}"),
            )
            for place, (name, kind) in enumerate(zip(self.series_, facts["time_types"], strict=True))
        }
        self._ahead, self._slots_ahead = {}, {}
        self.held_out_ = {str(name): float(error) for name, error in facts["held_out"].items()}
        self.candidates_ = {
            str(name): (float(weight), float(score)) for name, (weight, score) in facts["candidates"].items()
        }
        self.state_ = state_from_bytes(
            arrays["state"].tobytes(), like=model.init_state(1), fingerprint=model.fingerprint()
        )
        if len(self.series_) != model.config.num_series or len(set(self.series_)) != len(self.series_):
            raise DataError(f"a model of {model.config.num_series} series and {len(self.series_)} ids.")

    def _history(self, series: Mapping[SeriesId, SeriesRows], clock: str, slot_seconds: int) -> History:
        zone = self.panel_.time_zone
        rows = list(series.values())
        first = rows[0].times
        is_table = len(rows) > 1 and all(np.array_equal(some.times, first) for some in rows[1:])
        return History(
            series=[some.values for some in rows],
            slots=[
                find_slots(cast("Dates", some.times), clock, slot_seconds, time_zone=zone)
                if clock != "none"
                else np.zeros(len(some.times), dtype=np.int64)
                for some in rows
            ],
            covariates=[cast("NDArray[np.float64]", some.covariates) for some in rows]
            if self.covariates
            else None,
            is_table=is_table,
            clock=clock,
            slot_seconds=slot_seconds,
            time_zone="" if zone is None else str(zone),
        )

    @staticmethod
    def _clock(series: Mapping[SeriesId, SeriesRows]) -> tuple[str, int]:
        longest = max(series.values(), key=lambda rows: len(rows.times)).times
        return find_clock(cast("Dates", longest)) if longest.dtype.kind == "M" else ("none", 3600)

    def _as_long(self, panel: Panel, series: Mapping[SeriesId, SeriesRows]) -> "pandas.DataFrame":
        """Return rows as a long frame."""
        times = {name: rows.times for name, rows in series.items()}
        frame = write_frame(
            panel, self._columns(), times, {"": {name: rows.values for name, rows in series.items()}}
        )
        frame = frame.rename(columns={FORECAST: self.target_column})
        for place, column in enumerate(self.covariates):
            frame[column] = np.concatenate(
                [cast("NDArray[np.float64]", rows.covariates)[:, place] for rows in series.values()]
            )
        return frame

    def _tell(self, line: str) -> None:
        if self.verbose:
            write_line(line, sys.stderr)  # as the others do: what is printed to stdout is the user's

    def _settings(self) -> dict[str, Any]:
        """Return the numbers among the settings as plain ones, or report all that cannot be."""
        faults: list[str] = []
        least = {"horizon": 1} | ({} if self.season_length is None else {"season_length": 1})
        settings = self._numbers(least, {}, faults)
        freq: object = self.freq
        if isinstance(freq, bool) or not (freq is None or isinstance(freq, str | int)):
            faults.append(f"freq must be a step as pandas calls it, such as 'D', or a number; got {freq!r}")
        if self.fill not in ("error", "interpolate", "seasonal"):
            faults.append(f"fill must be 'error', 'interpolate' or 'seasonal'; got {self.fill!r}")
        if isinstance(self.covariates, str):
            faults.append(f"covariates must be a list of columns; got {self.covariates!r}")
        if faults:
            raise ConfigError("; ".join(faults) + ".")
        return settings


def _weigh(fits: Sequence[SeriesFit]) -> dict[str, tuple[float, float]]:
    """Return mean weight and mean score of every candidate that carries weight in some series."""
    names = dict.fromkeys(name for fit in fits for name in fit.weights)
    return {
        name: (
            sum(fit.weights.get(name, 0.0) for fit in fits) / len(fits),
            float(np.mean([fit.scores[name] for fit in fits if name in fit.scores])),
        )
        for name in names
    }


def _require_finite_scale(name: SeriesId, values: NDArray[np.float64]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        scale = float(values.mean()) + float(values.std())
    if not math.isfinite(scale):
        raise DataError(
            f"series {name!r} reaches from {values.min():g} to {values.max():g}: the squares of such numbers "
            f"are too large for float64. Divide them first, or look for a wrong value."
        )


def _name_zone(zone: datetime.tzinfo | None) -> str | None:
    """Return a name that `_find_zone` finds again."""
    if zone is None:
        return None
    try:
        if _find_zone(str(zone)) is not None:
            return str(zone)
    except (ValueError, LookupError, TypeError):
        pass
    raise DataError(
        f"the time zone {zone!r} has no name to save it by. Fit on another: dt.tz_convert('Europe/Paris')."
    )


def _find_zone(name: str | None) -> datetime.tzinfo | None:
    if name is None:
        return None
    pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
    return cast("datetime.tzinfo", pandas.Timestamp(0, tz=name).tz)
