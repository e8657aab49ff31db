"""`aaren bench stream`: tokens one at a time, and what they cost as their number grows (paper, Figure 5).

Every model runs in a process of its own; they take turns of a few dozen tokens in one run. Against the
number of tokens: bytes of the state, memory of the process above its level with the weights loaded, time per
token, cumulative time. Then how many tokens per second a step carries when many streams are stepped together:
an eager step costs dispatch, not arithmetic. Then the same step without torch (`stream_engines`).
`stream_view` draws and judges the record.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing.connection import Connection
from typing import NamedTuple, cast

import torch
from torch import Tensor

from aaren.bench.memory import Child, fresh_process, resident_bytes, return_freed_memory
from aaren.bench.record import Measured, OnStep, Row, Setting
from aaren.bench.stream_contenders import (
    AAREN,
    FOLDED,
    LABELS,
    PAPER,
    SEED,
    SMALL,
    build,
    count_parameters,
    size_title,
)
from aaren.bench.stream_engines import EngineSettings, measure_engines
from aaren.bench.timing import Timing, time_interleaved
from aaren.nn import Encoder, EncoderState

COMMAND = "aaren bench stream"
EARLY_TOKENS = 1000  # where a late token's time is compared with an early one's
_WARM_UP_TOKENS = 48
_DIFFERENT_TOKENS = 64


def measure_many_streams(numbers: Sequence[int], *, budget_seconds: float) -> list[Row]:
    """Time a step of the small size with each number of streams, turn by turn."""
    cells = [(contender, streams) for contender in (FOLDED, AAREN) for streams in numbers]
    with torch.inference_mode():
        calls = {f"{name} {streams}": _steps_of(SMALL, name, streams) for name, streams in cells}
        timings = time_interleaved(calls, budget_seconds=budget_seconds, max_repeats=2000)
    return [
        {
            "what": "many_streams",
            "size": SMALL,
            "contender": contender,
            "streams": streams,
            **timing.fields("step_", parts=steps_per_turn(streams)),
            "steps_per_turn": steps_per_turn(streams),
            "repeats": timing.repeats,
            "tokens_per_second": streams * steps_per_turn(streams) / timing.median,
        }
        for (contender, streams), timing in zip(cells, timings.values(), strict=True)
    ]


def steps_per_turn(streams: int) -> int:
    """Return how many steps follow each other: a single stream needs many, to start with warm caches.

    >>> steps_per_turn(1), steps_per_turn(1024)
    (64, 4)
    """
    return max(4, 64 // streams)


def _steps_of(size: str, contender: str, streams: int) -> Callable[[], object]:
    """Return a call that takes in a turn's tokens and keeps the state for the next call."""
    encoder = build(size, contender).eval()
    generator = torch.Generator().manual_seed(SEED)
    items = torch.randn(streams, encoder.config.width, generator=generator)
    state = encoder.init_state(streams)

    def take_turn() -> object:
        nonlocal state
        for _ in range(steps_per_turn(streams)):
            outputs, state = encoder.step(items, state)
        return outputs

    return take_turn


class Turn(NamedTuple):
    """What a worker says after it has taken in some tokens."""

    tokens: int  # all so far
    seconds: list[float]  # of each token of this turn
    state_bytes: int
    process_bytes: int | None  # above the level with weights loaded and a warm-up done


class StreamWorker:
    """The parent's end of a model that lives in a process of its own; made by `stream_worker`."""

    def __init__(self, size: str, contender: str, child: Child) -> None:
        self.size, self.contender, self._child = size, contender, child
        self.tokens = 0
        self.cumulative_seconds = 0.0
        self.latest: list[float] = []  # seconds of the latest tokens
        self.parameters, self.first_state_bytes = cast(tuple[int, int], child.receive())

    def take(self, num_tokens: int) -> Turn:
        """Feed the model more tokens, one at a time."""
        turn = cast(Turn, self._child.ask("take", num_tokens))
        self.tokens = turn.tokens
        self.cumulative_seconds += sum(turn.seconds)
        return turn

    def take_row(self, num_tokens: int, window_tokens: int) -> Row:
        """Feed it more tokens; return what one costs, over the latest ones, and what all did."""
        turn = self.take(num_tokens)
        self.latest = [*self.latest, *turn.seconds][-window_tokens:]
        return {
            "what": "stream",
            "size": self.size,
            "contender": self.contender,
            "tokens": turn.tokens,
            "parameters": self.parameters,
            "state_bytes": turn.state_bytes,
            "process_bytes": turn.process_bytes,
            **Timing.of(self.latest).fields("token_"),
            "window_tokens": len(self.latest),
            "cumulative_seconds": self.cumulative_seconds,
        }

    def compare(self, *, rounds: int, tokens: int) -> Row:
        """Time `tokens` at a time from the state at EARLY_TOKENS and from the present one, in alternation."""
        return cast(Row, self._child.ask("compare", rounds, tokens))


@contextmanager
def stream_worker(size: str, contender: str, *, num_threads: int) -> Iterator[StreamWorker]:
    """Start a fresh process with this model, ready for its first token, and end it after the block."""
    with fresh_process(_work, size, contender, num_threads, preload=[__name__]) as child:
        yield StreamWorker(size, contender, child)


def _work(connection: Connection, size: str, contender: str, num_threads: int) -> None:
    """Run in the child: answer until the parent closes the connection."""
    torch.set_num_threads(num_threads)
    with torch.inference_mode():
        stream = _ModelStream(build(size, contender).eval())
        connection.send((count_parameters(stream.encoder), stream.first_state_bytes))
        answers: dict[str, Callable[..., object]] = {"take": stream.take, "compare": stream.compare}
        while True:
            name, *arguments = connection.recv()
            connection.send(answers[name](*arguments))


class _ModelStream:
    """A model, its state and the tokens it is fed."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        generator = torch.Generator().manual_seed(SEED)
        tokens = torch.randn(_DIFFERENT_TOKENS, 1, encoder.config.width, generator=generator)
        self.items: list[Tensor] = list(tokens)
        self.count = 0
        self.state: EncoderState = encoder.init_state(1)
        self.first_state_bytes = self.state.nbytes
        self.early: EncoderState | None = None
        self._time_tokens(self.state, _WARM_UP_TOKENS)
        return_freed_memory()
        self.first_resident = resident_bytes()

    def take(self, num_tokens: int) -> Turn:
        """Take in tokens, stopping by at EARLY_TOKENS to remember that state."""
        seconds: list[float] = []
        if self.count < EARLY_TOKENS <= self.count + num_tokens:
            before = EARLY_TOKENS - self.count
            seconds += self._advance(before)
            if self.state.nbytes == self.first_state_bytes:  # keeping a grown cache would count as memory
                self.early = self.state
            num_tokens -= before
        seconds += self._advance(num_tokens)
        resident = resident_bytes()
        above = None if resident is None or self.first_resident is None else resident - self.first_resident
        return Turn(
            tokens=self.count,
            seconds=seconds,
            state_bytes=self.state.nbytes,
            process_bytes=None if above is None else max(0, above),
        )

    def compare(self, rounds: int, tokens: int) -> Row:
        """Alternate between the early state and the present one; neither moves on."""
        early_state = self.state if self.early is None else self.early
        early: list[float] = []
        late: list[float] = []
        for _ in range(rounds):
            early += self._time_tokens(early_state, tokens)[0]
            late += self._time_tokens(self.state, tokens)[0]
        return {
            "early_tokens": self.count if self.early is None else EARLY_TOKENS,
            "late_tokens": self.count,
            **Timing.of(early).fields("early_"),
            **Timing.of(late).fields("late_"),
            "early_state_bytes": early_state.nbytes,
            "late_state_bytes": self.state.nbytes,
            "repeats": len(early),
        }

    def _advance(self, num_tokens: int) -> list[float]:
        seconds, self.state = self._time_tokens(self.state, num_tokens)
        self.count += num_tokens
        return seconds

    def _time_tokens(self, state: EncoderState, num_tokens: int) -> tuple[list[float], EncoderState]:
        """Step from a state; the clock runs during the step alone."""
        step, items, clock = self.encoder.step, self.items, time.perf_counter
        seconds: list[float] = []
        for index in range(num_tokens):
            item = items[index % _DIFFERENT_TOKENS]
            start = clock()
            _, state = step(item, state)
            seconds.append(clock() - start)
        return seconds, state


TURN_TOKENS = 64
_PARTS = 16  # equal parts of a stream at whose ends there is a row, besides doublings: for smooth curves
_COMPARE_ROUNDS, _COMPARE_TOKENS = 150, 8


class Lane(NamedTuple):
    """One model and how far it goes."""

    size: str
    contender: str
    tokens: int


def lanes(tokens: Mapping[str, int], *, folded_tokens: int | None = None) -> tuple[Lane, ...]:
    """Send all models of a size over the same number of tokens, and the folded Aaren further if asked to.

    Args:
        tokens: size to number of tokens.
        folded_tokens: how far the folded Aaren of the paper's block goes.

    >>> [lane.tokens for lane in lanes({"paper": 64}, folded_tokens=128)]
    [128, 64, 64, 64, 64, 64]
    """
    return tuple(
        Lane(size, name, folded_tokens if folded_tokens and (size, name) == (PAPER, FOLDED) else count)
        for size, count in tokens.items()
        for name in LABELS
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamSettings:
    """What to measure."""

    lanes: tuple[Lane, ...] = lanes({PAPER: 8192, SMALL: 2048})
    window_tokens: int = 2 * TURN_TOKENS  # time per token is the median over this many latest ones
    streams: tuple[int, ...] = (1, 32, 1024)  # stepped together
    streams_seconds: float = 8.0  # for the timing of all of them
    engines: EngineSettings = field(default_factory=EngineSettings)


QUICK = StreamSettings(
    lanes=lanes({PAPER: 2 * TURN_TOKENS, SMALL: 2 * TURN_TOKENS}),
    window_tokens=TURN_TOKENS,
    streams=(1, 64),
    streams_seconds=0.5,
    engines=EngineSettings(budget_seconds=0.4, streams=64, has_wasm=False),
)
LONG = StreamSettings(lanes=lanes({PAPER: 32_768, SMALL: 2048}, folded_tokens=1_000_000))


def measure(settings: StreamSettings, on_step: OnStep) -> Measured:
    """Run the whole benchmark."""
    rows: list[Row] = []
    total = sum(lane.tokens for lane in settings.lanes)
    done = 0
    for size in dict.fromkeys(lane.size for lane in settings.lanes):
        chosen = [lane for lane in settings.lanes if lane.size == size]
        done = _run_lanes(chosen, settings.window_tokens, rows, on_step, done, total)
    on_step(total, total, "many streams at once")
    rows += measure_many_streams(settings.streams, budget_seconds=settings.streams_seconds)
    rows += measure_engines(settings.engines, partial(on_step, total, total))
    about: dict[str, Setting] = {
        "sizes": list(dict.fromkeys(size_title(lane.size) for lane in settings.lanes)),
        "turn_tokens": TURN_TOKENS,
        "window_tokens": settings.window_tokens,
        "dtype": "float32",
        "aaren_state_dtype": "float64",
        "kv_cache": "preallocated, doubled when full, float32",
    }
    return about, rows


@cache
def checkpoints(tokens: int) -> frozenset[int]:
    """Return the numbers of tokens at which there is a row: doublings, equal parts, and the last.

    >>> sorted(checkpoints(256))
    [64, 128, 192, 256]
    """
    doublings = {
        TURN_TOKENS << power for power in range(tokens.bit_length()) if TURN_TOKENS << power <= tokens
    }
    parts = {tokens * part // _PARTS // TURN_TOKENS * TURN_TOKENS for part in range(1, _PARTS + 1)}
    return frozenset((doublings | parts) - {0})


def _run_lanes(
    chosen: Sequence[Lane], window_tokens: int, rows: list[Row], on_step: OnStep, done: int, total: int
) -> int:
    """Let models of one size take turns until each has had its tokens; return the tokens done in all."""
    num_threads = torch.get_num_threads()
    with ExitStack() as stack:
        workers: dict[Lane, StreamWorker] = {}
        for lane in chosen:
            on_step(done, total, f"starting {LABELS[lane.contender]}")
            started = stream_worker(lane.size, lane.contender, num_threads=num_threads)
            workers[lane] = stack.enter_context(started)
        waiting = dict(workers)
        while waiting:
            furthest = max(worker.tokens for worker in waiting.values())
            on_step(done, total, f"{size_title(chosen[0].size)}: token {furthest:,}")
            for lane, worker in waiting.items():
                row = worker.take_row(TURN_TOKENS, window_tokens)
                done += TURN_TOKENS
                if worker.tokens in checkpoints(lane.tokens):
                    rows.append(row)
            waiting = {lane: worker for lane, worker in waiting.items() if worker.tokens < lane.tokens}
        for lane, worker in workers.items():
            if lane.contender == FOLDED and lane.tokens > EARLY_TOKENS:
                on_step(done, total, "an early token against a late one")
                compared = worker.compare(rounds=_COMPARE_ROUNDS, tokens=_COMPARE_TOKENS)
                rows.append({"what": "flatness", "size": lane.size, "contender": FOLDED, **compared})
    return done
