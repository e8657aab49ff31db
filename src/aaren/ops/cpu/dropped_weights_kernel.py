"""The weights of softmax attention with dropout, and their gradients, in one pass over rows of scores.

A row is what one query scores of all keys; it fits into the nearest cache, so softmax, dropping and the
causal limit cost one trip.

Importing this file imports Numba; `machine_code` does it when nothing compiled is on disk.
"""

import math
from collections.abc import Callable

from llvmlite import ir
from numba import njit, types, uint32
from numba.extending import intrinsic

from aaren.ops.cpu.dropout_kernel import hash_place
from aaren.ops.cpu.exp_kernel import exp_double, exp_single
from aaren.ops.cpu.shares import array_at, read_cuts, read_fields, take_share

_JIT = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy"}


@intrinsic
def _larger(_context, left, right):  # type: ignore[no-untyped-def]  # numba's protocol
    """Return the larger one, or NaN; unlike max(), LLVM makes SIMD code of it."""

    def build(_target, builder, _signature, arguments):  # type: ignore[no-untyped-def]  # as above
        number = arguments[0].type
        kind = ir.FunctionType(number, [number, number])
        function = builder.module.declare_intrinsic("llvm.maximum", [number], kind)
        return builder.call(function, arguments)

    return left(left, right), build


def forward_job(number: types.Float) -> Callable[..., None]:
    """Return what turns rows of scores into dropped weights, in place, and leaves their log-sums.

    Fields: rows per pair, keys, place of the first query, whether causal, threshold, two keys of the hash;
    addresses of the scores (pairs * rows, keys), the log-sums (pairs * rows,) and the scale of what is kept.
    """
    exp = exp_single if number is types.float32 else exp_double

    @njit(**_JIT)
    def drop_row(scores, seen, first, threshold, first_key, second_key, scale):  # type: ignore[no-untyped-def]  # as below
        peak = scores[0]
        for j in range(seen):
            peak = _larger(peak, scores[j])
        total = number(0)
        for j in range(seen):
            weight = exp(scores[j] - peak)
            scores[j] = weight
            total += weight
        kept = scale / total
        for j in range(seen):
            is_kept = hash_place(first + j, first_key, second_key) >= threshold
            scores[j] = scores[j] * kept if is_kept else number(0)
        scores[seen:] = number(0)
        return peak + number(math.log(total))

    def run(at):  # type: ignore[no-untyped-def]  # numba infers
        (
            rows, keys, start, is_causal, threshold, first_key, second_key,
            scores_at, log_sums_at, scale_at,
        ) = read_fields(at, 10)  # fmt: skip
        cuts = read_cuts(at)
        num_rows = cuts[-1]
        scores = array_at(scores_at, (num_rows, keys), number)
        log_sums = array_at(log_sums_at, num_rows, number)
        scale = array_at(scale_at, 1, number)[0]
        share = take_share(at)
        while share < len(cuts) - 1:
            for row in range(cuts[share], cuts[share + 1]):
                seen = min(start + row % rows + 1, keys) if is_causal else keys
                log_sums[row] = drop_row(
                    scores[row], seen, row * keys,
                    uint32(threshold), uint32(first_key), uint32(second_key), scale,
                )  # fmt: skip
            share = take_share(at)

    return run


def backward_job(number: types.Float) -> Callable[..., None]:
    """Return what turns scores into dropped weights, and gradients of these into gradients of the scores.

    Both in place. Fields: as of `forward_job`, then the addresses of the gradients, like the scores, and of
    what each row's gradients sum to under its weights, like the log-sums.
    """
    exp = exp_single if number is types.float32 else exp_double

    @njit(**_JIT)
    def return_row(scores, gradients, log_sum, mean, seen, first, threshold, first_key, second_key, scale):  # type: ignore[no-untyped-def]  # as below
        for j in range(seen):
            weight = exp(scores[j] - log_sum)
            is_kept = hash_place(first + j, first_key, second_key) >= threshold
            factor = scale if is_kept else number(0)
            scores[j] = weight * factor
            gradients[j] = weight * (gradients[j] * factor - mean)
        scores[seen:] = number(0)
        gradients[seen:] = number(0)

    def run(at):  # type: ignore[no-untyped-def]  # numba infers
        (
            rows, keys, start, is_causal, threshold, first_key, second_key,
            scores_at, log_sums_at, scale_at, gradients_at, means_at,
        ) = read_fields(at, 12)  # fmt: skip
        cuts = read_cuts(at)
        num_rows = cuts[-1]
        scores = array_at(scores_at, (num_rows, keys), number)
        log_sums = array_at(log_sums_at, num_rows, number)
        scale = array_at(scale_at, 1, number)[0]
        gradients = array_at(gradients_at, (num_rows, keys), number)
        means = array_at(means_at, num_rows, number)
        share = take_share(at)
        while share < len(cuts) - 1:
            for row in range(cuts[share], cuts[share + 1]):
                seen = min(start + row % rows + 1, keys) if is_causal else keys
                return_row(
                    scores[row], gradients[row], log_sums[row], means[row],
                    seen, row * keys,
                    uint32(threshold), uint32(first_key), uint32(second_key), scale,
                )  # fmt: skip
            share = take_share(at)

    return run
