"""Many series, one model: windows of all series, forecasts after several rows of each window.

The last rows of every series are held out for validation. Series are seen one by one and scaled one by one,
so that what is learned on one serves the others. Knows nothing of frames.

The streams of a panel: rows brought to scale, and taken in by those streams that got some.

Knows nothing of frames and of training.

AarenForecaster: fit a frame of series, forecast what follows, take in new rows as they come.

One streaming model for all series, each with a state of its own: `update` costs time in proportion to the new
rows, `predict` none that grows with the past. Knows frames through `frames` and training through
`panel_experiment`.
"""

import datetime
import inspect
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Optimizer

from aaren.engine.batches import BatchLoader
from aaren.engine.config import EngineConfig
from aaren.engine.determinism import take_threads
from aaren.engine.experiment import Experiment, Part
from aaren.engine.loop import fit as fit_experiment
from aaren.engine.metrics import Mean
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.plan import Criterion, Moment, Plan, halving
from aaren.engine.progress import choose_observer
from aaren.errors import AarenError, ConfigError, DataError, require_extra, unknown_name
from aaren.files.atomic import replacing
from aaren.forecasting.calendar import Dates, continue_dates
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
from aaren.forecasting.series import NUM_MARKS, time_marks
from aaren.forecasting.streaming import StreamingForecaster, StreamingForecasterConfig, StreamingState
from aaren.stream.saved import load_model, save_model
from aaren.stream.session import largest

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package


HELD_OUT = 0.1  # of each series, at least one horizon
SHORTEST_PAST = 8  # rows that a window must have before its first forecast
VALIDATION_WINDOWS = 512


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class PanelBatch:
    """Windows of some series, past and future in one piece."""

    rows: Tensor  # (b, past + horizon, 1)
    marks: Tensor  # (b, past + horizon, marks)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class PanelTraining:
    """How a panel is trained on."""

    window_steps: int = 256  # past of a training window, at most
    batch_size: int = 32
    epochs: int = 10
    updates_per_epoch: int = 100
    patience: int = 3
    learning_rate: float = 1e-3


class PanelExperiment(Experiment[PanelBatch]):
    """Train a `StreamingForecaster` of one column on every series of a panel."""

    def __init__(
        self,
        names: Sequence[object],
        rows: Sequence[Tensor],  # (rows,) each, scaled
        marks: Sequence[Tensor],  # (rows, marks) each
        *,
        model: StreamingForecasterConfig,
        training: PanelTraining,
        seed: int,
    ) -> None:
        self.model_config, self.training = model, training
        self.values = torch.cat(list(rows)).unsqueeze(-1)
        self.marks = torch.cat(list(marks))
        horizon = model.horizon_steps
        lengths = [len(some) for some in rows]
        held_out = [max(horizon, int(HELD_OUT * length)) for length in lengths]
        longest_past = max(length - held - horizon for length, held in zip(lengths, held_out, strict=True))
        if longest_past < SHORTEST_PAST:
            longest = max(range(len(lengths)), key=lengths.__getitem__)
            raise DataError(
                f"no series is long enough for a horizon of {horizon}: the longest, {names[longest]!r}, has "
                f"{lengths[longest]} rows and needs {2 * horizon + SHORTEST_PAST} (a window, a horizon to "
                f"learn from and one to validate on). Bring more rows or choose a shorter horizon."
            )
        self.past_steps = min(training.window_steps, longest_past)
        self.train, self.validation = self._starts(lengths, held_out)
        count = min(16, self.past_steps - self.past_steps // 2)
        self.targets = torch.linspace(self.past_steps // 2, self.past_steps - 1, count).long()
        self.loader = BatchLoader(
            size=len(self.train),
            take=lambda numbers: self._take(self.train[numbers]),
            batch_size=min(training.batch_size, len(self.train)),
            is_shuffled=True,
            seed=seed,
        )
        self.plan = Plan.in_epochs(
            training.epochs,
            updates_per_epoch=min(training.updates_per_epoch, len(self.loader)),
            selects=Criterion(metric="mse"),
            patience=training.patience,
            schedule=halving(),
            clip_norm=1.0,
        )

    def build_model(self) -> nn.Module:
        """Build the streaming forecaster."""
        return StreamingForecaster(self.model_config)

    def build_optimiser(self, model: nn.Module) -> Optimizer:
        """Build Adam."""
        return OptimiserConfig(learning_rate=self.training.learning_rate).build(model)

    def batches(self, epoch: int) -> Iterator[PanelBatch]:
        """Walk through the training windows in this epoch's order."""
        return self.loader.epoch(epoch)

    def loss(self, model: nn.Module, batch: PanelBatch) -> Tensor:
        """Return the mean squared error of the forecasts after the chosen rows of each window."""
        return F.mse_loss(*self._compare(model, batch, self.targets))

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Average the squared error over windows that forecast what was held out."""
        del part, moment
        squared = Mean()
        for starts in torch.split(self.validation, 128):
            found, truth = self._compare(model, self._take(starts), self.targets[-1:])
            squared.add((found - truth).square())
        return {"mse": squared.value}

    def _compare(self, model: nn.Module, batch: PanelBatch, targets: Tensor) -> tuple[Tensor, Tensor]:
        past = self.past_steps
        marks = batch.marks[:, :past] if batch.marks.shape[-1] else None
        found, _ = model(batch.rows[:, :past], marks, positions=targets)
        horizon = self.model_config.horizon_steps
        truth = [batch.rows[:, place + 1 : place + 1 + horizon] for place in targets.tolist()]
        return found, torch.stack(truth, dim=1)

    def _starts(self, lengths: Sequence[int], held_out: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return where windows begin: those before what is held out, and those that forecast it."""
        size, offset = self.past_steps + self.model_config.horizon_steps, 0
        train, validation = [], []
        for length, held in zip(lengths, held_out, strict=True):
            train.append(torch.arange(offset, max(offset, offset + length - held - size + 1)))
            first = max(0, length - held - self.past_steps)
            validation.append(torch.arange(offset + first, max(offset + first, offset + length - size + 1)))
            offset += length
        held_windows = torch.cat(validation)
        spread = torch.linspace(0, len(held_windows) - 1, min(VALIDATION_WINDOWS, len(held_windows))).long()
        return torch.cat(train), held_windows[spread]

    def _take(self, starts: Tensor) -> PanelBatch:
        steps = torch.arange(self.past_steps + self.model_config.horizon_steps)
        places = starts.unsqueeze(1) + steps
        return PanelBatch(rows=self.values[places], marks=self.marks[places])


def find_scale(name: object, values: NDArray[np.float64]) -> tuple[float, float]:
    """Return mean and deviation of a series; 1 for the deviation of a constant one."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(values.mean()), float(values.std())
    if not math.isfinite(mean + deviation):
        raise DataError(
            f"series {name!r} reaches from {values.min():g} to {values.max():g}: the squares of such numbers "
            f"are too large for float64. Divide them first, or look for a wrong value."
        )
    return mean, deviation if deviation > 0.0 else 1.0


def scale_rows(name: object, rows: SeriesRows, scale: tuple[float, float]) -> Tensor:
    """Return the values as a model wants them, (rows, 1); what it cannot hold is refused."""
    with np.errstate(over="ignore"):
        scaled = (rows.values - scale[0]) / scale[1]
    wrong = np.flatnonzero(~(np.abs(scaled) <= largest(torch.float32)))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"series {name!r}: {rows.values[row]:g} at {show_time(rows.times[row])} is too far from what was "
            f"fitted, mean {scale[0]:g} and deviation {scale[1]:g}, to be computed with. Leave it out, or "
            f"correct it."
        )
    return torch.from_numpy(scaled).float().unsqueeze(-1)


def date_marks(rows: SeriesRows) -> Tensor:
    """Return the marks of the dates, (rows, 4); of whole numbers there are none, (rows, 0)."""
    if rows.times.dtype.kind != "M":
        return torch.zeros(len(rows.times), 0)
    return torch.from_numpy(time_marks(cast("NDArray[np.datetime64]", rows.times)))


@torch.no_grad()
def take_in(
    model: StreamingForecaster, state: StreamingState, rows: Mapping[int, Tensor], marks: Mapping[int, Tensor]
) -> None:
    """Run new rows through the model and write the new states over the old ones, in place.

    Args:
        model: a trained forecaster of one column.
        state: of all streams.
        rows: (rows, 1) by the number of the stream; streams with about equally many go together.
        marks: (rows, marks), likewise.
    """
    groups: dict[int, list[int]] = {}
    for stream, new in rows.items():
        groups.setdefault(len(new).bit_length(), []).append(stream)  # at most half of a group is padding
    changed = []
    for members in groups.values():
        streams = torch.tensor(members)
        lengths = torch.tensor([len(rows[stream]) for stream in members])
        padded = pad_sequence([rows[stream] for stream in members], batch_first=True)
        dates = pad_sequence([marks[stream] for stream in members], batch_first=True)
        mask = torch.arange(padded.shape[1]) < lengths.unsqueeze(1)
        _, new_state = model(
            padded,
            dates if dates.shape[-1] else None,
            state.select(streams),
            mask=None if bool(mask.all()) else mask,
            positions=torch.tensor([padded.shape[1] - 1]),
        )
        if not bool(new_state.output.isfinite().all()):
            raise DataError("the model cannot compute with these rows: its answer would not be finite.")
        changed.append((streams, new_state))
    for streams, new_state in changed:  # only now, so that all rows are taken in or none
        _put(state, streams, new_state)


def _put(state: object, streams: Tensor, new: object) -> None:
    """Write the new states of some streams over their old ones; the others are not touched."""
    if isinstance(state, Tensor) and isinstance(new, Tensor):
        state[streams] = new.to(state.dtype)
    elif isinstance(state, tuple) and isinstance(new, tuple):
        for old_part, new_part in zip(state, new, strict=True):
            _put(old_part, streams, new_part)


FORMAT_VERSION = 2
DESCRIPTION, STATE = "estimator.json", "state.bin"
KEPT_TIMES = 64  # of each series, to tell its step and go on with its dates
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
        self.history_ = [dict(look["validation"]) for look in fitted.status.curve]
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
        """Return the times of a forecast; a series of one row goes on at the step of another."""
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
