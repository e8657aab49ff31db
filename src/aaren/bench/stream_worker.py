"""One model that is fed tokens in a process of its own, a turn at a time, as the parent commands.

A fresh process per model makes its memory its own; turns make the machine's noise fall on all models alike.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple, cast

import torch
from torch import Tensor

from aaren.bench.memory import resident_bytes, return_freed_memory
from aaren.bench.process import Child, fresh_process
from aaren.bench.record import Row
from aaren.bench.stream_contenders import SEED, build, count_parameters
from aaren.bench.timing import Timing
from aaren.nn import Encoder, EncoderState

EARLY_TOKENS = 1000  # where a late token's time is compared with an early one's
_WARM_UP_TOKENS = 48
_DIFFERENT_TOKENS = 64


class Turn(NamedTuple):
    """What a worker says after it has taken in some tokens."""

    tokens: int  # all so far
    seconds: list[float]  # of each token of this turn
    state_bytes: int
    process_bytes: int | None  # above the level with weights loaded and a warm-up done


class StreamWorker:
    """The parent's end of a worker; made by `stream_worker`."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.tokens = 0
        self.parameters, self.first_state_bytes = cast(tuple[int, int], child.receive())

    def take(self, num_tokens: int) -> Turn:
        """Feed the model more tokens, one at a time."""
        turn = cast(Turn, self._child.ask("take", num_tokens))
        self.tokens = turn.tokens
        return turn

    def compare(self, *, rounds: int, tokens: int) -> Row:
        """Time `tokens` at a time from the state at EARLY_TOKENS and from the present one, in alternation."""
        return cast(Row, self._child.ask("compare", rounds, tokens))


@contextmanager
def stream_worker(size: str, contender: str, *, num_threads: int) -> Iterator[StreamWorker]:
    """Start a fresh process with this model, ready for its first token, and end it after the block."""
    with fresh_process(_work, size, contender, num_threads, preload=[__name__]) as child:
        yield StreamWorker(child)


def _work(connection: Connection, size: str, contender: str, num_threads: int) -> None:
    """Live in the child: answer until the parent hangs up."""
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
