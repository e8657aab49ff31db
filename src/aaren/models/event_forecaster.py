"""EventForecaster: what every event model can do, from `encode` and `decode` alone. Knows no layer.

After each event a model gives the joint law of the next one. `forward` for whole sequences, `step` for one
event per stream; the law can be read from any state, and a state can be branched and simulated onwards.
"""

import math

import torch
from torch import Tensor, nn

from aaren.errors import DataError, ShapeError
from aaren.models.event_distribution import Events, GapLaw, NextEvent
from aaren.models.event_simulation import Futures, simulate
from aaren.models.event_state import EventState
from aaren.models.event_stream import EventStream
from aaren.models.inputs import check_streams
from aaren.nn.inputs import wrong_kind
from aaren.shapes import Activations, Mask, Token, TokenMask


class EventForecaster(nn.Module):
    """The verbs; a model brings `init_state`, `encode`, `encode_one`, `decode_gap` and `decode_marks`."""

    num_marks: int

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> EventState:
        """Return the state before the first event, for `batch_size` streams, observed from time 0."""
        raise NotImplementedError

    def encode(
        self, events: Events, state: EventState | None = None, *, mask: Mask | None = None
    ) -> tuple[Activations, EventState]:
        """Take in whole sequences, (b, t); return what is known after each event, (b, t, c), and the state.

        Padding, where the mask is False, may stand anywhere and hold anything; its outputs mean nothing.
        """
        raise NotImplementedError

    def encode_one(
        self, event: Events, state: EventState, *, mask: TokenMask | None = None
    ) -> tuple[Token, EventState]:
        """Take in one event per stream, (b,); a stream whose mask is False keeps its state bit for bit."""
        raise NotImplementedError

    def decode_gap(self, outputs: Tensor) -> GapLaw:
        """Turn what is known, (..., c), into the law of the next gap."""
        raise NotImplementedError

    def decode_marks(self, outputs: Tensor) -> Tensor | None:
        """Turn what is known, (..., c), into logits of the next mark, (..., marks); None: only one kind."""
        raise NotImplementedError

    def fold(self) -> "EventForecaster":
        """Return a frozen copy for inference; states pass between it and the original."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return a short name of these weights, to be kept with saved states."""
        raise NotImplementedError

    def decode(self, outputs: Tensor) -> NextEvent:
        """Turn what is known, (..., c), into the law of the next event."""
        return NextEvent(gap=self.decode_gap(outputs), mark_logits=self.decode_marks(outputs))

    def forward(
        self, events: Events, state: EventState | None = None, *, mask: Mask | None = None
    ) -> tuple[NextEvent, EventState]:
        """Take in whole sequences and say after each event how the next one comes.

        Args:
            events: gaps and marks, (b, t).
            state: what came before; default: nothing.
            mask: (b, t) bool, True = real. Padding may hold anything; what is said there means nothing.
        """
        outputs, state = self.encode(events, state, mask=mask)
        return self.decode(outputs), state

    def step(
        self, event: Events, state: EventState, *, mask: TokenMask | None = None
    ) -> tuple[NextEvent, EventState]:
        """Take in one event per stream and say how the next one comes; constant time and memory.

        Args:
            event: gaps and marks, (b,).
            state: from `init_state`, `forward` or an earlier `step`; it stays valid, as a branch.
            mask: (b,) bool; a stream with False has no event: it keeps its state and repeats its law.
        """
        output, state = self.encode_one(event, state, mask=mask)
        return self.decode(output), state

    def next_event(self, state: EventState) -> NextEvent:
        """Return the law of each stream's next event as it stands; nothing is taken in.

        Before the first event it is what the model says of an empty past, which the likelihood, given the
        first event, never trains.
        """
        return self.decode(self.own(state).output)

    def simulate(
        self,
        state: EventState,
        *,
        num_branches: int = 1,
        horizon: float | None = None,
        max_events: int = 1_000,
        generator: torch.Generator | None = None,
    ) -> Futures:
        """Draw whole futures from a state, which is branched and stays as it is; see `simulate`."""
        return simulate(
            self,
            self.own(state),
            num_branches=num_branches,
            horizon=horizon,
            max_events=max_events,
            generator=generator,
        )

    def stream(self, batch_size: int | None = None, *, start: float | None = None) -> EventStream:
        """Open a session that holds the state: push events, read the law of the next one.

        Args:
            batch_size: How many streams go side by side; None: one, whose events lack that axis.
            start: When observation began; None: unknown, so that the first event only sets the clock.
        """
        return EventStream(self.fold(), batch_size=batch_size, start=start)

    def own(self, state: EventState, streams: int | None = None) -> EventState:
        """Return the state, or say that it is of another kind or, if asked, of another number of streams."""
        if not isinstance(state, EventState):
            raise wrong_kind(EventState, state)
        if streams is not None:
            check_streams(state.time.shape[0], streams)
        return state

    def check(self, events: Events, mask: Tensor | None, axes: tuple[str, ...]) -> None:
        """Raise unless gaps and marks fit together and hold what they may."""
        gaps, marks = events
        letters = f"({', '.join(axes)}{',' * (len(axes) == 1)})"
        if gaps.ndim != len(axes) or not gaps.is_floating_point():
            hint = " For one event per stream, call step." if gaps.ndim == 1 else ""
            raise ShapeError(
                f"gaps must be {letters} and floating; got {tuple(gaps.shape)} {gaps.dtype}.{hint}"
            )
        if marks.shape != gaps.shape or marks.dtype != torch.int64:
            raise ShapeError(
                f"marks must be {letters} int64 like the gaps {tuple(gaps.shape)}; got {tuple(marks.shape)} "
                f"{marks.dtype}. Without marks, give zeros."
            )
        fine = (gaps >= 0.0) & (gaps < torch.inf) & (marks >= 0) & (marks < self.num_marks)  # NaN: False
        if mask is not None:
            if mask.shape != gaps.shape or mask.dtype != torch.bool:
                raise ShapeError(
                    f"mask must be {letters} bool like the gaps; got {tuple(mask.shape)} {mask.dtype}."
                )
            fine = fine | ~mask
        if not bool(fine.all()):
            place = tuple((~fine).nonzero()[0].tolist())
            gap, mark = float(gaps[place]), int(marks[place])
            if not 0.0 <= gap < math.inf:
                raise DataError(
                    f"the gap at {place} is {gap}; gaps are finite and 0 or more. Sort events by time, leave "
                    f"out NaN."
                )
            raise DataError(
                f"the mark at {place} is {mark}, outside 0..{self.num_marks - 1}, its known kinds."
            )
