"""LiveSeries: what a fitted forecaster does with series as they grow: forecast, take in rows, continue dates.

It holds one state of the model for all series and the last rows of each; neither grows.
"""

import datetime
import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.datasets.dates import refuse_unordered
from aaren.datasets.numbers import reals
from aaren.engine.estimator import require_levels, require_whole
from aaren.errors import ConfigError, DataError, require_extra, unknown_name
from aaren.forecasting.bank_forecaster import BankForecaster
from aaren.forecasting.calendar import Dates, continue_dates, find_slots
from aaren.forecasting.frames import (
    FILL_VALUE,
    Columns,
    Fill,
    Panel,
    SeriesId,
    SeriesRows,
    Table,
    join_series,
    read_frame,
    read_times,
    show_time,
    usual_step,
    without_gaps,
    write_frame,
)
from aaren.forecasting.lagged import LagForecaster, LagSession

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

MOST_HORIZONS = 100  # that `predict` goes on for by recursion
KEPT_TIMES = 64  # of each series, to tell its step and continue its dates
KEPT_ROWS = 336  # of each series, for its plot


class LiveSeries:
    """Series, a model and its state; `AarenForecaster` fits it, saves it and reads it back."""

    id_column: str
    time_column: str
    target_column: str
    covariates: Sequence[str]
    fill: Fill
    freq: str | int | None
    model_: BankForecaster | LagForecaster
    state_: Any  # BankState or LagState, as the model has it
    panel_: Panel  # its form; the rows are in the state
    series_: tuple[SeriesId, ...]
    recent_: dict[SeriesId, SeriesRows]
    _ahead: dict[SeriesId, dict[np.generic, np.generic]]  # the time after each of the next ones
    _slots_ahead: dict[np.generic, int]  # and places in the calendar

    def predict(
        self,
        h: int | None = None,
        *,
        levels: Sequence[float] = (),
        X_future: "pandas.DataFrame | None" = None,  # noqa: N803  the name that the field uses
    ) -> "pandas.DataFrame":
        """Forecast what follows every series, in a frame of the layout that was fitted.

        Args:
            h: rows; default: the horizon. More than the horizon by recursion, with a warning.
            levels: of intervals, in percent, as [80, 95]: columns `-lo-80` and `-hi-80`.
            X_future: the covariates of the rows to forecast, with their times and, if long, ids.
        """
        self._require_fitted()
        horizon = self.model_.config.horizon_steps
        if hasattr(h, "columns"):
            raise ConfigError(
                "predict takes h, how many rows follow those known. Give new rows to update(frame), "
                "covariates of the future to predict(X_future=frame)."
            )
        h = horizon if h is None else require_whole("h", h)
        levels = require_levels(levels)
        if h > MOST_HORIZONS * horizon:
            raise ConfigError(
                f"h must be at most {MOST_HORIZONS} times the fitted horizon, {MOST_HORIZONS * horizon}; got "
                f"{h}. Fit with a longer horizon."
            )
        if h > horizon:
            warnings.warn(
                f"h = {h} is beyond the fitted horizon of {horizon}: forecasts are fed back as if they had "
                f"come, and intervals are only added up. Fit with horizon={h} for better ones.",
                stacklevel=2,
            )
        longest = max((rows.times for rows in self.recent_.values()), key=len)
        times = {name: self._following(self.recent_[name].times, h, like=longest) for name in self.series_}
        found, bands = self._forecast(h, times, levels, self._future(times, X_future))
        columns = {"": {name: found[:, place] for place, name in enumerate(self.series_)}}
        for number, level in enumerate(levels):
            for side, offset in (("lo", 0), ("hi", len(levels))):
                columns[f"-{side}-{level:g}"] = {
                    name: bands[:, place, number + offset] for place, name in enumerate(self.series_)
                }
        return write_frame(self.panel_, self._columns(), times, columns)

    def update(self, rows: Table) -> Self:
        """Take in rows that came after those known. Costs time per new row alone."""
        self._require_fitted()
        pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
        if isinstance(rows, pandas.DataFrame) and len(rows) == 1:
            row = self._next_row(rows)
            if row is not None:
                return self.push(row)
        rows, zone = self._following_on(rows), self.panel_.time_zone
        self._require_known(rows)
        panel = read_frame(
            rows, self._columns(), layout=self.panel_.layout, fill=self.fill, after=self._known(rows)
        )
        if (panel.time_zone is None) != (zone is None):
            raise DataError(
                f"the model was fitted on times in the time zone {zone}, these are in {panel.time_zone}. "
                f"Give them one with dt.tz_localize(...), or take it away with dt.tz_localize(None)."
            )
        self._take_in(panel.series)
        return self

    def push(
        self,
        row: Mapping[SeriesId, float] | Sequence[float],
        *,
        when: "pandas.Timestamp | datetime.datetime | int | None" = None,
        covariates: Sequence[float] = (),
    ) -> Self:
        """Take in one row, without a frame: the quick way for live data.

        Args:
            row: the value of each series, by its id or in the order of `series_`; NaN: it did not come.
            when: its time; default: one step after the latest.
            covariates: of this row.
        """
        self._require_fitted()
        if isinstance(row, Mapping):
            unknown = next((name for name in row if name not in self.series_), None)
            if unknown is not None:
                raise unknown_name("series", str(unknown), map(str, self.series_))
            values = [row.get(name, math.nan) for name in self.series_]
        else:
            values = list(row)
        if len(values) != len(self.series_):
            raise DataError(
                f"a row has a value for each of the {len(self.series_)} series; got {len(values)}."
            )
        given = reals(values, name="row")
        moment = None if when is None else self._time(when, next(iter(self.recent_.values())).times)
        new = {}
        for place, name in enumerate(self.series_):
            if np.isnan(given[place]):
                continue
            known = self.recent_[name].times
            time = self._next_time(name) if moment is None else moment
            if not time > known[-1]:
                zone = self.panel_.time_zone
                raise DataError(
                    f"series {name!r}: {show_time(time, zone)} is not after {show_time(known[-1], zone)}, "
                    f"the last time known. Give only new rows."
                )
            new[name] = SeriesRows(
                times=np.array([time], dtype=known.dtype),
                values=given[place : place + 1],
                covariates=np.asarray(covariates, dtype=np.float64)[None] if len(covariates) else None,
            )
            if moment is not None and time != self._next_time(name):
                zone = self.panel_.time_zone
                new[name] = without_gaps(name, new[name], self.recent_[name], self.fill, time_zone=zone)
        self._take_in(new)
        return self

    def stream(self) -> LagSession:
        """Open a session on a copy of the state: `push(row, when=...)` returns the forecast after it."""
        self._require_fitted()
        session = self.model_.stream()
        session.state = self.state_.clone()
        return session

    @torch.no_grad()
    def _forecast(
        self,
        h: int,
        times: Mapping[SeriesId, NDArray[np.generic]],
        levels: Sequence[float],
        covariates: Tensor | None,  # (1, h, series, k)
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return forecasts (h, series) and bounds (h, series, 2 * levels): all lower, then all upper."""
        model: Any = self.model_  # either kind, with its own state
        horizon = model.config.horizon_steps
        sides = [0.5 + side * level / 200.0 for side in (-1.0, 1.0) for level in levels]
        probabilities = torch.tensor(sides, dtype=torch.float64)
        slots = torch.from_numpy(np.stack([self._slots(times[name]) for name in self.series_], axis=1))[None]
        state, found, bands, widened = self.state_, [], [], torch.zeros(())
        for first in range(0, h, horizon):
            missing = max(0, first + horizon - h)
            part = torch.cat([slots[:, first : first + horizon], slots[:, -1:].repeat(1, missing, 1)], 1)
            known = covariates
            if covariates is not None:
                known = covariates[:, first : first + horizon]
                known = torch.cat([known, known[:, -1:].repeat(1, missing, 1, 1)], 1)
            forecast = model.predict(state, slots=part, covariates=known)
            found.append(forecast[0])
            if sides:
                bounds = model.predict_quantiles(state, probabilities, slots=part, covariates=known)
                widths = bounds[0] - forecast[0].unsqueeze(-1)
                widths = widths.sign() * (widths.square() + widened.square()).sqrt()
                bands.append(forecast[0].unsqueeze(-1) + widths)
                widened = widths[-1:]
            if first + horizon < h:
                kept = state
                for row in range(horizon):
                    state = model.advance(
                        forecast[:, row],
                        state,
                        slot=part[:, row],
                        covariates=None if known is None else known[:, row],
                    )
                state = model.keep_scale(state, kept)
        both = torch.cat(found)[:h].numpy(), (torch.cat(bands)[:h].numpy() if sides else np.zeros((h, 0, 0)))
        if not np.isfinite(both[0]).all():
            raise DataError("the forecast would not be finite: the last rows are too large to compute with.")
        return both

    def _future(
        self, times: Mapping[SeriesId, NDArray[np.generic]], given: "pandas.DataFrame | None"
    ) -> Tensor | None:
        """Return the covariates of the rows to forecast, (1, h, series, k)."""
        if not self.covariates:
            if given is not None:
                raise DataError("the model was fitted without covariates: name them with covariates=[...].")
            return None
        if given is None:
            raise DataError(
                f"the model was fitted with {', '.join(map(str, self.covariates))}: give them for the rows "
                f"to forecast, predict(X_future=frame)."
            )
        missing = [name for name in (self.time_column, *self.covariates) if name not in given.columns]
        if missing:
            raise DataError(f"X_future has no column {missing[0]!r}.")
        is_long = self.id_column in given.columns
        stamps = read_times(given[self.time_column], self._columns())[0]
        values = given[list(self.covariates)].to_numpy(dtype=np.float64)
        found = []
        for name in self.series_:
            rows = (
                np.flatnonzero((given[self.id_column] == name).to_numpy())
                if is_long
                else np.arange(len(given))
            )
            kind = times[name].dtype
            places = {time: row for row, time in zip(rows, stamps[rows].astype(kind), strict=True)}
            absent = [time for time in times[name] if time not in places]
            if absent:
                raise DataError(
                    f"X_future lacks {show_time(absent[0], self.panel_.time_zone)} of series {name!r} "
                    f"({len(absent)} of {len(times[name])} rows to forecast)."
                )
            found.append(values[[places[time] for time in times[name]]])
        stacked = np.stack(found, axis=1)
        if not np.isfinite(stacked).all():
            raise DataError("X_future must hold finite numbers.")
        return torch.from_numpy(stacked)[None]

    def _next_row(self, rows: "pandas.DataFrame") -> list[float] | None:
        """Return the values of a wide frame's only row, if it is just the next one; None: look closer."""
        if self.panel_.layout != "wide" or self.covariates or not self._has_dates:
            return None
        columns = list(rows.columns)
        has_column = self.time_column in columns
        if sorted(map(str, columns)) != sorted(map(str, [self.time_column] * has_column + [*self.series_])):
            return None
        when = rows[self.time_column].iloc[0] if has_column else rows.index[0]
        values = dict(zip(columns, rows.to_numpy()[0].tolist(), strict=True))
        found = [values.get(name) for name in self.series_]
        if not all(isinstance(value, float | int) and math.isfinite(value) for value in found):
            return None
        if not isinstance(when, datetime.datetime) or (when.tzinfo is None) != (
            self.panel_.time_zone is None
        ):
            return None
        time = self._time(when, next(iter(self.recent_.values())).times)
        if any(time != self._next_time(name) for name in self.series_):
            return None
        return [float(cast("float", value)) for value in found]

    def _next_time(self, name: SeriesId) -> np.generic:
        """Return the time after the latest of a series; some are found at once, and kept until they come."""
        known = self.recent_[name].times
        found: np.generic | None = self._ahead.get(name, {}).get(known[-1])
        if found is None:
            longest = max((rows.times for rows in self.recent_.values()), key=len)
            later = [known[-1], *self._following(known, KEPT_TIMES, like=longest)]
            self._ahead[name] = dict(itertools.pairwise(later))
            found = self._ahead[name][known[-1]]
        return found

    @property
    def _has_dates(self) -> bool:
        return all(rows.times.dtype.kind == "M" for rows in self.recent_.values())

    @torch.no_grad()
    def _take_in(self, series: Mapping[SeriesId, SeriesRows]) -> None:
        """Run new rows through the state; all are taken in or none."""
        if not series:
            return
        places = {name: place for place, name in enumerate(self.series_)}
        longest, size = max(len(rows.values) for rows in series.values()), len(self.series_)
        values, real = np.zeros((longest, size)), np.zeros((longest, size), dtype=bool)
        slots = np.zeros((longest, size), dtype=np.int64)
        places_of: dict[tuple[bytes, np.dtype[Any]], NDArray[np.int64]] = {}  # of rows that come together
        covariates = np.zeros((longest, size, self.model_.config.num_covariates))
        for name, rows in series.items():
            place = places[name]
            self._require_near(name, place, rows)
            values[: len(rows.values), place], real[: len(rows.values), place] = rows.values, True
            if longest == 1:
                slots[0, place] = self._slot(rows.times)
            else:
                seen = rows.times.tobytes(), rows.times.dtype
                if seen not in places_of:
                    places_of[seen] = self._slots(rows.times)
                slots[: len(rows.values), place] = places_of[seen]
            if covariates.shape[2]:
                if rows.covariates is None or rows.covariates.shape[1] != covariates.shape[2]:
                    raise DataError(f"series {name!r}: every row needs its {covariates.shape[2]} covariates.")
                covariates[: len(rows.values), place] = rows.covariates
        given = [torch.from_numpy(some).unsqueeze(0) for some in (values, slots, covariates, real)]
        whole = bool(real.all())
        if longest == 1:
            state = self.model_.advance(
                given[0][:, 0],
                self.state_,
                slot=given[1][:, 0],
                covariates=given[2][:, 0] if covariates.shape[2] else None,
                mask=None if whole else given[3][:, 0],
            )
        else:
            _, state = self.model_(
                given[0],
                self.state_,
                slots=given[1],
                covariates=given[2] if covariates.shape[2] else None,
                mask=None if whole else given[3],
                positions=torch.zeros(0, dtype=torch.int64),
            )
        self.state_ = state
        for name, rows in series.items():
            self.recent_[name] = last_rows(rows, before=self.recent_[name])

    def _require_near(self, name: SeriesId, place: int, rows: SeriesRows) -> None:
        mean, deviation = float(self.model_.mean[place]), float(self.model_.deviation[place])
        reach = FILL_VALUE * max(deviation, abs(mean))
        is_near = np.abs(rows.values / 2 - mean / 2) <= reach / 2  # halves: no overflow
        if not is_near.all():
            wrong = np.flatnonzero(~is_near)
            row = int(wrong[0])
            raise DataError(
                f"series {name!r}: {rows.values[row]:g} at {show_time(rows.times[row])} is too far from what "
                f"was fitted, mean {mean:g} and standard deviation {deviation:g}, to be computed with. "
                f"Leave it out, or correct it."
            )

    def _following_on(self, rows: Table) -> Table:
        """Return rows without times as a frame whose times follow those known."""
        if not isinstance(rows, np.ndarray | Mapping | list | tuple):
            return rows
        if isinstance(rows, Mapping) and self.time_column in rows:
            return rows  # a table
        if self.panel_.layout == "long":
            return join_series(rows, self._columns(), times=self._next_stamps)
        pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
        if isinstance(rows, Mapping):
            frame = pandas.DataFrame(rows)
        else:
            table = np.asarray(rows)
            frame = pandas.DataFrame(table[:, None] if table.ndim == 1 else table, columns=list(self.series_))
        frame.insert(0, self.time_column, self._next_stamps(self.series_[0], len(frame)))
        return frame

    def _next_stamps(self, name: SeriesId, count: int) -> "pandas.Series | NDArray[np.generic]":
        """Return the times after those known of a series, as a user has them."""
        if name not in self.recent_:
            return np.arange(count)  # of no series that is known, which is told later
        longest = max((rows.times for rows in self.recent_.values()), key=len)
        times, zone = self._following(self.recent_[name].times, count, like=longest), self.panel_.time_zone
        if zone is None:
            return times
        pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
        return pandas.Series(times).dt.tz_localize("UTC").dt.tz_convert(zone)

    def _require_known(self, rows: object) -> None:
        """Refuse series that were not fitted, before anything else is said about them."""
        columns = getattr(rows, "columns", ())
        if self.panel_.layout == "long" and self.id_column in columns:
            given = list(rows[self.id_column].unique())  # type: ignore[index]  # a frame
        elif self.panel_.layout == "wide" and self.id_column not in columns:
            given = [name for name in columns if name != self.time_column and name not in self.covariates]
        else:
            return
        pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
        for name in given:
            if name not in self.series_ and not (pandas.api.types.is_scalar(name) and pandas.isna(name)):
                raise DataError(
                    f"series {name!r} was not there when the model was fitted; known are "
                    f"{', '.join(map(repr, self.series_[:8]))}. Fit again with it."
                )

    def _known(self, rows: object) -> dict[SeriesId, SeriesRows]:
        """Return the last rows known; none if the new times are of another kind or zone, which is told."""
        times = getattr(rows, "columns", ())
        if self.time_column in times:
            kind = rows[self.time_column].dtype  # type: ignore[index]  # a frame
            is_whole = getattr(kind, "kind", "M") in "iu"
            if is_whole == self._has_dates:
                raise DataError("times must be of the kind that was fitted: dates, or whole numbers.")
            zone = getattr(kind, "tz", None)
            if (
                not is_whole
                and (zone is None) != (self.panel_.time_zone is None)
                and str(kind).startswith("datetime")
            ):
                return {}
        return dict(self.recent_)

    def _slot(self, times: NDArray[np.generic]) -> int:
        """Return the slot of one time; those of times that may follow are found at once, and kept."""
        found = self._slots_ahead.get(times[0])
        if found is None:
            recent = next(iter(self.recent_.values())).times
            later = times.astype(np.int64) + usual_step(recent[-KEPT_TIMES:]) * np.arange(KEPT_TIMES)
            moments = later.astype(times.dtype)
            self._slots_ahead = dict(zip(moments, self._slots(moments).tolist(), strict=True))
            found = self._slots_ahead[times[0]]
        return found

    def _slots(self, times: NDArray[np.generic]) -> NDArray[np.int64]:
        config = self.model_.config
        if config.clock == "none":
            return np.zeros(len(times), dtype=np.int64)
        return find_slots(
            cast("Dates", times), config.clock, config.slot_seconds, time_zone=self.panel_.time_zone
        )

    def _following(
        self, times: NDArray[np.generic], steps: int, *, like: NDArray[np.generic]
    ) -> NDArray[np.generic]:
        """Return the times that follow; a series of one row continues at the step of another."""
        times, like = times[-KEPT_TIMES:], like[-KEPT_TIMES:]
        if times.dtype.kind == "M":
            dates, others = cast("Dates", times), cast("Dates", like)
            return continue_dates(
                dates, steps, like=others, time_zone=self.panel_.time_zone, freq=cast("str | None", self.freq)
            )
        step = usual_step(times if len(times) > 1 else like) if self.freq is None else int(self.freq)
        following: NDArray[np.generic] = times[-1] + step * np.arange(1, steps + 1)
        return following

    def _time(self, when: Any, like: NDArray[np.generic]) -> np.generic:  # Any: whatever pandas reads
        """Return a time of a user as those of the state are: in UTC, or a whole number."""
        if like.dtype.kind != "M":
            return cast("np.generic", np.int64(when))
        pandas = require_extra("pandas", extra="data", purpose="AarenForecaster")
        refuse_unordered(when, name="when")
        stamp, zone = pandas.Timestamp(when), self.panel_.time_zone
        if (stamp.tz is None) != (zone is None):
            raise DataError(f"the model was fitted on times in the time zone {zone}; got {when!r}.")
        if zone is not None:
            stamp = stamp.tz_convert("UTC").tz_localize(None)
        return cast("np.generic", stamp.to_datetime64())

    def _columns(self) -> Columns:
        return Columns(
            series=self.id_column,
            time=self.time_column,
            value=self.target_column,
            covariates=tuple(self.covariates),
        )

    def _require_fitted(self) -> None:  # of the estimator's base
        raise NotImplementedError


def last_rows(rows: SeriesRows, *, before: SeriesRows | None = None, kept: int = KEPT_ROWS) -> SeriesRows:
    """Return the latest rows, those before them among them."""
    if before is None:
        return cut_rows(rows, max(0, len(rows.values) - kept), len(rows.values))
    if len(rows.values) >= kept:
        return last_rows(rows, kept=kept)
    old = cut_rows(before, max(0, len(before.values) + len(rows.values) - kept), len(before.values))
    covariates = None
    if old.covariates is not None and rows.covariates is not None:
        covariates = np.concatenate([old.covariates, rows.covariates])
    return SeriesRows(
        times=np.concatenate([old.times, rows.times.astype(old.times.dtype)]),
        values=np.concatenate([old.values, rows.values]),
        covariates=covariates,
    )


def cut_rows(rows: SeriesRows, begin: int, end: int) -> SeriesRows:
    """Return some of the rows."""
    covariates = None if rows.covariates is None else rows.covariates[begin:end]
    return SeriesRows(times=rows.times[begin:end], values=rows.values[begin:end], covariates=covariates)
