"""Whether a step is being recorded, by `aaren.stream.native`, or traced by a compiler of torch.

What is recorded must not depend on the numbers that happen to be there: checks of values are left out, and
the one step of a running softmax is recorded as a whole.
"""

from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from aaren.ops.state import ScanState


class ScanRecorder(Protocol):
    """What records a step."""

    def scan(
        self,
        state: "ScanState",
        score: Tensor,
        value: Tensor,
        mask: Tensor | None,
        log_decay: Tensor | None,
    ) -> "tuple[Tensor, ScanState]":
        """Compute and record `aaren.ops.step`."""

    def require(self, fine: Tensor, code: int) -> None:
        """Record that items are refused where this is False."""


RECORDER: ContextVar[ScanRecorder | None] = ContextVar("aaren step recorder", default=None)


BAD_INPUT, BAD_TIME = 1, 5  # codes of refused items, as in runtime.h


def require(fine: Tensor, *, code: int = BAD_INPUT) -> None:
    """Where a step is recorded: refuse the items of streams for which this is False, their states untouched.

    Elsewhere nothing: sessions check items before a step, with words that name what came.
    """
    recorder = None if torch.compiler.is_compiling() else RECORDER.get()
    if recorder is not None:
        recorder.require(fine, code)


def is_traced() -> bool:
    """Tell whether what runs now is to be repeated with other numbers, so that nobody may look at these."""
    return torch.compiler.is_compiling() or RECORDER.get() is not None  # compilers know no context variables
