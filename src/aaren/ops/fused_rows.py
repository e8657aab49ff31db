"""Run the CPU kernel over tensors: rows are shared among threads, long sequences cut into blocks of time.

The blocks depend on shapes alone, never on the number of threads, and rows do not touch each other, so any
number of threads gives the same bits.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.errors import ShapeError
from aaren.ops import fused_kernel as kernel
from aaren.ops import row_pool
from aaren.ops.state import ScanState, combine, decay

TIME_BLOCK = 4096  # items; longer sequences are cut when there are fewer rows than FEW_ROWS
FEW_ROWS = 8
SMALL_WORK = 1 << 15  # numbers; below this, waking a thread costs more than it saves


class TimeBlocks(NamedTuple):
    """Sequences cut into blocks of time."""

    bounds: NDArray[np.int64]  # (blocks + 1,)  ends of blocks on the flat time axis
    owner: NDArray[np.int64]  # (blocks,)  the sequence that a block belongs to
    is_cut: bool


def forward(
    scores: Tensor,
    values: Tensor,
    mask: Tensor | None,
    log_decay: Tensor | None,
    bounds: NDArray[np.int64],
    state: ScanState,
    outputs: Tensor,
    gates: Tensor,
    forgets: Tensor,
) -> None:
    """Scan sequences laid end to end on one time axis, (T, h[, d]); `state` becomes the final state."""
    blocks = cut_time(bounds, values.shape[1])
    items = (
        _array(scores),
        _array(values),
        _array(mask if mask is not None else torch.empty(0, dtype=torch.bool)),
        _array(log_decay if log_decay is not None else scores[:0]),
    )
    results = (_array(outputs), _array(gates), _array(forgets))
    cuts = _cut_rows(blocks.bounds, values)
    with _compilation_notice():
        if not blocks.is_cut:
            row_pool.run(kernel.forward, cuts, *items, blocks.bounds, *map(_array, state), *results)
            return
        # What each block does by itself, then what each finds at its start, then the real pass.
        streams, width = (len(blocks.owner), values.shape[1]), values.shape[2]
        local = ScanState.empty(streams, width)
        nothing = (results[0][:0], results[1][:0], results[2][:0])
        row_pool.run(kernel.forward, cuts, *items, blocks.bounds, *map(_array, local), *nothing)
        start = ScanState.empty(streams, width)
        for block, sequence in enumerate(blocks.owner):
            here = ScanState(*(part[sequence] for part in state))
            ScanState(*(part[block].copy_(now) for part, now in zip(start, here, strict=True)))
            if log_decay is not None:
                here = decay(here, log_decay[blocks.bounds[block] : blocks.bounds[block + 1]].double().sum(0))
            after = combine(here, ScanState(*(part[block] for part in local)))
            for part, now in zip(state, after, strict=True):
                part[sequence] = now
        row_pool.run(kernel.forward, cuts, *items, blocks.bounds, *map(_array, start), *results)


def backward(
    grad_outputs: Tensor,
    values: Tensor,
    outputs: Tensor,
    gates: Tensor,
    forgets: Tensor,
    bounds: NDArray[np.int64],
    first_outputs: Tensor,
    carry: Tensor,
    carry_sum: Tensor,
    grad_scores: Tensor,
    grad_values: Tensor,
    grad_log_decay: Tensor,
) -> None:
    """Scan backward; `carry` and `carry_sum` become what reaches the initial state, in place."""
    blocks = cut_time(bounds, values.shape[1])
    items = tuple(map(_array, (grad_outputs, values, outputs, gates, forgets)))
    results = (_array(grad_scores), _array(grad_values), _array(grad_log_decay))
    cuts = _cut_rows(blocks.bounds, values)
    with _compilation_notice():
        if not blocks.is_cut:
            ends = (_array(first_outputs), _array(carry), _array(carry_sum))
            row_pool.run(kernel.backward, cuts, *items, blocks.bounds, *ends, *results)
            return
        local = carry.new_zeros(len(blocks.owner), *carry.shape[1:])
        local_sum = carry_sum.new_zeros(len(blocks.owner), *carry_sum.shape[1:])
        previous = torch.empty_like(local)
        nothing = (results[0][:0], results[1], results[2][:0])
        ends = (_array(previous), _array(local), _array(local_sum))
        row_pool.run(kernel.backward, cuts, *items, blocks.bounds, *ends, *nothing)
        for block in reversed(range(len(blocks.owner))):
            sequence, start, stop = blocks.owner[block], blocks.bounds[block], blocks.bounds[block + 1]
            kept = forgets[start:stop].prod(0)
            arriving, arriving_sum = carry[sequence].clone(), carry_sum[sequence].clone()
            # What leaves the block is linear in what arrives; where nothing is kept not even a NaN passes.
            carry[sequence] = local[block] + torch.where(
                kept.unsqueeze(-1) == 0, 0.0, kept.unsqueeze(-1) * arriving
            )
            carry_sum[sequence] = local_sum[block] + torch.where(kept == 0, 0.0, kept * arriving_sum)
            local[block], local_sum[block] = arriving, arriving_sum
            is_first = start == bounds[sequence]
            previous[block] = first_outputs[sequence] if is_first else outputs[start - 1].double()
        row_pool.run(kernel.backward, cuts, *items, blocks.bounds, *ends, *results)


def sequence_bounds(bounds: Tensor | None, batch: int, length: int) -> NDArray[np.int64]:
    """Return where sequences begin and end on the flat time axis; a wrong bound would read foreign memory."""
    if bounds is None:
        return np.arange(batch + 1, dtype=np.int64) * length
    checked = bounds.numpy().astype(np.int64)
    if checked[0] != 0 or checked[-1] != length or (np.diff(checked) < 0).any():
        raise ShapeError(
            f"cu_seqlens must start at 0, never decrease and end at t = {length}; got {checked.tolist()}."
        )
    return checked


def cut_time(bounds: NDArray[np.int64], heads: int) -> TimeBlocks:
    """Cut long sequences at multiples of TIME_BLOCK when there are few rows to share among threads.

    >>> cut_time(np.array([0, 5000]), heads=2)
    TimeBlocks(bounds=array([   0, 4096, 5000]), owner=array([0, 0]), is_cut=True)
    """
    num_sequences = len(bounds) - 1
    owner = np.arange(num_sequences, dtype=np.int64)
    lengths = np.diff(bounds)
    if num_sequences == 0 or num_sequences * heads >= FEW_ROWS or lengths.max() <= TIME_BLOCK:
        return TimeBlocks(bounds, owner, is_cut=False)
    starts = [np.arange(start, max(stop, start + 1), TIME_BLOCK) for start, stop in pairwise(bounds)]
    cut = np.concatenate([*starts, bounds[-1:]]).astype(np.int64)
    return TimeBlocks(cut, np.repeat(owner, [len(piece) for piece in starts]), is_cut=True)


def _cut_rows(bounds: NDArray[np.int64], values: Tensor) -> list[int]:
    """Return the rows at which the threads' shares begin and end, equal in items."""
    heads = values.shape[1]
    num_rows = (len(bounds) - 1) * heads
    num_threads = min(torch.get_num_threads(), num_rows) if values.numel() > SMALL_WORK else 1
    if num_threads <= 1:
        return [0, num_rows]
    items_so_far = np.repeat(np.diff(bounds), heads).cumsum()
    shares = items_so_far[-1] * np.arange(1, num_threads) / num_threads
    return [0, *(int(row) + 1 for row in np.searchsorted(items_so_far, shares)), num_rows]


def _array(tensor: Tensor) -> NDArray[np.generic]:
    return tensor.detach().numpy()


_compiled = threading.Event()


@contextmanager
def _compilation_notice() -> Iterator[None]:
    """Say so when the first call takes long: Numba compiles once per installation, then loads from disk."""
    if _compiled.is_set():
        yield
        return
    timer = threading.Timer(
        1.0, print, ["aaren: compiling the CPU kernel, once per installation ..."], {"file": sys.stderr}
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _compiled.set()
