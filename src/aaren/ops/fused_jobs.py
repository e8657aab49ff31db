"""The kernel as functions of a job: unpack addresses into arrays, take shares of rows until none are left.

One pair for float32 and one for float64, compiled when first asked for. Importing this file imports Numba.
"""

from functools import cache

import torch
from numba import carray, types

from aaren.ops.fused_kernel import backward, forward
from aaren.ops.shares import FIRST_FIELD, compiled, pointer, take_share
from aaren.ops.team import Function

_NUMBERS = {torch.float32: types.float32, torch.float64: types.float64}
_F = FIRST_FIELD


@cache
def forward_job(dtype: torch.dtype) -> Function:
    """Return the forward kernel for items of this dtype.

    Fields: items T, heads, width, sequences; lengths of mask, log_decay and results (T, or 0: none); then the
    addresses of the kernel's arguments in their order.
    """
    number = _NUMBERS[dtype]

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

    return compiled(run)


@cache
def backward_job(dtype: torch.dtype) -> Function:
    """Return the backward kernel for items of this dtype.

    Fields: items T, heads, width, sequences; lengths of the gradients of scores and of log_decay (T, or 0:
    none); then the addresses of the kernel's arguments in their order.
    """
    number = _NUMBERS[dtype]

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

    return compiled(run)
