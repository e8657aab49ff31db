"""`aaren bench stream`: tokens one at a time, and what they cost as their number grows (paper, Figure 5).

Every model lives in a fresh process of its own; they take turns of a few dozen tokens in one run. Against the
number of tokens: bytes of the state, memory of the process above its level with the weights loaded, time per
token, cumulative time. Then how many tokens per second a step carries when many streams are stepped together:
an eager step costs dispatch, not arithmetic. `stream_view` draws and judges the record.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from aaren.bench.record import BenchRecord, OnStep, Row, silent
from aaren.bench.stream_contenders import (
    AAREN,
    FOLDED,
    LABELS,
    PAPER,
    SEED,
    SMALL,
    TRANSFORMER,
    build,
    size_title,
)
from aaren.bench.stream_worker import EARLY_TOKENS, StreamWorker, Turn, stream_worker
from aaren.bench.timing import Timing, time_interleaved
from aaren.errors import ConfigError

COMMAND = "aaren bench stream"
_CONTENDERS = (FOLDED, AAREN)


@dataclass(frozen=True, kw_only=True, slots=True)
class ManyStreamsSettings:
    """What to measure."""

    streams: tuple[int, ...] = (1, 32, 1024)
    size: str = SMALL
    budget_seconds: float = 8.0

    def __post_init__(self) -> None:
        if not self.streams or min(self.streams) < 1:
            raise ConfigError(f"streams must be at least 1; got {list(self.streams)}.")


def measure_many_streams(settings: ManyStreamsSettings) -> list[Row]:
    """Time a step of each model with each number of streams, turn by turn."""
    cells = [(contender, streams) for contender in _CONTENDERS for streams in settings.streams]
    with torch.inference_mode():
        calls = {f"{name} {streams}": _steps_of(settings.size, name, streams) for name, streams in cells}
        timings = time_interleaved(calls, budget_seconds=settings.budget_seconds, max_repeats=2000)
    return [
        {
            "what": "many_streams",
            "size": settings.size,
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
    """Return how many steps follow each other: a single stream needs many, lest it begin with cold caches.

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
    many_streams: ManyStreamsSettings = field(default_factory=ManyStreamsSettings)

    def __post_init__(self) -> None:
        for lane in self.lanes:
            if lane.tokens < TURN_TOKENS or lane.tokens % TURN_TOKENS:
                raise ConfigError(
                    f"tokens must be a multiple of {TURN_TOKENS}, the length of a turn; got {lane.tokens:,} "
                    f"for {lane.contender}."
                )
        if self.window_tokens < 1:
            raise ConfigError(f"window_tokens must be at least 1; got {self.window_tokens}.")


QUICK = StreamSettings(
    lanes=lanes({PAPER: 2 * TURN_TOKENS, SMALL: 2 * TURN_TOKENS}),
    window_tokens=TURN_TOKENS,
    many_streams=ManyStreamsSettings(streams=(1, 64), budget_seconds=0.5),
)
LONG = StreamSettings(lanes=lanes({PAPER: 32_768, SMALL: 2048}, folded_tokens=1_000_000))


def measure(settings: StreamSettings, on_step: OnStep = silent) -> BenchRecord:
    """Run the whole benchmark and return its record."""
    rows: list[Row] = []
    total = sum(lane.tokens for lane in settings.lanes)
    done = 0
    for size in dict.fromkeys(lane.size for lane in settings.lanes):
        chosen = [lane for lane in settings.lanes if lane.size == size]
        done = _run_lanes(chosen, settings.window_tokens, rows, on_step, done, total)
    on_step(total, total, "many streams at once")
    rows += measure_many_streams(settings.many_streams)
    return BenchRecord(
        kind="stream",
        command=COMMAND,
        settings={
            "sizes": list(dict.fromkeys(size_title(lane.size) for lane in settings.lanes)),
            "turn_tokens": TURN_TOKENS,
            "window_tokens": settings.window_tokens,
            "dtype": "float32",
            "aaren_state_dtype": "float64",
            "kv_cache": "preallocated, doubled when full, float32",
        },
        measurements=rows,
    )


def checkpoints(tokens: int) -> set[int]:
    """Return the numbers of tokens at which there is a row: doublings, equal parts, and the last.

    >>> sorted(checkpoints(256))
    [64, 128, 192, 256]
    """
    doublings = {
        TURN_TOKENS << power for power in range(tokens.bit_length()) if TURN_TOKENS << power <= tokens
    }
    parts = {tokens * part // _PARTS // TURN_TOKENS * TURN_TOKENS for part in range(1, _PARTS + 1)}
    return (doublings | parts) - {0}


class _Runner:
    """One lane under way: its worker, what it has spent, and the rows it leaves."""

    def __init__(self, lane: Lane, worker: StreamWorker, window_tokens: int) -> None:
        self.lane, self.worker, self.window_tokens = lane, worker, window_tokens
        self.cumulative_seconds = 0.0
        self.latest: list[float] = []
        self.rows_at = checkpoints(lane.tokens)

    @property
    def is_done(self) -> bool:
        return self.worker.tokens >= self.lane.tokens

    def take_turn(self) -> Row | None:
        turn = self.worker.take(TURN_TOKENS)
        self.cumulative_seconds += sum(turn.seconds)
        self.latest = [*self.latest, *turn.seconds][-self.window_tokens :]
        return self._row(turn) if turn.tokens in self.rows_at else None

    def _row(self, turn: Turn) -> Row:
        token = Timing.of(self.latest)
        return {
            "what": "stream",
            "size": self.lane.size,
            "contender": self.lane.contender,
            "tokens": turn.tokens,
            "parameters": self.worker.parameters,
            "state_bytes": turn.state_bytes,
            "process_bytes": turn.process_bytes,
            **token.fields("token_"),
            "window_tokens": token.repeats,
            "cumulative_seconds": self.cumulative_seconds,
        }


def _run_lanes(
    chosen: Sequence[Lane], window_tokens: int, rows: list[Row], on_step: OnStep, done: int, total: int
) -> int:
    """Let models of one size take turns until each has had its tokens; return the tokens done in all."""
    num_threads = torch.get_num_threads()
    with ExitStack() as stack:
        runners = []
        for lane in chosen:
            on_step(done, total, f"starting {LABELS[lane.contender]}")
            worker = stack.enter_context(stream_worker(lane.size, lane.contender, num_threads=num_threads))
            runners.append(_Runner(lane, worker, window_tokens))
        waiting = list(runners)
        while waiting:
            furthest = max(runner.worker.tokens for runner in waiting)
            on_step(done, total, f"{size_title(chosen[0].size)}: token {furthest:,}")
            for runner in waiting:
                row = runner.take_turn()
                done += TURN_TOKENS
                if row is not None:
                    rows.append(row)
            waiting = [runner for runner in waiting if not runner.is_done]
        for runner in runners:
            if runner.lane.contender == FOLDED and runner.lane.tokens > EARLY_TOKENS:
                on_step(done, total, "an early token against a late one")
                compared = runner.worker.compare(rounds=_COMPARE_ROUNDS, tokens=_COMPARE_TOKENS)
                rows.append({"what": "flatness", "size": runner.lane.size, "contender": FOLDED, **compared})
    return done


def longest(record: BenchRecord, size: str, contender: str = TRANSFORMER) -> int:
    """Return how many tokens a model of a record took in; 0 if it did not take part."""
    return max(
        (
            int(row["tokens"] or 0)
            for row in record.measurements
            if row["what"] == "stream" and row["size"] == size and row["contender"] == contender
        ),
        default=0,
    )
