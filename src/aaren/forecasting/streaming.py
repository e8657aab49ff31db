"""StreamingForecaster: a forecast after every row of a stream, in constant time and memory, strictly causal.

    statistics   mean and variance of each series over the past, older rows weighing less (`half_life_steps`)
    embedding    the row, normalised by them, beside the two before it; the marks of its date; no position
    encoder      causal, recurrent; with `decay="learned"` it forgets at learned rates
    head         linear, from the last output to the whole horizon, put back into the statistics' units

A different model from the published `Forecaster`, which sees its window from both sides: its results are
reported in rows of their own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aaren.errors import ConfigError, DataError, ShapeError, require_at_least
from aaren.export.whole import WholeStep
from aaren.forecasting.data import time_marks
from aaren.nn import Encoder, EncoderConfig, EncoderState
from aaren.nn.checks import check_model_state, hide_padding, largest
from aaren.nn.dropout import drop
from aaren.nn.embedding import ValueEmbedding
from aaren.nn.mixer import frozen_copy
from aaren.nn.state import State, fingerprint_around
from aaren.ops import ScanState, read, scan_attention, step
from aaren.ops.checks import check_mask
from aaren.shapes import Mask, TokenMask
from aaren.stream.engine import Request
from aaren.stream.raw import calendar_marks, names_in, scaled_by
from aaren.stream.session import Item, Session, Steppable

NUM_CALENDAR_MARKS = 4  # hour, weekday, day of month and of year
EPSILON = 1e-5  # under the square root of the variance, of series in the scale of training
SMALL_SQUARE = 1e-3  # mean square below which it shrinks with the series
TINY_SQUARE = 1e-60  # of a series of zeros


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamingForecasterConfig:
    """What a `StreamingForecaster` is made of."""

    num_series: int  # columns in and out
    horizon_steps: int = 96
    num_marks: int = 4  # numbers that describe a row's date; 0: dates are not looked at
    half_life_steps: float = 96.0  # a row this old weighs half in the running mean and variance
    width: int = 64
    num_heads: int = 8
    ff_width: int | None = None  # default: 4 * width
    num_layers: int = 2
    dropout: float = 0.1
    activation: str = "gelu"
    mixer: str = "aaren"
    decay: str | None = None  # "learned": aaren only; for streams much longer than the training windows

    def __post_init__(self) -> None:
        """Report a setting that is unknown or contradicts another one."""
        require_at_least(self, num_series=1, horizon_steps=1, num_marks=0)
        if not self.half_life_steps > 0.0:
            raise ConfigError(
                f"half_life_steps must be positive; got {self.half_life_steps}. For a plain mean over all of "
                f"the past, use float('inf')."
            )
        self.encoder  # noqa: B018  builds, and so checks, the encoder's config

    @property
    def encoder(self) -> EncoderConfig:
        """Return the encoder's config."""
        return EncoderConfig.of(self, final_norm=True)


class _StreamingParts(NamedTuple):
    encoder: EncoderState
    statistics: ScanState  # of each series and its square, (b, 1[, 2 * series]), always float64
    tail: Tensor  # (b, 2, series)  the last two rows, normalised
    output: Tensor  # (b, c)  the encoder's last output; the forecast is read from it


class StreamingState(_StreamingParts, State):
    """Its size depends on the model and the number of streams, never on how many rows have come."""

    __slots__ = ()


class StreamingForecaster(nn.Module):
    """Forecast `horizon_steps` rows after each row: `forward` over many rows at once, `step` row by row.

    >>> model = StreamingForecaster(StreamingForecasterConfig(num_series=7, horizon_steps=24)).eval()
    >>> forecasts, state = model(torch.randn(2, 50, 7), torch.randn(2, 50, 4))
    >>> forecasts.shape, state.nbytes
    (torch.Size([2, 50, 24, 7]), 3440)
    >>> forecast, state = model.step(torch.randn(2, 7), state, marks=torch.randn(2, 4))
    >>> forecast.shape, state.nbytes
    (torch.Size([2, 24, 7]), 3440)
    """

    config_type: ClassVar[type[StreamingForecasterConfig]] = StreamingForecasterConfig
    preprocessing: Mapping[str, Any] | None = None  # of its run: columns and scales, which `stream` applies

    def __init__(self, config: StreamingForecasterConfig) -> None:
        super().__init__()
        self.config = config
        self.statistics = RunningStatistics(config.num_series, half_life_steps=config.half_life_steps)
        self.value = ValueEmbedding(config.num_series, config.width, padding="causal")
        self.mark = nn.Linear(config.num_marks, config.width, bias=False) if config.num_marks else None
        self.encoder = Encoder(config.encoder)
        self.head = nn.Linear(config.width, config.horizon_steps * config.num_series)

    def extra_repr(self) -> str:
        return f"horizon_steps={self.config.horizon_steps}, half_life_steps={self.config.half_life_steps}"

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> StreamingState:
        """Return the state before the first row, for `batch_size` streams."""
        weight = self.value.weight
        device = device or weight.device
        return StreamingState(
            encoder=self.encoder.init_state(batch_size, dtype=dtype, device=device),
            statistics=self.statistics.init_state(batch_size, device=device),
            tail=self.value.init_tail(batch_size, device=device),
            output=torch.zeros(batch_size, self.config.width, dtype=weight.dtype, device=device),
        )

    def forward(
        self,
        rows: Tensor,
        marks: Tensor | None = None,
        state: StreamingState | None = None,
        *,
        mask: Mask | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, StreamingState]:
        """Take in many rows at once.

        Args:
            rows: (b, t, series).
            marks: (b, t, marks), of the rows' dates.
            state: what came before; default: nothing.
            mask: (b, t) bool, True = real. A row with False is no row: the forecast there is the last one.
            positions: (k,) int; forecast only after these rows. All t forecasts are t times the horizon long.

        Returns:
            The forecasts after each row (or position), (b, t or k, horizon steps, series), and the state.
        """
        self._check(rows, marks, ("b", "t"), mask)
        rows = rows.to(self.value.weight.dtype)
        if state is None:
            state = self.init_state(rows.shape[0], device=rows.device)
        check_model_state(state, StreamingState, rows.shape[0])
        if mask is None:
            outputs, mean, deviation, state = self._run(rows, marks, state, None)
        else:
            outputs, mean, deviation, state = self._run_masked(rows, marks, state, mask)
        if positions is not None:
            outputs, mean, deviation = (part[:, positions] for part in (outputs, mean, deviation))
        return self._forecast(outputs, mean, deviation), state

    def step(
        self,
        row: Tensor,
        state: StreamingState,
        *,
        marks: Tensor | None = None,
        mask: TokenMask | None = None,
    ) -> tuple[Tensor, StreamingState]:
        """Take in one row per stream, (b, series), and return the new forecast, (b, horizon steps, series).

        Args:
            row: (b, series).
            state: from `init_state`, `forward` or an earlier `step`.
            marks: (b, marks), of the row's date.
            mask: (b,) bool; a stream with False keeps its state bit for bit and repeats its forecast.
        """
        self._check(row, marks, ("b",), mask)
        check_model_state(state, StreamingState, row.shape[0])
        row = row.to(self.value.weight.dtype)
        if mask is not None:  # what stands in a missing row, even NaN, has no effect
            row = row.masked_fill(~mask.unsqueeze(-1), 0.0)
        mean, deviation, statistics = self.statistics.step(row, state.statistics, mask=mask)
        normalised = (row - mean) / deviation
        x = self.value.step(normalised, state.tail)
        if self.mark is not None and marks is not None:
            marked = self.mark(marks)
            x = x + (marked if mask is None else marked.masked_fill(~mask.unsqueeze(-1), 0.0))
        output, encoded = self.encoder.step(self._drop(x), state.encoder, mask=mask)
        tail = torch.cat([state.tail[:, 1:], normalised.to(state.tail.dtype).unsqueeze(1)], dim=1)
        if mask is not None:
            tail = torch.where(mask[:, None, None], tail, state.tail)
            output = torch.where(mask.unsqueeze(-1), output, state.output.to(output.dtype))
        state = StreamingState(encoder=encoded, statistics=statistics, tail=tail, output=output)
        return self.predict(state), state

    def predict(self, state: StreamingState) -> Tensor:
        """Return the forecast of each stream as it stands, (b, horizon steps, series); no row is taken in."""
        check_model_state(state, StreamingState)
        mean, deviation = self.statistics.read(state.statistics, state.output.dtype)
        return self._forecast(state.output, mean, deviation)

    def stream(self, batch_size: int | None = None, *, engine: str = "auto") -> "ForecastSession":
        """Open a session that holds the state: push rows, read forecasts, in the units of training data.

        A model that was loaded from a run takes raw rows; one without `preprocessing` takes them as they are.

        Args:
            batch_size: how many streams go side by side; None: one, whose rows and forecasts lack that axis.
            engine: "native" (the C runtime), "torch", or "auto": native where the model can be lowered.
        """
        return ForecastSession(self._raw(), batch_size=batch_size, engine=engine)

    def _raw(self) -> Steppable[StreamingState]:
        """Return a frozen copy that takes raw rows and gives raw forecasts."""
        return scaled_by(self.fold(), self.preprocessing, self.config.num_series, restores=True)

    def whole_step(self) -> WholeStep:
        """Return the step from a raw row, and the time of its date, to a forecast in the row's units."""
        raw, config = self._raw(), self.config
        inputs = {"row": torch.zeros(1, config.num_series, dtype=torch.float64)}
        if config.num_marks == NUM_CALENDAR_MARKS:
            inputs["time"] = torch.zeros(1, dtype=torch.float64)
        elif config.num_marks:
            inputs["marks"] = torch.zeros(1, config.num_marks)

        def run(given: list[Tensor], state: StreamingState) -> tuple[list[Tensor], StreamingState]:
            marks = None
            if config.num_marks:
                marks = given[1] if "marks" in inputs else calendar_marks(given[1]).float()
            forecast, state = raw.step(given[0], state, marks=marks)
            return [forecast.double()], state

        columns = names_in(self.preprocessing, "columns")
        return WholeStep(
            inputs=inputs,
            outputs=("forecast",),
            run=run,
            state=raw.init_state(1),
            largest=largest(self.value.weight.dtype),
            fingerprint=self.fingerprint(),
            names={"row": columns} if columns else {},
            notes={
                "row": "one value per series, in the units of the training data",
                "time": "seconds since 1970-01-01 of the row's date, in the time zone of the training data",
                "forecast": "horizon steps by series, in the units of the training data",
            },
        )

    def fold(self) -> "StreamingForecaster":
        """Return a frozen copy for inference; states pass between it and the original."""
        folded = frozen_copy(self)
        folded.encoder = self.encoder.fold()
        return folded

    def fingerprint(self) -> str:
        """Return a short name of these weights, to be kept with saved states."""
        return fingerprint_around(self.encoder, self)

    def _run(
        self, rows: Tensor, marks: Tensor | None, state: StreamingState, mask: Mask | None
    ) -> tuple[Tensor, Tensor, Tensor, StreamingState]:
        """Take in rows whose padding, if any, stands at the end."""
        mean, deviation, statistics = self.statistics.forward(rows, state.statistics, mask=mask)
        normalised = hide_padding((rows - mean) / deviation, mask)
        x = self.value(normalised, state.tail)
        if self.mark is not None and marks is not None:
            x = x + self.mark(marks)
        outputs, encoded = self.encoder(self._drop(x), state.encoder, mask=mask)
        lengths = torch.full((len(rows),), rows.shape[1], device=rows.device) if mask is None else mask.sum(1)
        all_rows = torch.cat([state.tail, normalised.to(state.tail.dtype)], dim=1)
        all_outputs = torch.cat([state.output.to(outputs.dtype).unsqueeze(1), outputs], dim=1)
        streams = torch.arange(len(rows), device=rows.device)
        final = StreamingState(
            encoder=encoded,
            statistics=statistics,
            tail=torch.stack([all_rows[streams, lengths + place] for place in range(2)], dim=1),
            output=all_outputs[streams, lengths],
        )
        return outputs, mean, deviation, final

    def _run_masked(
        self, rows: Tensor, marks: Tensor | None, state: StreamingState, mask: Mask
    ) -> tuple[Tensor, Tensor, Tensor, StreamingState]:
        """Bring the real rows to the front, run, and spread the results: each place gets its prefix's."""
        order = (~mask).to(torch.uint8).argsort(dim=1, stable=True).unsqueeze(-1)

        def to_front(x: Tensor) -> Tensor:
            return hide_padding(x, mask).gather(1, order.expand_as(x))

        in_front = mask.gather(1, order.squeeze(-1))
        marks = None if marks is None else to_front(marks)
        outputs, mean, deviation, final = self._run(to_front(rows), marks, state, in_front)
        first_mean, first_deviation = self.statistics.read(state.statistics, rows.dtype)
        counts = mask.cumsum(1).unsqueeze(-1)  # how many real rows each prefix has

        def spread(first: Tensor, later: Tensor) -> Tensor:
            joined = torch.cat([first.to(later.dtype).unsqueeze(1), later], dim=1)
            return joined.gather(1, counts.expand(*counts.shape[:2], later.shape[-1]))

        return (
            spread(state.output, outputs),
            spread(first_mean, mean),
            spread(first_deviation, deviation),
            final,
        )

    def _forecast(self, outputs: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        shape = (self.config.horizon_steps, self.config.num_series)
        forecast = self.head(outputs)
        forecast = forecast.view(*forecast.shape[:-1], *shape)
        restored: Tensor = forecast * deviation.unsqueeze(-2) + mean.unsqueeze(-2)
        return restored

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.config.dropout) if self.training else x

    def _check(self, rows: Tensor, marks: Tensor | None, axes: tuple[str, ...], mask: Tensor | None) -> None:
        for name, tensor, size in (
            ("rows", rows, self.config.num_series),
            ("marks", marks, self.config.num_marks),
        ):
            if tensor is None and name == "marks" and size == 0:
                continue
            if tensor is None:
                raise ShapeError(
                    f"this model looks at dates: give marks ({', '.join(axes)}, {size}) with the rows, or "
                    f"build it with num_marks=0."
                )
            if tensor.shape != (*rows.shape[:-1], size) or tensor.ndim != len(axes) + 1:
                raise ShapeError(
                    f"{name} must be ({', '.join(axes)}, {size}), the columns that this model was built for; "
                    f"got {tuple(tensor.shape)}."
                )
        check_mask(mask, rows.shape[:-1], "(b, t)" if len(axes) == 2 else "(b,)")


class ForecastSession(Session[StreamingState]):
    """One or more streams being forecast; made by `model.stream()`."""

    def push(self, item: Item, *, date: object = None, **extras: Item) -> Tensor:
        """Take in one row of every stream and return the forecast after it, (b, horizon steps, series).

        Args:
            item: (b, series), or without b in a session of one stream; columns in the order of training.
            date: of the row, one for all streams or (b,): whatever `np.datetime64` takes. Instead of `marks`.
            **extras: `marks` (b, marks), which describe the date; `mask` (b,): streams with False got no row.
        """
        if date is not None:
            extras["marks"] = self._marks(date)
        return super().push(item, **extras)

    def _request(self, item: Any, extras: dict[str, Any]) -> Request | None:
        return None if "date" in extras else super()._request(item, extras)

    def _marks(self, date: object) -> NDArray[np.float32]:
        try:
            dates = np.asarray(date, dtype="datetime64[s]").reshape(-1)
        except (TypeError, ValueError) as error:
            raise DataError(f"date must be a date such as '2026-01-31 07:00'; got {date!r}.") from error
        if np.isnat(dates).any() or len(dates) not in (1, self._num_streams):
            raise DataError(
                f"date must be one date, or one for each of {self._num_streams} streams; got {date!r}."
            )
        marks = time_marks(dates)
        return (
            marks[0] if self.batch_size is None else np.broadcast_to(marks, (self.batch_size, marks.shape[1]))
        )


class RunningStatistics:
    """The rule; what has been seen is in a ScanState of one head, float64.

    Squares are taken of the rows as they are: means should not be thousands of standard deviations away from
    0. What is added to the variance, against division by nothing, is `EPSILON` where the mean square is above
    `SMALL_SQUARE`, and shrinks with it below, so that series in small units are normalised like others.

    Args:
        num_series: columns of a row.
        half_life_steps: a row this old weighs half.

    >>> statistics = RunningStatistics(1, half_life_steps=float("inf"))
    >>> mean, deviation, _ = statistics.forward(torch.tensor([[[1.0], [3.0]]]), statistics.init_state(1))
    >>> mean.flatten(), deviation[0, 1]
    (tensor([1., 2.]), tensor([1.0000]))
    """

    def __init__(self, num_series: int, *, half_life_steps: float) -> None:
        self.num_series = num_series
        self.log_decay = -math.log(2.0) / half_life_steps

    def init_state(self, batch_size: int, *, device: torch.device | str | None = None) -> ScanState:
        """Return the state before the first row."""
        return ScanState.empty((batch_size, 1), 2 * self.num_series, device=device)

    @torch.no_grad()
    def forward(
        self, rows: Tensor, state: ScanState, *, mask: Mask | None = None
    ) -> tuple[Tensor, Tensor, ScanState]:
        """Return mean and standard deviation after each row, (b, t, series), and the state."""
        precise = rows.to(state.m.dtype).unsqueeze(2)
        log_decay = precise.new_full((*rows.shape[:2], 1), self.log_decay)
        if mask is not None:
            log_decay = log_decay.masked_fill(~mask.unsqueeze(-1), 0.0)
        moments, state = scan_attention(
            torch.zeros_like(log_decay),
            torch.cat([precise, precise.square()], dim=-1),
            mask=mask,
            log_decay=log_decay,
            initial_state=state,
        )
        return (*_mean_and_deviation(moments.squeeze(2), rows.dtype), state)

    @torch.no_grad()
    def step(
        self, row: Tensor, state: ScanState, *, mask: TokenMask | None = None
    ) -> tuple[Tensor, Tensor, ScanState]:
        """Return mean and standard deviation after one more row per stream, (b, series), and the state."""
        precise = row.to(state.m.dtype).unsqueeze(1)
        log_decay = precise.new_full((row.shape[0], 1), self.log_decay)
        moments, state = step(
            state,
            torch.zeros_like(log_decay),
            torch.cat([precise, precise.square()], dim=-1),
            mask=mask,
            log_decay=log_decay,
        )
        return (*_mean_and_deviation(moments.squeeze(1), row.dtype), state)

    @torch.no_grad()
    def read(self, state: ScanState, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation as they stand, (b, series); both 0 before the first row."""
        mean, deviation = _mean_and_deviation(read(state).squeeze(1), dtype)
        return mean, torch.where(state.u == 0, 0.0, deviation)


def _mean_and_deviation(moments: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    mean, square = moments.chunk(2, dim=-1)
    variance = (square - mean.square()).clamp(min=0.0)
    added = EPSILON * (square / SMALL_SQUARE).clamp(min=TINY_SQUARE, max=1.0)
    return mean.to(dtype), (variance + added).sqrt().to(dtype)
