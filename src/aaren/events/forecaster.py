"""EventForecaster: what every event model can do, from `encode` and `decode` alone.

After each event a model gives the joint distribution of the next one: `forward` for whole sequences, `step`
for one event per stream. The distribution can be read from any `EventState`; a state can be branched and
simulated onwards (`simulate`), and `EventStream` holds one for users who have times instead of gaps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aaren.errors import ConfigError, DataError, ShapeError
from aaren.events.distribution import Events, GapDistribution, NextEvent
from aaren.export.whole import WholeStep
from aaren.nn import EncoderState
from aaren.nn.checks import check_model_state
from aaren.nn.state import State
from aaren.ops.checks import check_mask
from aaren.ops.tracing import BAD_TIME, is_traced, require
from aaren.shapes import Activations, Mask, Token, TokenMask
from aaren.stream.engine import Request
from aaren.stream.raw import names_in
from aaren.stream.session import Session, read_numbers

Numbers = Tensor | NDArray[np.generic] | list[float] | list[int] | float | int


class _EventParts(NamedTuple):
    encoder: EncoderState
    output: Tensor  # (b, c)  the encoder's last output; the next event's distribution is read from it
    time: Tensor  # (b,) float64  when the last event came; before the first: when observation began
    start: Tensor  # (b,) float64  when observation began, or the first event came if that is unknown
    num_events: Tensor  # (b,) int64  so far


class EventState(_EventParts, State):
    """Its size depends on the model and the number of streams, never on how many events have come."""

    __slots__ = ()


class Futures(NamedTuple):
    """Drawn events, (b, branches, t), padded on the right."""

    times: Tensor  # float64, since the event that the state ended with
    marks: Tensor  # int64
    mask: Tensor  # bool, True = an event
    is_cut: Tensor  # (b, branches) bool: max_events came before the horizon

    @property
    def counts(self) -> Tensor:
        """Return how many events each future has, (b, branches)."""
        return self.mask.sum(-1)


class EventForecaster(nn.Module):
    """Common methods; a model has `init_state`, `encode`, `encode_one`, `decode_gap` and `decode_marks`."""

    num_marks: int
    config: Any  # Any: of the model's own type
    preprocessing: Mapping[str, Any] | None = None  # of its run: names of kinds, the unit of time

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

    def decode_gap(self, outputs: Tensor) -> GapDistribution:
        """Turn what is known, (..., c), into the distribution of the next gap."""
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
        """Turn what is known, (..., c), into the distribution of the next event."""
        return NextEvent(gap=self.decode_gap(outputs), mark_logits=self.decode_marks(outputs))

    def forward(
        self, events: Events, state: EventState | None = None, *, mask: Mask | None = None
    ) -> tuple[NextEvent, EventState]:
        """Take in whole sequences and return, after each event, the distribution of the next one.

        Args:
            events: gaps and marks, (b, t).
            state: what came before; default: nothing.
            mask: (b, t) bool, True = real. Padding may hold anything; outputs there mean nothing.
        """
        outputs, state = self.encode(events, state, mask=mask)
        return self.decode(outputs), state

    def step(
        self, event: Events, state: EventState, *, mask: TokenMask | None = None
    ) -> tuple[NextEvent, EventState]:
        """Take in one event per stream and return the distribution of the next; constant time and memory.

        Args:
            event: gaps and marks, (b,).
            state: from `init_state`, `forward` or an earlier `step`; it stays valid, as a branch.
            mask: (b,) bool; a stream with False has no event: it keeps its state and its answer.
        """
        output, state = self.encode_one(event, state, mask=mask)
        return self.decode(output), state

    def next_event(self, state: EventState) -> NextEvent:
        """Return the distribution of each stream's next event as it stands; nothing is taken in.

        Before the first event it is that of an empty past, which the likelihood, given the
        first event, never trains.
        """
        check_model_state(state, EventState)
        return self.decode(state.output)

    @torch.no_grad()
    def simulate(
        self,
        state: EventState,
        *,
        num_branches: int = 1,
        horizon: float | None = None,
        max_events: int = 1_000,
        generator: torch.Generator | None = None,
    ) -> Futures:
        """Draw futures of every stream of a state.

        Args:
            state: Where to begin, of b streams; it is branched and stays as it is.
            num_branches: Futures of each stream.
            horizon: How far to go, in time since the last event; None: max_events are drawn, however long it
                takes.
            max_events: Where to stop if the horizon does not come.
            generator: Of the randomness.
        """
        check_model_state(state, EventState)
        if num_branches < 1 or max_events < 1 or (horizon is not None and not horizon > 0.0):
            raise ConfigError(
                f"num_branches and max_events must be at least 1 and horizon positive or None; got "
                f"{num_branches}, {max_events} and {horizon}."
            )
        state = state.select(torch.arange(len(state.time)).repeat_interleave(num_branches))
        limit = float("inf") if horizon is None else horizon
        clock = torch.zeros(len(state.time), dtype=torch.float64, device=state.time.device)
        is_going = torch.ones_like(clock, dtype=torch.bool)
        times, marks, masks = [], [], []
        for _ in range(max_events):
            drawn = self.next_event(state).sample(1, generator=generator)
            event = Events(drawn.gaps[0], drawn.marks[0])
            clock = clock + event.gaps
            is_going = is_going & (clock <= limit)
            if not bool(is_going.any()):
                break
            times.append(clock.masked_fill(~is_going, 0.0))
            marks.append(event.marks.masked_fill(~is_going, 0))
            masks.append(is_going)
            # Futures that are over are stepped too: their state is never read.
            _, state = self.encode_one(event, state)
        return Futures(
            times=_join(times, clock, num_branches),
            marks=_join(marks, torch.zeros_like(clock, dtype=torch.int64), num_branches),
            mask=_join(masks, is_going, num_branches),
            is_cut=(is_going & (horizon is not None)).view(-1, num_branches),
        )

    def stream(
        self, batch_size: int | None = None, *, start: float | None = None, engine: str = "auto"
    ) -> "EventStream":
        """Open a session that holds the state: push events, read the distribution of the next one.

        Args:
            batch_size: How many streams go side by side; None: one, whose events lack that axis.
            start: When observation began; None: unknown, so that the first event only sets the clock.
            engine: "native" (the C runtime), "torch", or "auto": native where the model can be lowered.
        """
        return EventStream(self.fold(), batch_size=batch_size, start=start, engine=engine)

    def whole_step(self) -> WholeStep:
        """Return the step from an event's time and kind to the distribution of the next one.

        It refuses what a session refuses: times that do not increase, kinds that there are not.
        """
        session = EventStream(self.fold())
        outputs: list[str] = []

        def run(given: list[Tensor], state: EventState) -> tuple[list[Tensor], EventState]:
            coming, state = session._advance(given[0], given[1], None, state)
            parts = _parts(coming)
            if parts.pop("mark_logits", None) is not None:
                parts["mark_probabilities"] = coming.mark_probabilities
            outputs[:] = parts
            return list(parts.values()), state

        examples = {"time": torch.zeros(1, dtype=torch.float64), "mark": torch.zeros(1, dtype=torch.int64)}
        with torch.no_grad():
            run(list(examples.values()), session.state)
            gap = self.next_event(session.state).gap
        kinds = names_in(self.preprocessing, "mark_names")
        unit = str((self.preprocessing or {}).get("unit", "")) or "the unit of the training data"
        return WholeStep(
            inputs=examples,
            outputs=tuple(outputs),
            run=run,
            state=session.state,
            largest=float(torch.finfo(torch.float64).max),
            fingerprint=self.fingerprint(),
            names={"mark_probabilities": kinds} if kinds and "mark_probabilities" in outputs else {},
            notes={
                "time": f"when the event came, in {unit}; later than the one before",
                "mark": f"its kind, from 0 to {self.num_marks - 1}",
                "log_weights": f"of normals whose mixture is the distribution of log(gap + "
                f"{getattr(gap, 'offset', 0.0)!r}); gap: the time to the next event, in {unit}",
                "locations": "their means",
                "scales": "their standard deviations",
                "mark_probabilities": "of the kinds of the next event",
            },
        )

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
        if mask is not None:
            check_mask(mask, gaps.shape, letters)
        if is_traced():
            return
        fine = (gaps >= 0.0) & (gaps < torch.inf) & (marks >= 0) & (marks < self.num_marks)  # NaN: False
        if mask is not None:
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


class EventStream(Session[EventState]):
    """One or more streams of events under way; made by `model.stream()`.

    Args:
        model: a model for inference, usually folded.
        batch_size: how many streams go side by side; None: one, whose events lack that axis.
        start: when observation began; None: unknown, so that the first event has the gap 0.
        engine: "torch", "native" or "auto".
    """

    def __init__(
        self,
        model: "EventForecaster",
        *,
        batch_size: int | None = None,
        start: float | None = None,
        engine: str = "torch",
    ) -> None:
        self.forecaster = model
        self.start = start
        if start is not None and not math.isfinite(float(read_numbers("start", start))):
            raise DataError(f"start must be a finite time, or None if it is unknown; got {start}.")
        self._coming: NextEvent | None = None  # shows which parts an answer has
        super().__init__(model, batch_size=batch_size, engine=engine)  # type: ignore[arg-type]  # its step gives distributions

    def push(  # type: ignore[override]  # an event is a time and a mark, and a distribution is no tensor
        self, time: Numbers, mark: Numbers | None = None, *, mask: Tensor | list[bool] | None = None
    ) -> NextEvent:
        """Take in one event of every stream and return the distribution of the next one.

        Args:
            time: (b,), or one number for all streams; in the unit of the training data.
            mark: (b,) kinds, 0 .. num_marks - 1, or one for all streams; None: there is only one kind.
            mask: (b,) bool; a stream with False has no event now.
        """
        if mask is None and self._native is not None:
            answer = self._push_fast(time, 0 if mark is None and self.forecaster.num_marks == 1 else mark)
            if answer is not None:
                return answer
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
        state = self.state
        check_model_state(state, EventState, times.shape[0])
        self._require_later(times - self._start_clock(times, state, real).time, real, times)
        if self._native is not None:
            self._offer(times, marks, real, state)
            names, values = ((), [times, marks]) if real is None else (("mask",), [times, marks, real])
            parts = self._run_native(Request(names, values))
            if parts is not None:
                return self._answer(parts)
        with torch.no_grad():
            coming, new = self._advance(times, marks, real, state)
        self._require_finite_answer(new.output)
        self.state = new
        self.count += 1
        return coming[0] if self.batch_size is None else coming

    def _start_clock(self, times: Tensor, state: EventState, real: Tensor | None) -> EventState:
        """Return the state, its clock set by the first event where it is unknown when observation began."""
        sets_clock = state.time.isnan() if real is None else state.time.isnan() & real
        return state._replace(
            time=torch.where(sets_clock, times, state.time), start=torch.where(sets_clock, times, state.start)
        )

    def _advance(
        self, times: Tensor, marks: Tensor, real: Tensor | None, state: EventState
    ) -> tuple[NextEvent, EventState]:
        """Take in events that have been checked; what is recorded of this checks them itself."""
        state = self._start_clock(times, state, real)
        if is_traced():
            gaps, is_known = times - state.time, (marks >= 0) & (marks < self.forecaster.num_marks)
            is_equal = gaps == 0.0
            in_order = (gaps > 0.0) | (is_equal if self._has_ties else (state.num_events == 0) & is_equal)
            require(is_known if real is None else is_known | ~real)
            require(in_order if real is None else in_order | ~real, code=BAD_TIME)
        coming, new = self.forecaster.step(Events(times - state.time, marks), state, mask=real)
        # Not time + gap, which rounds: the next gap is to be measured from the very time that was pushed.
        return coming, new._replace(
            time=times.clone() if real is None else torch.where(real, times, new.time)
        )

    def _offer(self, times: Tensor, marks: Tensor, real: Tensor | None, state: EventState) -> None:
        """Make a program for events like these."""
        assert self._native is not None
        has_mask = real is not None

        def run(inputs: list[Tensor], held: EventState) -> tuple[list[Tensor], EventState]:
            found, new = self._advance(inputs[0], inputs[1], inputs[2] if has_mask else None, held)
            self._coming = found
            return list(_parts(found).values()), new

        examples = [times[:1], torch.zeros_like(marks[:1])]
        if real is not None:
            examples.append(torch.ones_like(real[:1]))
        self._native.compile(("mask",) if has_mask else (), run, examples, state)

    def _push_fast(self, time: object, mark: object) -> NextEvent | None:
        """Take in one event of one stream, given as plain numbers that are clearly fine."""
        native = self._native
        assert native is not None
        is_plain = type(time) in (float, int) and type(mark) is int and self.batch_size is None
        if not is_plain or self._coming is None or self._words is None:
            return None
        parts = native.run_plain(self._words, (), [time, mark])  # type: ignore[list-item]  # numbers, by their types
        if parts is None:
            return None
        self.count += 1
        return self._answer(parts)

    def _request(self, item: Any, extras: dict[str, Any]) -> Request | None:
        if self._coming is None or not extras.keys() <= {"mark"}:
            return None
        num_marks = self.forecaster.num_marks
        marks = np.asarray(extras.get("mark", np.zeros(len(item), np.int64) if num_marks == 1 else None))
        if marks.dtype.kind not in "iuf" or not ((marks >= 0) & (marks < num_marks) & (marks % 1 == 0)).all():
            return None
        return Request((), [item, marks.astype(np.int64)])

    def _answers(self, parts: list[Tensor]) -> list[NextEvent]:
        assert self._coming is not None
        return _split(self._coming, parts)

    def _answer(self, parts: list[Tensor]) -> NextEvent:
        """Return the answer of a program."""
        assert self._coming is not None
        coming = _with_parts(self._coming, parts)
        return coming[0] if self.batch_size is None else coming

    @property
    def _has_ties(self) -> bool:
        """Whether events may come at equal times: where the clock has a resolution."""
        return bool(getattr(self.forecaster.config, "resolution", 0.0))

    @property
    def next_event(self) -> NextEvent:
        """Return the distribution of the next event as things stand."""
        with torch.no_grad():
            coming = self.forecaster.next_event(self.state)
        return coming[0] if self.batch_size is None else coming

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
        may_be_equal = torch.ones_like(is_first) if self._has_ties else is_first
        wrong = ~(((gaps > 0.0) | (may_be_equal & (gaps == 0.0))) & times.isfinite())
        if real is not None:
            wrong &= real
        if bool(wrong.any()):
            stream = int(wrong.nonzero()[0])
            raise DataError(
                f"event {self.count} of stream {stream} has the time {float(times[stream])}, the one before "
                f"{float(self.state.time[stream])}: times must be finite and increase. Sort the events"
                + ("." if self._has_ties else ", and push events of one time as one.")
            )


def _parts(coming: NextEvent) -> dict[str, Tensor]:
    """Return the tensors of an answer by name."""
    found = {
        field.name: getattr(coming.gap, field.name)
        for field in fields(coming.gap)  # type: ignore[arg-type]  # distributions are dataclasses
        if isinstance(getattr(coming.gap, field.name), Tensor)
    }
    return found if coming.mark_logits is None else {**found, "mark_logits": coming.mark_logits}


def _with_parts(like: NextEvent, tensors: list[Tensor]) -> NextEvent:
    """Return an answer of the same kind with other numbers."""
    parts = dict(zip(_parts(like), tensors, strict=True))
    logits = parts.pop("mark_logits", None)
    return NextEvent(gap=replace(like.gap, **parts), mark_logits=logits)  # type: ignore[type-var]  # a dataclass


def stack_events(found: Sequence[NextEvent]) -> NextEvent:
    """Return the answers of several streams, of one model, as one."""
    every = (list(_parts(one).values()) for one in found)
    return _with_parts(found[0], [torch.stack(parts) for parts in zip(*every, strict=True)])


def _split(like: NextEvent, tensors: list[Tensor]) -> list[NextEvent]:
    """Return answers of the same kind, one for each of the first axis."""
    names = list(_parts(like))
    kind = type(like.gap)
    given = fields(like.gap)  # type: ignore[arg-type]  # distributions are dataclasses
    rest = {field.name: getattr(like.gap, field.name) for field in given if field.name not in names}
    logits = names.index("mark_logits") if "mark_logits" in names else None
    found = []
    for parts in zip(*(tensor.unbind() for tensor in tensors), strict=True):
        gap = kind(**dict(zip(names[:logits], parts, strict=False)), **rest)
        found.append(NextEvent(gap=gap, mark_logits=None if logits is None else parts[logits]))
    return found


def _join(columns: list[Tensor], like: Tensor, num_branches: int) -> Tensor:
    joined = torch.stack(columns, dim=-1) if columns else like.new_zeros(len(like), 0)
    return joined.view(len(like) // num_branches, num_branches, joined.shape[-1])
