"""The engine of the CPU: how the work of the C kernels (scan.c) is divided.

Rows, (sequence, head), are divided among threads and do not touch each other, so any number of threads gives
the same bits. One row runs on one core.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aaren.ops.cpu import library, threads
from aaren.ops.state import Items, ScanState

STREAMED_BYTES = 8 << 20  # a result from this size on is written past the caches
LINE_BYTES = 64  # of a cache
SMALL_WORK = 1 << 15  # numbers; below this, waking a thread costs more than it saves


def forward(items: Items, initial: ScanState, results: Sequence[Any]) -> None:
    """Scan forward in time; see `kernel_operator`."""
    outputs, *final, gates, forgets, logs = results
    tensors = (items.scores, items.values, items.mask, items.log_decay, *initial, *final)
    _run("scan_forward", outputs, (*tensors, outputs, gates, forgets, logs))


def backward(
    grads: Sequence[Tensor | None],
    items: Items,
    initial: ScanState,
    saved: Sequence[Tensor],
    results: Sequence[Any],  # Any: None where log_decay is
) -> None:
    """Scan backward in time."""
    outputs, gates, forgets, final_u = saved
    before = (final_u, initial.u, initial.w)
    _run("scan_backward", results[1], (*grads, *before, items.values, outputs, gates, forgets, *results))


def _run(name: str, result: Tensor, fields: Sequence[Tensor | None]) -> None:
    """Run a kernel that writes a large result, (b, t, h, d), over all sequences."""
    num_sequences, length, heads, width = result.shape
    num_threads = torch.get_num_threads() if result.numel() > SMALL_WORK else 1
    if num_sequences * heads == 0:
        return
    some_heads = -(-heads // -(-num_threads // num_sequences))
    num_pieces = num_sequences * -(-heads // some_heads)
    # Per thread: a row and two numbers for each head, and a gap: caches fetch lines in pairs, and what two
    # threads change must not lie in one.
    scratch_size = heads * (-(-width // 8) * 8 + 8) + 32
    scratch = torch.empty(num_threads * scratch_size, dtype=torch.float64)
    layout = (0, length, heads, width, some_heads, scratch, scratch_size, int(_is_streamed(result)))
    job = (*layout, *fields)
    threads.run(library.kernel(name, result.dtype), job, num_pieces=num_pieces, num_threads=num_threads)


def _is_streamed(result: Tensor) -> bool:
    """Tell whether a result is too large to be found in a cache when it is read, and consists of whole lines.

    The last-level cache is shared by all cores: writing past it leaves it to the values, which are read.
    """
    if result.nbytes < STREAMED_BYTES:
        return False
    row_bytes = result.shape[-1] * result.element_size()
    return result.data_ptr() % LINE_BYTES == 0 and row_bytes % LINE_BYTES == 0
