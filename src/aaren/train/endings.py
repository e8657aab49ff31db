"""How a run can end before its plan does, and how a person or a scheduler asks for it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from aaren.errors import AarenError


class DivergedError(AarenError, ArithmeticError):
    """A loss that is not a finite number any more."""


class PausedError(AarenError):
    """A run that was asked to stop; the same command goes on."""


@contextmanager
def pausing_on_signals() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and SIGTERM into a question that the loop asks between updates; the second ends at once."""
    received: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread may watch signals
        return
    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
