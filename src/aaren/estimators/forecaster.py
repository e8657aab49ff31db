"""AarenForecaster: fit a frame of series, forecast what follows, take in new rows as they come.

One streaming model for all series, each with a state of its own: `update` costs time in proportion to the new
rows, `predict` none that grows with the past. Knows frames through `frames` and training through
`panel_experiment`.
"""

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray

from aaren.data.files.atomic import replacing
from aaren.data.forecasting.time_marks import NUM_MARKS
from aaren.errors import ConfigError, DataError, unknown_name
from aaren.estimators.frames import (
    Columns,
    Layout,
    SeriesRows,
    read_frame,
    require_regular,
    usual_step,
    write_frame,
)
from aaren.estimators.panel_experiment import PanelExperiment, PanelTraining
from aaren.estimators.panel_streams import date_marks, find_scale, scale_rows, take_in
from aaren.models import (
    StreamingForecaster,
    StreamingForecasterConfig,
    StreamingState,
    load_model,
    save_model,
)
from aaren.tasks.forecast_files import continue_dates
from aaren.train.config import EngineConfig
from aaren.train.determinism import take_threads
from aaren.train.loop import fit as fit_experiment
from aaren.train.observe import choose_observer

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

FORMAT_VERSION = 1
DESCRIPTION, STATE = "estimator.json", "state.bin"
KEPT_TIMES = 64  # of each series, to tell its step and go on with its dates


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
        given = locals()
        self._parameters = {name: given[name] for name in inspect.signature(type(self)).parameters}
        for name, value in self._parameters.items():
            setattr(self, name, value)
        self._config(num_marks=0)  # its own checks, here rather than at fit

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return the settings by name, as scikit-learn does."""
        del deep
        return dict(self._parameters)

    def set_params(self, **settings: object) -> "AarenForecaster":
        """Change settings by name; they hold from the next fit on."""
        for name in settings:
            if name not in self._parameters:
                raise unknown_name("setting", name, self._parameters)
        type(self).__init__(self, **{**self._parameters, **settings})
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = (
            f"{name}={value!r}" for name, value in self._parameters.items() if value != defaults[name].default
        )
        return f"AarenForecaster({', '.join(changed)})"

    def fit(self, frame: "pandas.DataFrame") -> "AarenForecaster":
        """Train on all series of a frame and take in all their rows."""
        take_threads()
        layout, series = read_frame(frame, self._columns())
        has_dates = all(rows.times.dtype.kind == "M" for rows in series.values())
        if not has_dates and any(rows.times.dtype.kind == "M" for rows in series.values()):
            raise DataError("times must be dates in all series or whole numbers in all.")
        if not self._parameters["allow_irregular"]:
            for name, rows in series.items():
                require_regular(name, rows.times)
        config = self._config(num_marks=NUM_MARKS if has_dates else 0)
        scales = {name: find_scale(rows.values) for name, rows in series.items()}
        experiment = PanelExperiment(
            list(series),
            [scale_rows(rows, scales[name])[:, 0] for name, rows in series.items()],
            [date_marks(rows) for rows in series.values()],
            model=config,
            training=PanelTraining(**{name: self._parameters[name] for name in PanelTraining.__slots__}),
            seed=self._seed(),
        )
        observer = choose_observer(None) if self._parameters["is_verbose"] else None
        engine = EngineConfig(threads=int(cast("int", self._parameters["threads"])))
        fitted = fit_experiment(
            experiment,
            seed=self._seed(),
            engine=engine,
            observer=observer,
            name="AarenForecaster",
            is_guest=True,
        )
        assert isinstance(fitted.model, StreamingForecaster)
        self.model_ = fitted.model.to("cpu").eval()
        self.history_ = [dict(look["validation"]) for look in fitted.status.curve]
        self.layout_: Layout = layout
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
        times, forecasts = {}, {}
        for row, name in enumerate(self.series_):
            mean, deviation = self.scales_[name]
            times[name] = self._following(self.times_[name])
            forecasts[name] = found[row] * deviation + mean
        return write_frame(self.layout_, self._columns(), times, forecasts)

    def update(self, rows: "pandas.DataFrame") -> "AarenForecaster":
        """Take in rows that came after those known; nothing is trained. Costs time per new row alone."""
        self._require_fitted()
        _, series = read_frame(rows, self._columns(), layout=self.layout_)
        for name, new in series.items():
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
                    f"series {name!r}: {new.times[0]} is not after {known[-1]}, the last time known. Give "
                    f"only new rows."
                )
            if not self._parameters["allow_irregular"]:
                require_regular(name, np.concatenate([known, new.times]))
        self._take_in(series)
        return self

    def save(self, folder: str | Path) -> Path:
        """Write model, states and scales into a folder; `load` needs nothing else."""
        self._require_fitted()
        folder = save_model(self.model_, folder)
        described = {
            "format_version": FORMAT_VERSION,
            "parameters": self._parameters,
            "layout": self.layout_,
            "scales": {name: list(self.scales_[name]) for name in self.series_},
            "times": {name: self.times_[name].astype(np.int64).tolist() for name in self.series_},
            "has_dates": self.model_.config.num_marks > 0,
            "history": self.history_,
        }
        with replacing(folder / STATE) as temporary:
            temporary.write_bytes(self.state_.to_bytes(fingerprint=self.model_.fingerprint()))
        with replacing(folder / DESCRIPTION) as temporary:
            temporary.write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "AarenForecaster":
        """Read what `save` wrote; it goes on where it was."""
        folder = Path(folder)
        if not (folder / DESCRIPTION).is_file():
            raise DataError(f"no saved AarenForecaster in {folder}: {DESCRIPTION} is missing.")
        described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        if described["format_version"] > FORMAT_VERSION:
            raise DataError(
                f"{folder}: format version {described['format_version']}; this aaren reads up to "
                f"{FORMAT_VERSION}. Upgrade: pip install -U aaren."
            )
        found = cls(**described["parameters"])
        found.model_ = cast("StreamingForecaster", load_model(folder))
        found.layout_ = described["layout"]
        found.series_ = tuple(described["scales"])
        found.scales_ = {name: (mean, scale) for name, (mean, scale) in described["scales"].items()}
        kind = "datetime64[s]" if described["has_dates"] else "int64"
        found.times_ = {
            name: np.array(times, np.int64).astype(kind) for name, times in described["times"].items()
        }
        found.history_ = described["history"]
        found.state_ = StreamingState.from_bytes(
            (folder / STATE).read_bytes(),
            like=found.model_.init_state(1),
            fingerprint=found.model_.fingerprint(),
        )
        return found

    def _take_in(self, series: dict[str, SeriesRows]) -> None:
        places = {name: place for place, name in enumerate(self.series_)}
        new = {places[name]: scale_rows(rows, self.scales_[name]) for name, rows in series.items()}
        marks = {places[name]: date_marks(rows) for name, rows in series.items()}
        take_in(self.model_, self.state_, new, marks)
        for name, rows in series.items():
            known = np.concatenate([self.times_[name].astype(rows.times.dtype), rows.times[-KEPT_TIMES:]])
            self.times_[name] = known[-KEPT_TIMES:]

    def _following(self, times: NDArray[np.generic]) -> NDArray[np.generic]:
        horizon = self.model_.config.horizon_steps
        if times.dtype.kind == "M" and len(times) > 1:
            return continue_dates(cast("NDArray[np.datetime64]", times), horizon)
        last = times[-1].astype(np.int64)
        following: NDArray[np.generic] = (last + usual_step(times) * np.arange(1, horizon + 1)).astype(
            times.dtype
        )
        return following

    def _config(self, num_marks: int) -> StreamingForecasterConfig:
        names = ("width", "num_heads", "num_layers", "dropout", "half_life_steps", "decay")
        horizon = self._parameters["horizon"]
        if not isinstance(horizon, int):
            raise ConfigError(f"horizon must be a whole number of rows; got {horizon!r}.")
        settings = {name: self._parameters[name] for name in names}
        return StreamingForecasterConfig(num_series=1, horizon_steps=horizon, num_marks=num_marks, **settings)

    def _columns(self) -> Columns:
        named = (str(self._parameters[f"{name}_column"]) for name in ("id", "time", "target"))
        return Columns(**dict(zip(("series", "time", "value"), named, strict=True)))

    def _seed(self) -> int:
        return int(cast("int", self._parameters["seed"]))

    def _require_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise ConfigError("this AarenForecaster is not fitted yet: call fit(frame) first.")
