"""The engine of the CPU: how the work of the C kernels (scan.c) is divided.

Rows, (sequence, head), are divided among threads; long sequences of few rows are cut into blocks of time. The
blocks depend on shapes alone, never on the number of threads, and rows do not touch each other, so any number
of threads gives the same bits.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aaren.ops.checks import check_bounds
from aaren.ops.cpu import library, threads
from aaren.ops.packing import pad_index
from aaren.ops.scans import hillis_steele, prefix_states
from aaren.ops.state import Items, ScanState

TIME_BLOCK = 4096  # items; longer sequences are cut when there are fewer rows than FEW_ROWS
FEW_ROWS = 8
STREAMED_BYTES = 8 << 20  # a result from this size on is written past the caches
LINE_BYTES = 64  # of a cache
SMALL_WORK = 1 << 15  # numbers; below this, waking a thread costs more than it saves
NO_STATE = (None, None, None)


def forward(items: Items, initial: ScanState | None, results: Sequence[Tensor]) -> None:
    """Scan forward in time; see `kernel_operator`."""
    outputs, *final, gates, forgets = results
    *given, bounds = items
    found = (outputs, gates, forgets)
    blocks = cut_time(bounds, outputs.shape)
    if blocks is None:
        return _run("scan_forward", outputs, bounds, (*given, *(initial or NO_STATE), *final, *found))
    heads, width = outputs.shape[2:]
    own = ScanState.empty((len(blocks.ends) - 1, heads), width)
    _run("scan_forward", outputs, blocks.ends, (*given, *NO_STATE, *own, *found), is_for_state=True)
    decays = None if items.log_decay is None else _reduce(items.log_decay.double(), "sum", blocks.ends)
    # All sequences at once: padding stands behind a sequence's blocks, where no prefix that is read sees it.
    index, is_real = pad_index(blocks.of_sequences)
    initial = initial or ScanState.empty((len(index), heads), width)
    leaves = ScanState(*(part[index] for part in own))
    prefixes = prefix_states(hillis_steele, initial, leaves, None if decays is None else decays[index])
    before = ScanState(*(part[:, :-1][is_real] for part in prefixes))
    _run("scan_forward", outputs, blocks.ends, (*given, *before, *before, *found))
    for target, part in zip(final, before, strict=True):
        target.copy_(part[blocks.of_sequences[1:] - 1])
    return None


def backward(
    grads: Sequence[Tensor | None],
    items: Items,
    initial: ScanState | None,
    saved: Sequence[Tensor],
    results: Sequence[Any],  # Any: None where nothing was given
) -> None:
    """Scan backward in time."""
    outputs, gates, forgets, final_u = saved
    grad_values, grad_state = results[1], results[3:]
    given = (items.values, outputs, gates, forgets, *results[:3])
    blocks = cut_time(items.bounds, outputs.shape)
    if blocks is None:
        fields = (*grads, final_u, *(initial or NO_STATE)[1:], *given, *grad_state)
        return _run("scan_backward", grad_values, items.bounds, fields)
    # The state before a block is one item, the output there; so its gradients are those of that item.
    heads, width = outputs.shape[2:]
    w = outputs.view(-1, heads, width)[(blocks.ends[:-1] - 1).clamp(min=0)].double()
    u = torch.ones(w.shape[:2], dtype=w.dtype)
    grad_own = (torch.empty_like(u), torch.empty_like(u), torch.empty_like(w))
    at_end = [torch.zeros_like(u), torch.zeros_like(w), torch.ones_like(u)]  # gradients of u and w, and u
    fields = (grads[0], *at_end, u, w, *given, *grad_own)
    _run("scan_backward", grad_values, blocks.ends, fields, is_for_state=True)
    kept = _reduce(forgets, "prod", blocks.ends)
    empty = ScanState.empty(tuple(final_u.shape), width)
    grad_u, grad_w = (zeros if x is None else x for x, zeros in zip(grads[1:], empty[1:], strict=True))
    firsts, ends = blocks.of_sequences[:-1], blocks.of_sequences[1:]
    _, u[firsts], w[firsts] = initial or empty
    of_final = (torch.ones_like(final_u), grad_u * final_u, grad_w * final_u.unsqueeze(-1))
    index, is_real = pad_index(blocks.of_sequences)
    index = ((firsts + ends - 1).unsqueeze(1) - index).clamp(min=0)  # last block first
    both = zip(of_final, (kept, *grad_own[1:]), strict=True)
    found = hillis_steele(_send_back, tuple(torch.cat([x.unsqueeze(1), y[index]], dim=1) for x, y in both))
    for part, arriving in zip(at_end, found[1:], strict=False):
        part[index[is_real]] = arriving[:, :-1][is_real]
    _run("scan_backward", grad_values, blocks.ends, fields)
    for grad, part in zip(grad_state if initial else (), grad_own, strict=False):
        grad.copy_(part[firsts])
    return None


def _send_back(later: tuple[Tensor, ...], earlier: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Join runs of time, met backwards: what each keeps of what arrives, and the gradients that leave it."""
    factors = (earlier[0], earlier[0], earlier[0].unsqueeze(-1))
    # Where nothing is kept, not even a NaN passes.
    passed = [torch.where(kept == 0, 0.0, kept * part) for kept, part in zip(factors, later, strict=True)]
    return passed[0], earlier[1] + passed[1], earlier[2] + passed[2]


def _reduce(numbers: Tensor, how: str, ends: Tensor) -> Tensor:
    """Return the sum or product of each block, (blocks, h)."""
    return torch.segment_reduce(numbers.flatten(0, 1), how, lengths=ends.diff())


def _run(
    name: str,
    result: Tensor,
    ends: Tensor | None,
    fields: Sequence[Tensor | None],
    *,
    is_for_state: bool = False,
) -> None:
    """Run a kernel that writes a large result, (b, t, h, d), over all blocks."""
    batch, length, heads, width = result.shape
    num_blocks = batch if ends is None else ends.shape[0] - 1
    num_threads = torch.get_num_threads() if result.numel() > SMALL_WORK else 1
    if num_blocks * heads == 0:
        return
    some_heads = -(-heads // -(-num_threads // num_blocks))
    num_pieces = num_blocks * -(-heads // some_heads)
    # Per thread: a row and two numbers for each head, and a gap: caches fetch lines in pairs, and what two
    # threads change must not lie in one.
    scratch_size = heads * (-(-width // 8) * 8 + 8) + 32
    scratch = torch.empty(num_threads * scratch_size, dtype=torch.float64)
    layout = (0, length, heads, width, some_heads, ends, scratch, scratch_size)
    job = (*layout, int(is_for_state), int(_is_streamed(result)), *fields)
    threads.run(library.kernel(name, result.dtype), job, num_pieces=num_pieces, num_threads=num_threads)


def _is_streamed(result: Tensor) -> bool:
    """Tell whether a result is too large to be found in a cache when it is read, and consists of whole lines.

    The last-level cache is shared by all cores: writing past it leaves it to the values, which are read.
    """
    if result.nbytes < STREAMED_BYTES:
        return False
    row_bytes = result.shape[-1] * result.element_size()
    return result.data_ptr() % LINE_BYTES == 0 and row_bytes % LINE_BYTES == 0


class Blocks(NamedTuple):
    """Blocks of time."""

    ends: Tensor  # (blocks + 1,) where they begin and end on the flat time axis
    of_sequences: Tensor  # (n + 1,) the first block of each sequence, and how many there are


def cut_time(bounds: Tensor | None, shape: torch.Size) -> Blocks | None:
    """Cut long sequences at multiples of TIME_BLOCK when there are few rows, (n, h), to divide among threads.

    >>> cut_time(None, torch.Size((1, 5000, 2, 64)))
    Blocks(ends=tensor([   0, 4096, 5000]), of_sequences=tensor([0, 2]))
    """
    batch, length, heads, _ = shape
    if bounds is not None:
        check_bounds(bounds, length)  # a wrong one would read foreign memory
    num_rows = (batch if bounds is None else bounds.shape[0] - 1) * heads
    if num_rows >= FEW_ROWS or length <= TIME_BLOCK or num_rows == 0:
        return None
    ends = [length * n for n in range(batch + 1)] if bounds is None else bounds.tolist()
    starts: list[int] = []
    of_sequences = [0]
    for start, stop in pairwise(ends):
        starts += range(start, max(stop, start + 1), TIME_BLOCK)  # a sequence without items is a block
        of_sequences.append(len(starts))
    return Blocks(torch.tensor([*starts, ends[-1]]), torch.tensor(of_sequences))
