"""EventSession: one live sequence with dates and names of kinds, over an `EventStream`."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import torch

from aaren.errors import DataError
from aaren.events.distribution import NextEvent
from aaren.events.forecaster import EventState, EventStream
from aaren.events.frames import Clock, Kind
from aaren.events.model import EventModel


class Coming:
    """What an event leaves: how surprising it was, and when the next one comes, of which kind.

    Args:
        coming: the distribution of the next event.
        last: when the latest one came, as a number of the clock.
        clock: turns numbers into times.
        kinds: their names; empty: there is only one.
        surprise: of the latest event, in nats; None: it was the first.
    """

    def __init__(
        self, coming: NextEvent, last: float, clock: Clock, kinds: tuple[Kind, ...], surprise: float | None
    ) -> None:
        self.distribution, self.last, self.clock, self.kinds = coming, last, clock, kinds
        self.surprise = surprise

    def quantile(self, probability: float) -> Any:  # Any: a date or a number
        """Return the time before which the next event comes with this probability."""
        return self._write(float(self.distribution.quantile(probability)))

    @property
    def time(self) -> Any:  # Any: a date or a number
        """The median time of the next event."""
        return self.quantile(0.5)

    def interval(self, level: float = 80) -> tuple[Any, Any]:
        """Return two times between which the next event comes with a probability in percent."""
        if not 1 <= level < 100:
            raise DataError(f"a level is in percent, at least 1 and below 100; got {level!r}.")
        return self.quantile(0.5 - level / 200.0), self.quantile(0.5 + level / 200.0)

    @property
    def probabilities(self) -> dict[Kind, float]:
        """How likely each kind is."""
        kinds: tuple[Kind, ...] = self.kinds or ("event",)
        return dict(zip(kinds, self.distribution.mark_probabilities.tolist(), strict=True))

    @property
    def kind(self) -> Kind:
        """The most probable kind."""
        found = self.probabilities
        return max(found, key=lambda name: found[name])

    def __repr__(self) -> str:
        low, high = self.interval(80)
        kind = f", {self.kind!r} ({self.probabilities[self.kind]:.0%})" if self.kinds else ""
        return f"next: {self.time} (80 %: {low} to {high}){kind}"

    def _write(self, gap: float) -> Any:  # Any: a date or a number
        return self.clock.write(np.array([self.last + gap])).iloc[0]


class EventSession:
    """One live sequence; made by `AarenEventForecaster.stream()`."""

    def __init__(self, model: EventModel, *, clock: Clock, kinds: tuple[Kind, ...], engine: str) -> None:
        self.stream: EventStream = model.stream(engine=engine)
        self.clock, self.kinds = clock, kinds
        self._numbers = {kind: number for number, kind in enumerate(kinds)}
        self._log_scale = float(torch.tensor(model.config.time_scale).log())
        self._next: NextEvent | None = None  # None: ask the stream
        self._last: float | None = None  # None: no event yet

    def push(self, time: object, kind: Hashable = None) -> Coming:
        """Take in one event and say what comes next.

        Args:
            time: a date or a number, like those that were fitted; not before the last one.
            kind: its name; None: there is only one kind.
        """
        moment = self.clock.read_one(time)
        number = 0
        if self.kinds:
            if kind not in self._numbers:
                known = ", ".join(map(repr, self.kinds[:10])) + (", ..." if len(self.kinds) > 10 else "")
                said = "its kind is missing" if kind is None else f"the kind {kind!r} was not fitted"
                raise DataError(f"{said}: push(time, kind) with one of {known}.")
            number = self._numbers[kind]
        elif kind is not None:
            raise DataError(f"the model was fitted on one kind of events: push(time); got the kind {kind!r}.")
        before, last = self._next, self._last
        if last is not None and moment < last:
            latest = self.clock.write(np.array([last])).iloc[0]
            raise DataError(
                f"the event of {time!s} lies before the last one, {latest!s}: times must be finite and "
                f"increase. Sort the events; nothing was taken in."
            )
        if last is not None and before is None:
            before = self.stream.next_event
        coming = self.stream.push(moment, number)
        surprise = None
        if last is not None and before is not None:
            surprise = -float(before.log_density(moment - last, number)) - self._log_scale
        self._next, self._last = coming, moment
        return Coming(coming, moment, self.clock, self.kinds, surprise)

    @property
    def coming(self) -> Coming:
        """What comes next, as things stand."""
        if self._last is None:
            raise DataError("no event has come yet: push(time, kind) the first one.")
        return Coming(self._next or self.stream.next_event, self._last, self.clock, self.kinds, None)

    @property
    def state(self) -> EventState:
        """All that the session remembers, as a value; setting it takes the session there."""
        return self.stream.state

    @state.setter
    def state(self, state: EventState) -> None:
        self.stream.state = state
        self._settle()

    @property
    def engine(self) -> str:
        """What the session runs on: "native" or "torch"."""
        return self.stream.engine

    def to_bytes(self) -> bytes:
        """Return the state as bytes that name the weights they belong to."""
        return self.stream.to_bytes()

    def restore(self, blob: bytes) -> None:
        """Resume from what `to_bytes` returned."""
        self.stream.restore(blob)
        self._settle()

    def _settle(self) -> None:
        """Read from a new state when the last event came."""
        state = self.stream.state
        self._next = None
        self._last = float(state.time[0]) if int(state.num_events[0]) else None
