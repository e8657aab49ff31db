"""The CPU kernel: one pass over memory forward, one backward, sums in float64, on plain arrays.

Time is the outer loop and heads the inner one, so that memory is read from front to back; the innermost loop,
over the head width, becomes SIMD code. A row is one (sequence, head); a call works on rows first_row :
stop_row, all sequences lying end to end on one time axis. The functions of a job, at the end, are what `team`
runs on several threads: they unpack addresses into arrays and take shares of rows until none are left.

Fast-math flags: `reassoc` lets the dot products vectorise, `contract` fuses multiply and add. None that
assumes away NaN or infinity: those must poison their own row, and -inf scores must mask.

Importing this file imports Numba; `machine_code` does it when nothing compiled is on disk.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numba import carray, njit, types
from numpy.typing import NDArray

from aaren.ops.shares import FIRST_FIELD, pointer, take_share

Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
Doubles: TypeAlias = NDArray[np.float64]

LOWEST = float(np.finfo(np.float64).min)
_F = FIRST_FIELD


_JIT = {"fastmath": {"reassoc", "contract"}, "error_model": "numpy"}


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
    gates: Doubles,  # (T, h)  g_k = exp(s_k - L_k), the weight of the newest item
    forgets: Doubles,  # (T, h)  f_k = 1 - g_k to full relative precision, the weight of all before it
) -> None:
    """Scan forward in time."""
    heads, width = values.shape[1], values.shape[2]
    is_masked, is_decaying, is_written = mask.shape[0] > 0, log_decay.shape[0] > 0, outputs.shape[0] > 0
    row = first_row
    while row < stop_row:
        sequence, first_head = row // heads, row % heads
        stop_head = min(heads, first_head + stop_row - row)
        for k in range(bounds[sequence], bounds[sequence + 1]):
            for head in range(first_head, stop_head):
                peak, total = m[sequence, head], u[sequence, head]
                sums = w[sequence, head]
                if is_decaying:
                    if log_decay[k, head] == -math.inf:
                        peak, total = LOWEST, 0.0
                        sums[:] = 0.0
                    else:
                        peak = max(peak + log_decay[k, head], LOWEST)
                score = float(scores[k, head])
                is_real = (not is_masked or mask[k]) and score != -math.inf
                shrink, weight = 1.0, 0.0
                if is_real and score <= peak:
                    weight = math.exp(score - peak)
                elif is_real:  # a new peak, or NaN
                    shrink, weight = math.exp(peak - score), 1.0
                    peak = score
                before = total * shrink
                total = before + weight
                m[sequence, head], u[sequence, head] = peak, total
                inverse = 0.0 if total == 0.0 else 1.0 / total
                if not is_written:
                    if is_real:
                        for j in range(width):
                            sums[j] = sums[j] * shrink + weight * values[k, head, j]
                elif is_real:
                    for j in range(width):
                        sums[j] = sums[j] * shrink + weight * values[k, head, j]
                        outputs[k, head, j] = sums[j] * inverse
                    gates[k, head], forgets[k, head] = weight * inverse, before * inverse
                else:
                    for j in range(width):
                        outputs[k, head, j] = sums[j] * inverse
                    gates[k, head], forgets[k, head] = 0.0, 0.0 if total == 0.0 else 1.0
        row += stop_head - first_head


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
) -> None:
    """Scan backward in time: G_k = do_k + f_{k+1} G_{k+1}, H_k = do_k·o_k + f_{k+1} H_{k+1}."""
    heads, width = values.shape[1], values.shape[2]
    is_decaying, is_written = grad_log_decay.shape[0] > 0, grad_scores.shape[0] > 0
    row = first_row
    while row < stop_row:
        sequence, first_head = row // heads, row % heads
        stop_head = min(heads, first_head + stop_row - row)
        start, stop = bounds[sequence], bounds[sequence + 1]
        for k in range(stop - 1, start - 1, -1):
            for head in range(stop_head - 1, first_head - 1, -1):  # backwards too: memory is prefetched
                g, h = carry[sequence, head], carry_sum[sequence, head]
                kept = 1.0 if k == stop - 1 else forgets[k + 1, head]
                if kept == 0.0:  # nothing after this item depends on it, and no NaN comes back from there
                    g[:] = 0.0
                    h = 0.0
                gate, along_output, along_value = gates[k, head], 0.0, 0.0
                if not is_written:
                    for j in range(width):
                        g[j] = grad_outputs[k, head, j] + kept * g[j]
                        along_output += float(grad_outputs[k, head, j]) * outputs[k, head, j]
                    carry_sum[sequence, head] = along_output + kept * h
                    continue
                for j in range(width):
                    grad_output = float(grad_outputs[k, head, j])
                    total = grad_output + kept * g[j]
                    g[j] = total
                    along_output += grad_output * outputs[k, head, j]
                    along_value += total * values[k, head, j]
                    grad_values[k, head, j] = gate * total
                h = along_output + kept * h
                carry_sum[sequence, head] = h
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
        if start < stop:  # what reaches the initial state
            for head in range(first_head, stop_head):
                kept = forgets[start, head]
                carry_sum[sequence, head] = 0.0 if kept == 0.0 else kept * carry_sum[sequence, head]
                for j in range(width):
                    carry[sequence, head, j] = 0.0 if kept == 0.0 else kept * carry[sequence, head, j]
        row += stop_head - first_head


def forward_job(number: types.Float) -> Callable[..., None]:
    """Return the forward kernel for items of this type.

    Fields: items T, heads, width, sequences; lengths of mask, log_decay and results (T, or 0: none); then the
    addresses of the kernel's arguments in their order.
    """

    def run(at):  # type: ignore[no-untyped-def]  # numba infers
        job = carray(at, _F + 18)
        items, heads, width, sequences = job[_F], job[_F + 1], job[_F + 2], job[_F + 3]
        masked, decaying, written = job[_F + 4], job[_F + 5], job[_F + 6]
        cuts = carray(pointer(job[2]), job[1] + 1, types.int64)
        scores = carray(pointer(job[_F + 7]), (items, heads), number)
        values = carray(pointer(job[_F + 8]), (items, heads, width), number)
        mask = carray(pointer(job[_F + 9]), masked, types.boolean)
        log_decay = carray(pointer(job[_F + 10]), (decaying, heads), number)
        bounds = carray(pointer(job[_F + 11]), sequences + 1, types.int64)
        m = carray(pointer(job[_F + 12]), (sequences, heads), types.float64)
        u = carray(pointer(job[_F + 13]), (sequences, heads), types.float64)
        w = carray(pointer(job[_F + 14]), (sequences, heads, width), types.float64)
        outputs = carray(pointer(job[_F + 15]), (written, heads, width), number)
        gates = carray(pointer(job[_F + 16]), (written, heads), types.float64)
        forgets = carray(pointer(job[_F + 17]), (written, heads), types.float64)
        share = take_share(at)
        while share < job[1]:
            forward(
                cuts[share], cuts[share + 1],
                scores, values, mask, log_decay, bounds, m, u, w, outputs, gates, forgets,
            )  # fmt: skip
            share = take_share(at)

    return run


def backward_job(number: types.Float) -> Callable[..., None]:
    """Return the backward kernel for items of this type.

    Fields: items T, heads, width, sequences; lengths of the gradients of scores and of log_decay (T, or 0:
    none); then the addresses of the kernel's arguments in their order.
    """

    def run(at):  # type: ignore[no-untyped-def]  # numba infers
        job = carray(at, _F + 18)
        items, heads, width, sequences = job[_F], job[_F + 1], job[_F + 2], job[_F + 3]
        written, decaying = job[_F + 4], job[_F + 5]
        cuts = carray(pointer(job[2]), job[1] + 1, types.int64)
        grad_outputs = carray(pointer(job[_F + 6]), (items, heads, width), number)
        values = carray(pointer(job[_F + 7]), (items, heads, width), number)
        outputs = carray(pointer(job[_F + 8]), (items, heads, width), number)
        gates = carray(pointer(job[_F + 9]), (items, heads), types.float64)
        forgets = carray(pointer(job[_F + 10]), (items, heads), types.float64)
        bounds = carray(pointer(job[_F + 11]), sequences + 1, types.int64)
        first_outputs = carray(pointer(job[_F + 12]), (sequences, heads, width), types.float64)
        carry = carray(pointer(job[_F + 13]), (sequences, heads, width), types.float64)
        carry_sum = carray(pointer(job[_F + 14]), (sequences, heads), types.float64)
        grad_scores = carray(pointer(job[_F + 15]), (written, heads), number)
        grad_values = carray(pointer(job[_F + 16]), (items, heads, width), number)
        grad_log_decay = carray(pointer(job[_F + 17]), (decaying, heads), number)
        share = take_share(at)
        while share < job[1]:
            backward(
                cuts[share], cuts[share + 1],
                grad_outputs, values, outputs, gates, forgets, bounds, first_outputs, carry, carry_sum,
                grad_scores, grad_values, grad_log_decay,
            )  # fmt: skip
            share = take_share(at)

    return run
