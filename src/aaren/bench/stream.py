"""How many tokens per second one step carries when many streams are stepped together.

An eager step costs dispatch, not arithmetic, so a batch of streams is nearly free until memory is the limit.

How exact a running mean stays over tens of millions of tokens: the case in which rounding piles up most.

An Aaren layer whose scores are all equal returns the mean of all values so far. Values are multiples of
2^-52, so their sum is known exactly as an integer, and the layer's output can be compared with the true mean.
A sum in float32 would stop growing at 16.8 million tokens; the state is float64.

`aaren bench stream`: tokens one at a time, and what they cost as their number grows (paper, Figure 5).

Every model lives in a fresh process of its own; they take turns of a few dozen tokens in one run. Against the
number of tokens: bytes of the state, memory of the process above its level with the weights loaded, time per
token, cumulative time. On request the precision of endless streams; always, how many streams a step can
carry. The result is a record; `stream_view` draws it and `stream_targets` judges it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

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
from aaren.bench.stream_worker import EARLY_TOKENS, Comparison, StreamWorker, Turn, stream_worker
from aaren.bench.timing import Timing, time_interleaved
from aaren.errors import ConfigError
from aaren.nn import AarenAttention

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
            "step_median_seconds": timing.median / steps_per_turn(streams),
            "step_lower_quartile_seconds": timing.lower_quartile / steps_per_turn(streams),
            "step_upper_quartile_seconds": timing.upper_quartile / steps_per_turn(streams),
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


_BITS = 52  # values are integers below 2^52, divided by 2^52: exact in float64, as are the same plus 1
_LOW_BITS = 26  # sums of halves of such integers fit into int64


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionSettings:
    """What to measure."""

    tokens: int = 30_000_000  # through forward, in chunks, the state carried from one to the next
    chunk_tokens: int = 131_072
    raised_tokens: int = 1000  # then through step, their values raised by 1
    width: int = 8
    num_heads: int = 2

    def __post_init__(self) -> None:
        if min(self.tokens, self.chunk_tokens, self.raised_tokens) < 1:
            raise ConfigError(
                f"tokens, chunk_tokens and raised_tokens must be at least 1; got {self.tokens}, "
                f"{self.chunk_tokens} and {self.raised_tokens}."
            )


@torch.inference_mode()
def measure_precision(settings: PrecisionSettings) -> Row:
    """Feed the tokens; return the largest distance from the exact running mean at chunk ends and steps."""
    start = time.perf_counter()
    layer = averaging_layer(settings.width, settings.num_heads)
    generator = torch.Generator().manual_seed(SEED)
    state = layer.init_state(1)
    exact = _ExactMean(settings.width)
    forward_error = step_error = 0.0
    for first in range(0, settings.tokens, settings.chunk_tokens):
        count = min(settings.chunk_tokens, settings.tokens - first)
        integers = _draw(count, settings.width, generator)
        exact.add(integers)
        outputs, state = layer(_values(integers).unsqueeze(0), state)
        forward_error = max(forward_error, exact.distance(outputs[0, -1]))
    for integers in _draw(settings.raised_tokens, settings.width, generator).unsqueeze(1):
        raised = integers + (1 << _BITS)
        exact.add(raised)
        output, state = layer.step(_values(raised), state)
        step_error = max(step_error, exact.distance(output[0]))
    return {
        "what": "precision",
        "tokens": settings.tokens,
        "raised_tokens": settings.raised_tokens,
        "width": settings.width,
        "forward_error": forward_error,
        "step_error": step_error,
        "seconds": time.perf_counter() - start,
    }


def averaging_layer(width: int, num_heads: int) -> AarenAttention:
    """Build a layer whose output is the mean of its inputs so far: equal scores, identities elsewhere.

    >>> layer = averaging_layer(4, 2)
    >>> outputs, _ = layer(torch.tensor([[[1.0] * 4, [2.0] * 4]], dtype=torch.float64))
    >>> outputs[0, :, 0].tolist()
    [1.0, 1.5]
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layer = AarenAttention(width, num_heads, dtype=torch.float64)
    with torch.no_grad():
        layer.k_proj.weight.zero_()  # what is left of a score is q'·b_k, equal for all and not 0
        for projection in (layer.v_proj, layer.out_proj):
            projection.weight.copy_(torch.eye(width))
            projection.bias.zero_()
    return layer.eval()


class _ExactMean:
    """A running mean in whole numbers."""

    def __init__(self, width: int) -> None:
        self.sums = [0] * width
        self.count = 0

    def add(self, integers: Tensor) -> None:
        """Take in (t, c) integers."""
        high = (integers >> _LOW_BITS).sum(0).tolist()
        low = (integers & ((1 << _LOW_BITS) - 1)).sum(0).tolist()
        for column, (upper, lower) in enumerate(zip(high, low, strict=True)):
            self.sums[column] += (upper << _LOW_BITS) + lower
        self.count += len(integers)

    def distance(self, output: Tensor) -> float:
        """Return the largest difference between an output (c,) and the mean, without rounding either."""
        means = (Fraction(total, self.count << _BITS) for total in self.sums)
        return max(
            float(abs(Fraction(number) - mean)) for number, mean in zip(output.tolist(), means, strict=True)
        )


def _draw(count: int, width: int, generator: torch.Generator) -> Tensor:
    return torch.randint(1 << _BITS, (count, width), generator=generator)


def _values(integers: Tensor) -> Tensor:
    return integers.to(torch.float64) * 2.0**-_BITS


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
    precision: PrecisionSettings | None = None

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


def measure(
    settings: StreamSettings, *, command: str = "aaren bench stream", on_step: OnStep = silent
) -> BenchRecord:
    """Run the whole benchmark and return its record."""
    rows: list[Row] = []
    total = sum(lane.tokens for lane in settings.lanes)
    done = 0
    for size in dict.fromkeys(lane.size for lane in settings.lanes):
        chosen = [lane for lane in settings.lanes if lane.size == size]
        done = _run_lanes(chosen, settings.window_tokens, rows, on_step, done, total)
    on_step(total, total, "many streams at once")
    rows += measure_many_streams(settings.many_streams)
    if settings.precision is not None:
        on_step(total, total, f"precision over {settings.precision.tokens:,} tokens")
        rows.append(measure_precision(settings.precision))
    return BenchRecord(
        kind="stream",
        command=command,
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
            "parameters": self.worker.start.parameters,
            "state_bytes": turn.state_bytes,
            "process_bytes": turn.process_bytes,
            "token_median_seconds": token.median,
            "token_lower_quartile_seconds": token.lower_quartile,
            "token_upper_quartile_seconds": token.upper_quartile,
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
                rows.append(_flatness_row(runner.lane, compared))
    return done


def _flatness_row(lane: Lane, compared: Comparison) -> Row:
    return {
        "what": "flatness",
        "size": lane.size,
        "contender": lane.contender,
        "early_tokens": compared.early_tokens,
        "late_tokens": compared.late_tokens,
        "early_median_seconds": compared.early.median,
        "early_lower_quartile_seconds": compared.early.lower_quartile,
        "early_upper_quartile_seconds": compared.early.upper_quartile,
        "late_median_seconds": compared.late.median,
        "late_lower_quartile_seconds": compared.late.lower_quartile,
        "late_upper_quartile_seconds": compared.late.upper_quartile,
        "early_state_bytes": compared.early_state_bytes,
        "late_state_bytes": compared.late_state_bytes,
        "repeats": compared.early.repeats,
    }


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
