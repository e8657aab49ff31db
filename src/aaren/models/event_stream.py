"""EventStream: an event model and the state of its streams, held together for people. Push times, get laws.

The same manners as every `Session`; but people have times, not gaps, so this one keeps the clock too.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.errors import DataError, ShapeError
from aaren.models.event_distribution import Events, NextEvent
from aaren.models.event_state import EventState
from aaren.models.inputs import read_numbers
from aaren.models.session import Session

if TYPE_CHECKING:
    from aaren.models.event_forecaster import EventForecaster

Numbers = Tensor | NDArray[np.generic] | list[float] | list[int] | float | int


class EventStream(Session[EventState]):
    """One or more streams of events under way; made by `model.stream()`.

    Args:
        model: a model for inference, usually folded.
        batch_size: how many streams go side by side; None: one, whose events and laws lack that axis.
        start: when observation began; None: unknown, so that the first event has the gap 0.
    """

    def __init__(
        self, model: "EventForecaster", *, batch_size: int | None = None, start: float | None = None
    ) -> None:
        self.forecaster = model
        self.start = start
        if start is not None and not math.isfinite(float(read_numbers("start", start))):
            raise DataError(f"start must be a finite time, or None if it is unknown; got {start}.")
        super().__init__(model, batch_size=batch_size)  # type: ignore[arg-type]  # its step gives laws

    def push(  # type: ignore[override]  # an event is a time and a mark, and a law is no tensor
        self, time: Numbers, mark: Numbers | None = None, *, mask: Tensor | list[bool] | None = None
    ) -> NextEvent:
        """Take in one event of every stream and return the law of the next one.

        Args:
            time: (b,), or one number for all streams; in the unit of the training data.
            mark: (b,) kinds, 0 .. num_marks - 1, or one for all streams; None: there is only one kind.
            mask: (b,) bool; a stream with False has no event now.
        """
        device = self._weight.device
        if mark is None and self.forecaster.num_marks > 1:
            raise DataError(
                f"this model knows {self.forecaster.num_marks} kinds of events: say which one came, "
                f"push(time, mark) with a mark from 0 to {self.forecaster.num_marks - 1}."
            )
        times = self._per_stream("time", read_numbers("time", time).to(device, torch.float64))
        kinds = self._per_stream("mark", read_numbers("mark", 0 if mark is None else mark).to(device))
        real = None if mask is None else self._mask(mask)
        self._require_whole(kinds, real)
        marks = kinds.to(torch.int64)
        state = self.forecaster.own(self.state, times.shape[0])
        sets_clock = state.time.isnan() if real is None else state.time.isnan() & real
        before = torch.where(sets_clock, times, state.time)
        state = state._replace(time=before, start=torch.where(sets_clock, times, state.start))
        gaps = times - before
        self._require_later(gaps, real, times)
        with torch.no_grad():
            law, new = self.forecaster.step(Events(gaps, marks), state, mask=real)
        self._require_finite_answer(new.output)
        # Not time + gap, which rounds: the next gap is to be measured from the very time that was pushed.
        self.state = new._replace(time=times.clone() if real is None else torch.where(real, times, new.time))
        self.count += 1
        return law[0] if self.batch_size is None else law

    @property
    def next_event(self) -> NextEvent:
        """Return the law of the next event as things stand."""
        with torch.no_grad():
            law = self.forecaster.next_event(self.state)
        return law[0] if self.batch_size is None else law

    def _empty(self) -> EventState:
        state = super()._empty()
        start = torch.full_like(state.time, float("nan") if self.start is None else self.start)
        return state._replace(time=start, start=start.clone())

    def _per_stream(self, name: str, given: Tensor) -> Tensor:
        """Return a number for every stream, (b,)."""
        flat, size = given.reshape(-1), self._num_streams
        count = flat.shape[0]
        if count == size:
            return flat
        if count != 1:
            raise ShapeError(
                f"{name} must be one number or ({size},), one per stream; got {tuple(given.shape)}."
            )
        return flat.expand(size)

    def _require_whole(self, kinds: Tensor, real: Tensor | None) -> None:
        if not kinds.is_floating_point():
            return
        wrong = kinds.frac() != 0.0  # of NaN and infinity too
        if real is not None:
            wrong &= real
        if bool(wrong.any()):
            stream = int(wrong.nonzero()[0])
            raise DataError(
                f"the mark of stream {stream} is {float(kinds[stream]):g}; marks are whole numbers, kinds of "
                f"events from 0 to {self.forecaster.num_marks - 1}."
            )

    def _require_later(self, gaps: Tensor, real: Tensor | None, times: Tensor) -> None:
        """Raise unless events come one after the other; only the first may come when observation begins."""
        is_first = self.state.num_events == 0
        wrong = ~(((gaps > 0.0) | (is_first & (gaps == 0.0))) & times.isfinite())
        if real is not None:
            wrong &= real
        if bool(wrong.any()):
            stream = int(wrong.nonzero()[0])
            raise DataError(
                f"event {self.count} of stream {stream} has the time {float(times[stream])}, the one before "
                f"{float(self.state.time[stream])}: times must be finite and increase. Sort the events, "
                f"and push events of one time as one."
            )
