"""One model that is fed tokens in a process of its own, a turn at a time, as the parent commands.

A fresh process per model makes its memory its own; turns make the machine's noise fall on all models alike.
While it waits for its turn, a worker sleeps. Between the workers of one run only these messages pass:
(number of tokens to take in) -> Turn, or ("compare", rounds, tokens) -> Comparison.
"""

import multiprocessing
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from aaren.bench.memory import MemoryExhaustedError, resident_bytes, return_freed_memory
from aaren.bench.stream_contenders import SEED, build, count_parameters
from aaren.bench.timing import Timing
from aaren.nn import Encoder, EncoderState

EARLY_TOKENS = 1000  # where a late token's time is compared with an early one's
_WARM_UP_TOKENS = 48
_DIFFERENT_TOKENS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What a worker says when it is ready."""

    parameters: int
    state_bytes: int  # before the first token


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """What a worker says after it has taken in some tokens."""

    tokens: int  # all so far
    seconds: list[float]  # of each token of this turn
    state_bytes: int
    process_bytes: int | None  # above the level with weights loaded and a warm-up done


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One token's time early and late in a stream, turn by turn."""

    early_tokens: int
    late_tokens: int
    early: Timing
    late: Timing
    early_state_bytes: int
    late_state_bytes: int


class StreamWorker:
    """The parent's end of a worker; made by `stream_worker`."""

    def __init__(self, receiving: Connection, sending: Connection, process: multiprocessing.Process) -> None:
        self._receiving, self._sending, self._process = receiving, sending, process
        self.tokens = 0
        start = self._receive()
        assert isinstance(start, Start)
        self.start = start

    def take(self, num_tokens: int) -> Turn:
        """Feed the model more tokens, one at a time."""
        self._sending.send(num_tokens)
        turn = self._receive()
        assert isinstance(turn, Turn)
        self.tokens = turn.tokens
        return turn

    def compare(self, *, rounds: int, tokens: int) -> Comparison:
        """Time `tokens` at a time from the state at EARLY_TOKENS and from the present one, in alternation."""
        self._sending.send(("compare", rounds, tokens))
        comparison = self._receive()
        assert isinstance(comparison, Comparison)
        return comparison

    def _receive(self) -> object:
        try:
            answer = self._receiving.recv()
        except EOFError as error:
            self._process.join()
            raise MemoryExhaustedError(
                f"the process that holds the model ended with exit code {self._process.exitcode}; the system "
                "was probably out of memory. Choose fewer tokens."
            ) from error
        if isinstance(answer, str):
            raise RuntimeError(f"the model failed in its process:\n{answer}")
        return answer


@contextmanager
def stream_worker(size: str, contender: str, *, num_threads: int) -> Iterator[StreamWorker]:
    """Start a fresh process with this model, ready for its first token, and end it after the block."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "aaren.bench.stream_worker"])
    receiving, child_sending = context.Pipe(duplex=False)
    child_receiving, sending = context.Pipe(duplex=False)
    arguments = (child_receiving, child_sending, size, contender, num_threads)
    process = context.Process(target=_work, args=arguments, daemon=True)
    process.start()
    child_receiving.close()
    child_sending.close()
    try:
        yield StreamWorker(receiving, sending, process)  # type: ignore[arg-type]  # a forkserver's process
    finally:
        sending.close()  # the worker's next recv ends it
        receiving.close()
        process.join()


def _work(receiving: Connection, sending: Connection, size: str, contender: str, num_threads: int) -> None:
    """Live in the child: answer until the parent hangs up."""
    try:
        torch.set_num_threads(num_threads)
        with torch.inference_mode():
            stream = _Stream(build(size, contender).eval())
            sending.send(
                Start(parameters=count_parameters(stream.encoder), state_bytes=stream.first_state_bytes)
            )
            while True:
                command = receiving.recv()
                if isinstance(command, int):
                    sending.send(stream.take(command))
                else:
                    _, rounds, tokens = command
                    sending.send(stream.compare(rounds, tokens))
    except (EOFError, BrokenPipeError):
        return
    except BaseException:  # whatever it was, the parent must hear of it
        sending.send(traceback.format_exc())


class _Stream:
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

    def compare(self, rounds: int, tokens: int) -> Comparison:
        """Alternate between the early state and the present one; neither moves on."""
        early_state = self.state if self.early is None else self.early
        early: list[float] = []
        late: list[float] = []
        for _ in range(rounds):
            early += self._time_tokens(early_state, tokens)[0]
            late += self._time_tokens(self.state, tokens)[0]
        return Comparison(
            early_tokens=self.count if self.early is None else EARLY_TOKENS,
            late_tokens=self.count,
            early=Timing.of(early),
            late=Timing.of(late),
            early_state_bytes=early_state.nbytes,
            late_state_bytes=self.state.nbytes,
        )

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
