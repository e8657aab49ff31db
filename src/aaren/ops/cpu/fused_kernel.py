"""The CPU kernel: one pass over memory forward, one backward, sums in float64, on plain arrays.

Time is the outer loop and heads the inner one, so that memory is read from front to back; the innermost loop,
over the head width, is SIMD code. Forward, the weights of some items are found together, before their values
are read, because many exponentials at once become SIMD code too. A row is one (sequence, head); a call works
on rows first_row : stop_row, all sequences lying end to end on one time axis. The functions of a job, at the
end, are what `team` runs on several threads: they unpack addresses into arrays and take shares of rows until
none are left.

Fast-math flags: `reassoc` lets the dot products vectorise, `contract` fuses multiply and add. None that
assumes away NaN or infinity: those must poison their own row, and -inf scores must mask.

Importing this file imports Numba; `machine_code` does it when nothing compiled is on disk.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from aaren.ops.cpu.exp_kernel import exp_double
from aaren.ops.cpu.row_kernel import carry_row, finish_streaming, mix_row
from aaren.ops.cpu.shares import array_at, read_cuts, read_fields, take_share

Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
Doubles: TypeAlias = NDArray[np.float64]

LOWEST = float(np.finfo(np.float64).min)
WEIGHED_TOGETHER = 64  # items of each head whose weights are found before their values are read
PEAK, TOTAL = 32, 31  # how far from the end of a row they stand, and so from the next
AHEAD_BYTES = 4096  # from a row that is worked on to the one that is fetched


_JIT = {"fastmath": {"reassoc", "contract"}, "error_model": "numpy"}


@njit(**_JIT)  # type: ignore[untyped-decorator]  # numba ships no types
def _weigh(
    start: int,
    stop: int,
    first_head: int,
    stop_head: int,
    scores: Floats,  # (T, h)
    mask: NDArray[np.bool_],  # (T,), or (0,): all real
    log_decay: Floats,  # (T, h), or (0, h): none
    spaced: Doubles,  # (h, d + ...)  of one sequence; holds m, before and after
    weights: Doubles,  # (T * h,)  exp(s_k - m_k)
    shrinks: Doubles,  # (T * h,)  what a new m_k makes of all weights before it
) -> None:
    """Weigh some items against the largest score so far; the exponentials of many become SIMD code."""
    heads, peak_at = scores.shape[1], spaced.shape[1] - PEAK
    is_masked, is_decaying = mask.shape[0] > 0, log_decay.shape[0] > 0
    for k in range(start, stop):
        is_hidden = is_masked and not mask[k]
        for head in range(first_head, stop_head):
            score, peak, shrink = float(scores[k, head]), spaced[head, peak_at], 1.0
            if is_decaying:
                if log_decay[k, head] == -math.inf:
                    peak, shrink = LOWEST, 0.0
                else:
                    peak = max(peak + log_decay[k, head], LOWEST)
                spaced[head, peak_at] = peak
            weight = score - peak
            if is_hidden or score == -math.inf:
                weight = -math.inf
            elif not score <= peak:  # a new peak, or NaN; both are rare
                shrink *= exp_double(peak - score)
                weight, spaced[head, peak_at] = score - score, score  # not 0: +inf, like NaN, poisons
            weights[k * heads + head], shrinks[k * heads + head] = weight, shrink
    if first_head == 0 and stop_head == heads:  # the heads of all items lie side by side
        _exponentiate(weights[start * heads : stop * heads])
    else:
        for k in range(start, stop):
            _exponentiate(weights[k * heads + first_head : k * heads + stop_head])


@njit(**_JIT)  # type: ignore[untyped-decorator]  # as above
def _exponentiate(items: Doubles) -> None:
    for place in range(len(items)):
        items[place] = exp_double(items[place])


@njit(**_JIT)  # type: ignore[untyped-decorator]  # numba ships no types
def forward(
    first_row: int,
    stop_row: int,
    scores: Floats,  # (T, h)
    values: Floats,  # (T, h, d)
    mask: NDArray[np.bool_],  # (T,), or (0,): all real
    log_decay: Floats,  # (T, h), or (0, h): none
    bounds: NDArray[np.int64],  # (n + 1,)
    m: Doubles,  # (n, h)      the initial states; they become the final ones
    u: Doubles,  # (n, h)
    w: Doubles,  # (n, h, d)
    outputs: Floats,  # (T, h, d), or (0, h, d): only the final states are wanted
    gates: Doubles,  # (T * h,)  g_k = exp(s_k - L_k), the weight of the newest item
    forgets: Doubles,  # (T * h,)  f_k = 1 - g_k to full relative precision, the weight of all before it
    spaced: Doubles,  # (n, h, d + ...)  to work with: o, then from the end m and u
    is_streamed: bool,  # write outputs past the caches; the head width must be whole aligned lines
) -> None:
    """Scan forward in time: o_k = f_k o_{k-1} + g_k v_k, with o for w / u until the end."""
    heads, width = values.shape[1], values.shape[2]
    is_masked, is_decaying, is_written = mask.shape[0] > 0, log_decay.shape[0] > 0, outputs.shape[0] > 0
    peak_at, total_at = spaced.shape[2] - PEAK, spaced.shape[2] - TOTAL
    row = first_row
    while row < stop_row:
        sequence, first_head = row // heads, row % heads
        stop_head = min(heads, first_head + stop_row - row)
        means = spaced[sequence]
        for head in range(first_head, stop_head):
            means[head, peak_at], means[head, total_at] = m[sequence, head], u[sequence, head]
            scale = 0.0 if u[sequence, head] == 0.0 else 1.0 / u[sequence, head]
            for j in range(width):
                means[head, j] = w[sequence, head, j] * scale
        ahead = _ahead(stop_head - first_head, values)
        for start in range(bounds[sequence], bounds[sequence + 1], WEIGHED_TOGETHER):
            stop = min(start + WEIGHED_TOGETHER, bounds[sequence + 1])
            _weigh(
                start, stop, first_head, stop_head,
                scores, mask, log_decay, means, gates, forgets,
            )  # fmt: skip
            for k in range(start, stop):
                for head in range(first_head, stop_head):
                    place = k * heads + head
                    weight, shrink = gates[place], forgets[place]
                    before = 0.0 if shrink == 0.0 else means[head, total_at] * shrink
                    total = before + weight
                    inverse = 0.0 if total == 0.0 else 1.0 / total
                    gate, forget = weight * inverse, before * inverse
                    is_hidden = (is_masked and not mask[k]) or scores[k, head] == -math.inf
                    if is_hidden:
                        forget = 0.0 if total == 0.0 else 1.0
                    gates[place], forgets[place], means[head, total_at] = gate, forget, total
                    if is_decaying and log_decay[k, head] == -math.inf:
                        for j in range(width):
                            means[head, j] = 0.0  # whatever came before, a NaN too
                    if is_hidden:
                        for j in range(width if is_written else 0):
                            outputs[k, head, j] = means[head, j]
                    elif is_written:
                        mix_row(
                            means[head], values[k, head], outputs[k, head], ahead, forget, gate, is_streamed
                        )  # fmt: skip
                    else:
                        for j in range(width):
                            means[head, j] = forget * means[head, j] + gate * values[k, head, j]
        for head in range(first_head, stop_head):
            m[sequence, head], u[sequence, head] = means[head, peak_at], means[head, total_at]
            for j in range(width):
                w[sequence, head, j] = means[head, j] * u[sequence, head]
        row += stop_head - first_head
    if is_streamed:
        finish_streaming()


@njit(**_JIT)  # type: ignore[untyped-decorator]  # as above
def _ahead(num_heads: int, values: Floats) -> int:
    """Return how many numbers lie between a row and the one to fetch meanwhile, of so many heads in turn."""
    heads, width = values.shape[1], values.shape[2]
    numbers: int = (1 + AHEAD_BYTES // (num_heads * width * values.itemsize + 1)) * heads * width
    return numbers


@njit(**_JIT)  # type: ignore[untyped-decorator]  # numba ships no types
def backward(
    first_row: int,
    stop_row: int,
    grad_outputs: Floats,  # (T, h, d)
    values: Floats,  # (T, h, d)
    outputs: Floats,  # (T, h, d)
    gates: Doubles,  # (T, h)
    forgets: Doubles,  # (T, h)
    bounds: NDArray[np.int64],  # (n + 1,)
    first_outputs: Doubles,  # (n, h, d)  what the initial states read
    carry: Doubles,  # (n, h, d)  G beyond the last item; becomes G before the first one
    carry_sum: Doubles,  # (n, h)  H likewise
    grad_scores: Floats,  # (T, h), or (0, h): only the carries are wanted
    grad_values: Floats,  # (T, h, d)
    grad_log_decay: Floats,  # (T, h), or (0, h): none
    spaced: Doubles,  # (n, h, d + ...)  to work with: G, then from the end H
    is_streamed: bool,  # as forward, for grad_values
) -> None:
    """Scan backward in time: G_k = do_k + f_{k+1} G_{k+1}, H_k = do_k·o_k + f_{k+1} H_{k+1}."""
    heads, width = values.shape[1], values.shape[2]
    is_decaying, is_written = grad_log_decay.shape[0] > 0, grad_scores.shape[0] > 0
    sum_at = spaced.shape[2] - TOTAL
    row = first_row
    while row < stop_row:
        sequence, first_head = row // heads, row % heads
        stop_head = min(heads, first_head + stop_row - row)
        start, stop = bounds[sequence], bounds[sequence + 1]
        carries, behind = spaced[sequence], -_ahead(stop_head - first_head, values)
        for head in range(first_head, stop_head):
            carries[head, sum_at] = carry_sum[sequence, head]
            for j in range(width):
                carries[head, j] = carry[sequence, head, j]
        for k in range(stop - 1, start - 1, -1):
            for head in range(stop_head - 1, first_head - 1, -1):  # backwards too: memory is prefetched
                g, h = carries[head], carries[head, sum_at]
                kept = 1.0 if k == stop - 1 else forgets[k + 1, head]
                if kept == 0.0:  # nothing after this item depends on it, and no NaN comes back from there
                    g[:width] = 0.0
                    h = 0.0
                gate, along_output = gates[k, head], 0.0
                if not is_written:
                    for j in range(width):
                        g[j] = grad_outputs[k, head, j] + kept * g[j]
                        along_output += float(grad_outputs[k, head, j]) * outputs[k, head, j]
                    carries[head, sum_at] = along_output + kept * h
                    continue
                along_output, along_value = carry_row(
                    g, grad_outputs[k, head], outputs[k, head], values[k, head], grad_values[k, head],
                    behind, kept, gate, is_streamed and gate != 0.0,
                )  # fmt: skip
                h = along_output + kept * h
                carries[head, sum_at] = h
                grad_scores[k, head] = gate * (along_value - h)
                if gate == 0.0:  # a masked item, whatever stands in it
                    grad_scores[k, head] = 0.0
                    grad_values[k, head] = 0.0
                if is_decaying:
                    along_previous = 0.0
                    for j in range(width):
                        before = first_outputs[sequence, head, j] if k == start else outputs[k - 1, head, j]
                        along_previous += g[j] * before
                    forget = forgets[k, head]
                    grad_log_decay[k, head] = 0.0 if forget == 0.0 else forget * (along_previous - h)
        for head in range(first_head, stop_head):  # what reaches the initial state
            kept = forgets[start, head] if start < stop else 1.0
            carry_sum[sequence, head] = 0.0 if kept == 0.0 else kept * carries[head, sum_at]
            for j in range(width):
                carry[sequence, head, j] = 0.0 if kept == 0.0 else kept * carries[head, j]
        row += stop_head - first_head
    if is_streamed:
        finish_streaming()


def forward_job(number: types.Float) -> Callable[..., None]:
    """Return the forward kernel for items of this type.

    Fields: sizes; lengths of mask, log_decay and results (T, or 0: none); the addresses of the kernel's
    arguments in their order; the last size of `spaced`, and whether to stream.
    """

    def run(at):  # type: ignore[no-untyped-def]  # numba infers
        (
            items, heads, width, sequences, masked, decaying, written,
            scores_at, values_at, mask_at, log_decay_at, bounds_at, m_at, u_at, w_at,
            outputs_at, gates_at, forgets_at, spaced_at, spaced_size, is_streamed,
        ) = read_fields(at, 21)  # fmt: skip
        scores = array_at(scores_at, (items, heads), number)
        values = array_at(values_at, (items, heads, width), number)
        mask = array_at(mask_at, masked, types.boolean)
        log_decay = array_at(log_decay_at, (decaying, heads), number)
        bounds = array_at(bounds_at, sequences + 1, types.int64)
        m = array_at(m_at, (sequences, heads), types.float64)
        u = array_at(u_at, (sequences, heads), types.float64)
        w = array_at(w_at, (sequences, heads, width), types.float64)
        outputs = array_at(outputs_at, (written, heads, width), number)
        gates = array_at(gates_at, items * heads, types.float64)
        forgets = array_at(forgets_at, items * heads, types.float64)
        spaced = array_at(spaced_at, (sequences, heads, spaced_size), types.float64)
        cuts = read_cuts(at)
        share = take_share(at)
        while share < len(cuts) - 1:
            forward(
                cuts[share], cuts[share + 1],
                scores, values, mask, log_decay, bounds, m, u, w, outputs, gates, forgets, spaced,
                is_streamed > 0,
            )  # fmt: skip
            share = take_share(at)

    return run


def backward_job(number: types.Float) -> Callable[..., None]:
    """Return the backward kernel for items of this type.

    Fields: sizes; lengths of the gradients of scores and of log_decay (T, or 0: none); the addresses of the
    kernel's arguments in their order; the last size of `spaced`, and whether to stream.
    """

    def run(at):  # type: ignore[no-untyped-def]  # numba infers
        (
            items, heads, width, sequences, written, decaying,
            grad_outputs_at, values_at, outputs_at, gates_at, forgets_at, bounds_at,
            first_outputs_at, carry_at, carry_sum_at, grad_scores_at, grad_values_at, grad_log_decay_at,
            spaced_at, spaced_size, is_streamed,
        ) = read_fields(at, 21)  # fmt: skip
        grad_outputs = array_at(grad_outputs_at, (items, heads, width), number)
        values = array_at(values_at, (items, heads, width), number)
        outputs = array_at(outputs_at, (items, heads, width), number)
        gates = array_at(gates_at, (items, heads), types.float64)
        forgets = array_at(forgets_at, (items, heads), types.float64)
        bounds = array_at(bounds_at, sequences + 1, types.int64)
        first_outputs = array_at(first_outputs_at, (sequences, heads, width), types.float64)
        carry = array_at(carry_at, (sequences, heads, width), types.float64)
        carry_sum = array_at(carry_sum_at, (sequences, heads), types.float64)
        grad_scores = array_at(grad_scores_at, (written, heads), number)
        grad_values = array_at(grad_values_at, (items, heads, width), number)
        grad_log_decay = array_at(grad_log_decay_at, (decaying, heads), number)
        spaced = array_at(spaced_at, (sequences, heads, spaced_size), types.float64)
        cuts = read_cuts(at)
        share = take_share(at)
        while share < len(cuts) - 1:
            backward(
                cuts[share], cuts[share + 1],
                grad_outputs, values, outputs, gates, forgets, bounds, first_outputs, carry, carry_sum,
                grad_scores, grad_values, grad_log_decay, spaced, is_streamed > 0,
            )  # fmt: skip
            share = take_share(at)

    return run
