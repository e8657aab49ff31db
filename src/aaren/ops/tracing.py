"""Whether a step is being recorded, by `aaren.export`, or traced by a compiler of torch.

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
    """Tell whether what runs now may be repeated with other numbers, so that it must not depend on these.

    So it is under torch.compile, torch.export, torch.jit.trace, make_fx and fake tensors, and while a step is
    recorded. (Other dispatch modes are not told apart.)
    """
    if torch.compiler.is_compiling():  # first: compilers know nothing of what follows
        return True
    is_in_mode = torch._C._len_torch_dispatch_stack() > 0
    return is_in_mode or torch._C._is_tracing() or RECORDER.get() is not None
