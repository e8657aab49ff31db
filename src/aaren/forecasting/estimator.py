"""AarenForecaster: fit a frame of series, forecast what follows, take in new rows as they come.

One streaming model for all series, each with a state of its own: `update` costs time in proportion to the new
rows, `predict` none that grows with the past.
"""

import datetime
import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from aaren.engine.config import EngineConfig
from aaren.engine.determinism import take_threads
from aaren.engine.loop import fit as fit_experiment
from aaren.engine.progress import choose_observer
from aaren.errors import AarenError, ConfigError, DataError, require_extra, unknown_name
from aaren.files.atomic import write_bytes, write_text
from aaren.forecasting.calendar import Dates, continue_dates
from aaren.forecasting.data import NUM_MARKS
from aaren.forecasting.frames import (
    Columns,
    Panel,
    SeriesId,
    SeriesRows,
    read_frame,
    require_regular,
    show_time,
    usual_step,
    write_frame,
)
from aaren.forecasting.panel import (
    PanelExperiment,
    PanelTraining,
    date_marks,
    find_scale,
    scale_rows,
    take_in,
)
from aaren.forecasting.streaming import StreamingForecaster, StreamingForecasterConfig, StreamingState
from aaren.stream.saved import load_model, save_model

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

FORMAT_VERSION = 2
DESCRIPTION, STATE = "estimator.json", "state.bin"
KEPT_TIMES = 64  # of each series, to tell its step and continue its dates
LEAST = {  # whole numbers among the settings, and how small they may be
    **dict.fromkeys(("horizon", "width", "num_heads", "num_layers", "window_steps", "batch_size"), 1),
    **dict.fromkeys(("epochs", "updates_per_epoch", "patience"), 1),
    **{"threads": 0, "seed": 0},
}


class AarenForecaster:
    """Forecast many series with one streaming model.

    Args:
        horizon: rows to forecast.
        width: of the model; with num_layers the knob for capacity.
        num_heads: must divide width.
        num_layers: of the encoder.
        dropout: while training.
        half_life_steps: a row this old weighs half in the running mean and variance.
        decay: "learned", so that endless streams forget at learned rates, or None.
        window_steps: past of a training window, at most.
        batch_size: windows per update.
        epochs: at most; fewer if the held-out rows stop improving.
        updates_per_epoch: at most.
        patience: epochs without improvement before training ends.
        learning_rate: the highest; it halves after every epoch but the first.
        threads: of torch while training; a small model gains little from more than one.
        seed: of weights, dropout and order.
        allow_irregular: accept gaps between times.
        id_column: a long frame's column of names.
        time_column: of dates, or of whole numbers.
        target_column: a long frame's column of values.
        is_verbose: show progress.

    >>> import pandas as pd
    >>> days = pd.date_range("2024-01-01", periods=120, freq="D")
    >>> frame = pd.DataFrame({"unique_id": "shop", "ds": days, "y": [day % 7 for day in range(120)]})
    >>> model = AarenForecaster(horizon=7, width=8, num_heads=2, epochs=1, updates_per_epoch=5).fit(frame)
    >>> model.predict().shape
    (7, 3)
    >>> tomorrow = pd.DataFrame({"unique_id": "shop", "ds": [days[-1] + pd.Timedelta(days=1)], "y": [1.0]})
    >>> str(model.update(tomorrow).predict()["ds"].iloc[0].date())
    '2024-05-01'
    """

    def __init__(
        self,
        horizon: int,
        *,
        width: int = 64,
        num_heads: int = 4,
        num_layers: int = 2,
        dropout: float = 0.1,
        half_life_steps: float = 96.0,
        decay: str | None = "learned",
        window_steps: int = 256,
        batch_size: int = 32,
        epochs: int = 10,
        updates_per_epoch: int = 100,
        patience: int = 3,
        learning_rate: float = 1e-3,
        threads: int = 1,
        seed: int = 0,
        allow_irregular: bool = False,
        id_column: str = "unique_id",
        time_column: str = "ds",
        target_column: str = "y",
        is_verbose: bool = False,
    ) -> None:
        self.horizon = horizon
        self.width = width
        self.num_heads = num_heads
        self.num_layers = num_layers
        self.dropout = dropout
        self.half_life_steps = half_life_steps
        self.decay = decay
        self.window_steps = window_steps
        self.batch_size = batch_size
        self.epochs = epochs
        self.updates_per_epoch = updates_per_epoch
        self.patience = patience
        self.learning_rate = learning_rate
        self.threads = threads
        self.seed = seed
        self.allow_irregular = allow_irregular
        self.id_column = id_column
        self.time_column = time_column
        self.target_column = target_column
        self.is_verbose = is_verbose
        self._config(num_marks=0)  # with all checks, here rather than at fit

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name, as scikit-learn does."""
        del deep
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **settings: object) -> "AarenForecaster":
        """Change settings by name; they hold from the next fit on."""
        known = self.get_params()
        for name in settings:
            if name not in known:
                raise unknown_name("setting", name, known)
        type(self)(**{**known, **settings})  # checks them
        for name, value in settings.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = (
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value != defaults[name].default
        )
        return f"AarenForecaster({', '.join(changed)})"

    def fit(self, frame: "pandas.DataFrame") -> "AarenForecaster":
        """Train on all series of a frame and take in all their rows."""
        take_threads()
        settings = self._settings()
        panel = read_frame(frame, self._columns())
        series = panel.series
        has_dates = all(rows.times.dtype.kind == "M" for rows in series.values())
        if not self.allow_irregular:
            for name, rows in series.items():
                require_regular(name, rows.times, time_zone=panel.time_zone)
        config = self._config(num_marks=NUM_MARKS if has_dates else 0)
        scales = {name: find_scale(name, rows.values) for name, rows in series.items()}
        experiment = PanelExperiment(
            list(series),
            [scale_rows(name, rows, scales[name])[:, 0] for name, rows in series.items()],
            [date_marks(rows) for rows in series.values()],
            model=config,
            training=PanelTraining(**{name: settings[name] for name in PanelTraining.__slots__}),
            seed=settings["seed"],
        )
        observer = choose_observer(None) if self.is_verbose else None
        engine = EngineConfig(threads=settings["threads"])
        fitted = fit_experiment(
            experiment,
            seed=settings["seed"],
            engine=engine,
            observer=observer,
            name="AarenForecaster",
            is_guest=True,
        )
        assert isinstance(fitted.model, StreamingForecaster)
        self.model_ = fitted.model.to("cpu").eval()
        self.history_ = [dict(evaluation["validation"]) for evaluation in fitted.status.curve]
        self.panel_ = replace(panel, series={})  # its form; the rows are in the state
        self.series_ = tuple(series)
        self.scales_ = scales
        self.times_ = {name: rows.times[:0] for name, rows in series.items()}
        self.state_ = self.model_.init_state(len(series))
        self._take_in(series)
        return self

    def predict(self) -> "pandas.DataFrame":
        """Forecast the horizon of every series, in a frame of the layout that was fitted."""
        self._require_fitted()
        with torch.no_grad():
            found = self.model_.predict(self.state_)[:, :, 0].double().numpy()  # (series, horizon)
        longest = max(self.times_.values(), key=len)
        times, forecasts = {}, {}
        for row, name in enumerate(self.series_):
            mean, deviation = self.scales_[name]
            times[name] = self._following(self.times_[name], like=longest)
            forecasts[name] = found[row] * deviation + mean
        return write_frame(self.panel_, self._columns(), times, forecasts)

    def update(self, rows: "pandas.DataFrame") -> "AarenForecaster":
        """Take in rows that came after those known; nothing is trained. Costs time per new row alone."""
        self._require_fitted()
        panel = read_frame(rows, self._columns(), layout=self.panel_.layout)
        zone = self.panel_.time_zone
        if (panel.time_zone is None) != (zone is None):
            raise DataError(
                f"the model was fitted on times in the time zone {zone}, these are in {panel.time_zone}. "
                f"Give them one with dt.tz_localize(...), or take it away with dt.tz_localize(None)."
            )
        for name, new in panel.series.items():
            if name not in self.scales_:
                raise DataError(
                    f"series {name!r} was not there when the model was fitted; known are "
                    f"{', '.join(map(repr, self.series_[:8]))}. Fit again with it."
                )
            known = self.times_[name]
            if new.times.dtype.kind != known.dtype.kind:
                raise DataError(f"series {name!r}: times must be of the kind that was fitted.")
            if new.times[0] <= known[-1]:
                raise DataError(
                    f"series {name!r}: {show_time(new.times[0], zone)} is not after "
                    f"{show_time(known[-1], zone)}, the last time known. Give only new rows."
                )
            if not self.allow_irregular:
                require_regular(name, np.concatenate([known, new.times]), time_zone=zone)
        self._take_in(panel.series)
        return self

    def save(self, folder: str | Path) -> Path:
        """Write model, states and scales into a folder; `load` needs nothing else."""
        self._require_fitted()
        for name in self.series_:
            if not isinstance(name, str | int | float):
                raise DataError(
                    f"series {name!r}: ids of type {type(name).__name__} cannot be saved. Fit with text or "
                    f"numbers as ids."
                )
        described = {
            "format_version": FORMAT_VERSION,
            "parameters": {**self.get_params(), **self._settings()},
            "layout": self.panel_.layout,
            "id_type": self.panel_.id_type,
            "time_zone": _name_zone(self.panel_.time_zone),
            "ids": list(self.series_),
            "scales": [list(self.scales_[name]) for name in self.series_],
            "time_types": [str(self.times_[name].dtype) for name in self.series_],
            "times": [self.times_[name].astype(np.int64).tolist() for name in self.series_],
            "history": self.history_,
        }
        folder = save_model(self.model_, folder)
        write_bytes(folder / STATE, self.state_.to_bytes(fingerprint=self.model_.fingerprint()))
        write_text(folder / DESCRIPTION, json.dumps(described, indent=1) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "AarenForecaster":
        """Read what `save` wrote; it resumes where it was."""
        folder = Path(folder)
        if not (folder / DESCRIPTION).is_file():
            raise DataError(f"no saved AarenForecaster in {folder}: {DESCRIPTION} is missing.")
        try:
            described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
            version = described["format_version"]
            if version != FORMAT_VERSION:
                raise DataError(
                    f"{folder}: format version {version}; this aaren reads {FORMAT_VERSION}. Upgrade: pip "
                    f"install -U aaren; or fit and save again."
                )
            return cls._from_description(described, folder)
        except AarenError:
            raise
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            OSError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise DataError(
                f"{folder}: no whole AarenForecaster ({type(error).__name__}: {error}). Save it again."
            ) from error

    @classmethod
    def _from_description(cls, described: dict[str, Any], folder: Path) -> "AarenForecaster":
        found = cls(**described["parameters"])
        model = load_model(folder)
        if not isinstance(model, StreamingForecaster):
            raise DataError(f"{folder}: expected a StreamingForecaster; got a {type(model).__name__}.")
        found.model_ = model
        found.panel_ = Panel(
            layout=described["layout"],
            series={},
            id_type=described["id_type"],
            time_zone=_find_zone(described["time_zone"]),
        )
        ids = found.series_ = tuple(described["ids"])
        scales, times, kinds = (described[name] for name in ("scales", "times", "time_types"))
        found.scales_ = {
            name: (float(mean), float(scale)) for name, (mean, scale) in zip(ids, scales, strict=True)
        }
        found.times_ = {
            name: np.array(some, np.int64).astype(kind)
            for name, some, kind in zip(ids, times, kinds, strict=True)
        }
        found.history_ = described["history"]
        found.state_ = StreamingState.from_bytes(
            (folder / STATE).read_bytes(),
            like=found.model_.init_state(1),
            fingerprint=found.model_.fingerprint(),
        )
        if len(found.state_.output) != len(ids) or not ids:
            raise DataError(f"{folder}: states of {len(found.state_.output)} series and {len(ids)} ids.")
        return found

    def _take_in(self, series: Mapping[SeriesId, SeriesRows]) -> None:
        places = {name: place for place, name in enumerate(self.series_)}
        new = {places[name]: scale_rows(name, rows, self.scales_[name]) for name, rows in series.items()}
        marks = {places[name]: date_marks(rows) for name, rows in series.items()}
        take_in(self.model_, self.state_, new, marks)
        for name, rows in series.items():
            known = np.concatenate([self.times_[name], rows.times[-KEPT_TIMES:]])
            self.times_[name] = known[-KEPT_TIMES:]

    def _following(self, times: NDArray[np.generic], *, like: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the times of a forecast; a series of one row continues at the step of another."""
        horizon = self.model_.config.horizon_steps
        if times.dtype.kind == "M":
            dates, others = cast("Dates", times), cast("Dates", like)
            return continue_dates(dates, horizon, like=others, time_zone=self.panel_.time_zone)
        step = usual_step(times if len(times) > 1 else like)
        following: NDArray[np.generic] = times[-1] + step * np.arange(1, horizon + 1)
        return following

    def _settings(self) -> dict[str, Any]:
        """Return the numbers among the settings as plain ones, or report all that cannot be."""
        faults: list[str] = []
        settings: dict[str, Any] = {}
        for name, least in LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) < 2**63:
                faults.append(f"{name} must be a whole number, at least {least}; got {value!r}")
            else:
                settings[name] = int(value)
        for name in ("dropout", "half_life_steps", "learning_rate"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= 0.0:
                faults.append(f"{name} must be a number, at least 0; got {value!r}")
            else:
                settings[name] = float(value)
        if not 0.0 < settings.get("learning_rate", 1.0) < math.inf:
            faults.append(f"learning_rate must be positive and finite; got {self.learning_rate!r}")
        if faults:
            raise ConfigError("; ".join(faults) + ".")
        return settings

    def _config(self, num_marks: int) -> StreamingForecasterConfig:
        settings = self._settings()
        names = ("width", "num_heads", "num_layers", "dropout", "half_life_steps")
        return StreamingForecasterConfig(
            num_series=1,
            horizon_steps=settings["horizon"],
            num_marks=num_marks,
            decay=self.decay,
            **{name: settings[name] for name in names},
        )

    def _columns(self) -> Columns:
        return Columns(series=self.id_column, time=self.time_column, value=self.target_column)

    def _require_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise ConfigError("this AarenForecaster is not fitted yet: call fit(frame) first.")


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
