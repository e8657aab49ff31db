"""Whether a step is being recorded, by `aaren.stream.native`, or traced by a compiler of torch.

What is recorded must not depend on the numbers that happen to be there: checks of values are left out.
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
        self, state: "ScanState", score: Tensor, value: Tensor, mask: Tensor | None, log_decay: Tensor | None
    ) -> "tuple[Tensor, ScanState]":
        """Compute and record `aaren.ops.step` as a whole."""

    def require(self, fine: Tensor, code: int) -> None:
        """Record that items are refused where this is False."""


RECORDER: ContextVar[ScanRecorder | None] = ContextVar("aaren step recorder", default=None)
BAD_INPUT, BAD_INDEX, BAD_TIME = 1, 2, 5  # codes of refused items, as in runtime.h


def require(fine: Tensor, *, code: int = BAD_INPUT) -> None:
    """Where a step is recorded, refuse the items for which this is False; sessions check them beforehand."""
    recorder = None if torch.compiler.is_compiling() else RECORDER.get()
    if recorder is not None:
        recorder.require(fine, code)


def is_traced() -> bool:
    """Tell whether what runs now will be repeated with other numbers, so that it may not depend on these."""
    return torch.compiler.is_compiling() or RECORDER.get() is not None  # compilers know no context variables
