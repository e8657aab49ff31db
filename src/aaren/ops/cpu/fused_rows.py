"""Run the CPU kernel over tensors: rows are shared among threads, long sequences cut into blocks of time.

The blocks depend on shapes alone, never on the number of threads, and rows do not touch each other, so any
number of threads gives the same bits.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.errors import ShapeError
from aaren.ops.cpu import machine_code, team
from aaren.ops.cpu.pages import LINE_BYTES
from aaren.ops.state import ScanState, decay, join

TIME_BLOCK = 4096  # items; longer sequences are cut when there are fewer rows than FEW_ROWS
FEW_ROWS = 8
GAP = 32  # numbers, four cache lines, of which the first two are used
STREAMED_BYTES = 8 << 20  # a result from this size on is written past the caches
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
    """Scan sequences laid end to end on one time axis, (T, h[, d]); `state` becomes the final state.

    All tensors are contiguous; gates, forgets and the state are float64, the others of one dtype.
    """
    blocks = cut_time(bounds, values.shape[1])
    ends = torch.from_numpy(blocks.bounds)
    optional = (scores if mask is None else mask, scores if log_decay is None else log_decay)
    spaced = _spaced(blocks, values)

    def scan(states: ScanState, *, is_written: bool) -> None:
        num_items = len(values)
        lengths = (
            0 if mask is None else num_items,
            0 if log_decay is None else num_items,
            num_items if is_written else 0,
        )
        arrays = (scores, values, *optional, ends, *states, outputs, gates, forgets, spaced)
        fields = (*lengths, *arrays, spaced.shape[2], int(is_written and _is_streamed(outputs)))
        _run("forward_job", blocks.bounds, values, fields)

    if not blocks.is_cut:
        scan(state, is_written=True)
        return
    # First what each block does by itself, then what each one finds at its start, then the real pass.
    local = ScanState.empty((len(blocks.owner), values.shape[1]), values.shape[2])
    scan(local, is_written=False)
    scan(_enter_blocks(blocks, log_decay, local, state), is_written=True)


def _spaced(blocks: TimeBlocks, values: Tensor) -> Tensor:
    """Return room for what changes with every item, row by row, with gaps: caches fetch lines in pairs.

    Side by side, numbers that two threads change would travel to and fro between their caches. With that, two
    threads were slower than one on the heads of one sequence.
    """
    num_heads, width = values.shape[1:]
    return torch.empty(len(blocks.owner), num_heads, -(-width // 8) * 8 + GAP, dtype=torch.float64)


def _is_streamed(result: Tensor) -> bool:
    """Tell whether a result is too large to be found in a cache when it is read, and consists of whole lines.

    The caches of a core hold a few megabytes; the last one is shared with everybody, and what is written past
    it leaves it to the values, which are read.
    """
    row_bytes = result.shape[-1] * result.element_size()
    is_aligned = result.data_ptr() % LINE_BYTES == 0 and row_bytes % LINE_BYTES == 0
    return is_aligned and result.numel() * result.element_size() >= STREAMED_BYTES


def _enter_blocks(
    blocks: TimeBlocks, log_decay: Tensor | None, local: ScanState, state: ScanState
) -> ScanState:
    """Carry states through the blocks: return what each block finds; `state` becomes the final one."""
    starts = ScanState(*(torch.empty_like(part) for part in local))
    for block, sequence in enumerate(blocks.owner):
        here = ScanState(*(part[sequence].clone() for part in state))
        _assign(starts, block, here)
        if log_decay is not None:
            items = slice(blocks.bounds[block], blocks.bounds[block + 1])
            here = decay(here, log_decay[items].double().sum(0))
        _assign(state, sequence, join(here, ScanState(*(part[block] for part in local))))
    return starts


def _assign(states: ScanState, row: int, one: ScanState) -> None:
    for part, value in zip(states, one, strict=True):
        part[row] = value


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
    ends = torch.from_numpy(blocks.bounds)
    spaced = _spaced(blocks, values)

    def scan(before: Tensor, carries: Tensor, carry_sums: Tensor, *, is_written: bool) -> None:
        fields = (
            *(len(values) if is_written else 0, len(grad_log_decay) if is_written else 0),
            *(grad_outputs, values, outputs, gates, forgets, ends, before, carries, carry_sums),
            *(grad_scores, grad_values, grad_log_decay, spaced, spaced.shape[2]),
            int(is_written and _is_streamed(grad_values)),
        )
        _run("backward_job", blocks.bounds, values, fields)

    if not blocks.is_cut:
        scan(first_outputs, carry, carry_sum, is_written=True)
        return
    # As forward: what leaves each block by itself, what arrives at each one, then the real pass.
    num_blocks = len(blocks.owner)
    local, local_sum = (
        carry.new_zeros(num_blocks, *carry.shape[1:]),
        carry.new_zeros(num_blocks, values.shape[1]),
    )
    before = carry.new_empty(local.shape)  # what stands before each block's first item
    starts = zip(blocks.owner, blocks.bounds[:-1], strict=True)
    for block, (sequence, start) in enumerate(starts):
        before[block] = first_outputs[sequence] if start == bounds[sequence] else outputs[start - 1]
    scan(before, local, local_sum, is_written=False)
    _arrive_at_blocks(blocks, forgets, local, carry)
    _arrive_at_blocks(blocks, forgets, local_sum, carry_sum)
    scan(before, local, local_sum, is_written=True)


def _arrive_at_blocks(blocks: TimeBlocks, forgets: Tensor, local: Tensor, carry: Tensor) -> None:
    """Turn what leaves each block by itself into what arrives at its end; `carry` goes to the front."""
    for block in reversed(range(len(blocks.owner))):
        sequence = blocks.owner[block]
        kept = forgets[blocks.bounds[block] : blocks.bounds[block + 1]].prod(0)
        kept = kept.view(kept.shape + (1,) * (carry.ndim - 2))
        arriving = carry[sequence].clone()
        # What leaves a block is linear in what arrives; where nothing is kept, not even a NaN passes.
        carry[sequence] = local[block] + torch.where(kept == 0, 0.0, kept * arriving)
        local[block] = arriving


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


def _run(name: str, bounds: NDArray[np.int64], values: Tensor, fields: tuple[team.Field, ...]) -> None:
    """Run a kernel over all rows, shared among as many threads as torch uses."""
    num_threads = torch.get_num_threads() if values.numel() > SMALL_WORK else 1
    cuts = cut_rows(bounds, values.shape[1], num_threads)
    function = machine_code.load("aaren.ops.cpu.fused_kernel", name, values.dtype)
    team.run(function, cuts, (*values.shape, len(bounds) - 1, *fields), num_threads=num_threads)


def cut_rows(bounds: NDArray[np.int64], heads: int, num_threads: int) -> list[int]:
    """Return the rows at which the threads' shares, of equal size, begin and end.

    Between sequences if there are enough of them, else between heads. One share per thread, as torch's own
    operations divide their work: in smaller ones, for a free thread to take over from a busy one, the scan
    took a tenth longer, because what a thread reads is then in the cache of another.

    >>> cut_rows(np.array([0, 10, 20, 30, 40]), heads=3, num_threads=2)
    [0, 6, 12]
    >>> cut_rows(np.array([0, 10]), heads=3, num_threads=2)
    [0, 2, 3]
    """
    num_sequences = len(bounds) - 1
    num_rows = num_sequences * heads
    if num_threads < 2 or num_rows < 2:
        return [0, num_rows]
    rows_per_unit = heads if num_sequences >= num_threads else 1
    num_shares = min(num_rows, num_threads)
    items_so_far = np.repeat(np.diff(bounds), heads // rows_per_unit).cumsum()
    shares = items_so_far[-1] * np.arange(1, num_shares) / num_shares
    inner = {(int(unit) + 1) * rows_per_unit for unit in np.searchsorted(items_so_far, shares)}
    return [0, *sorted(inner - {num_rows}), num_rows]
