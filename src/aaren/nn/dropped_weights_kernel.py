"""The weights of softmax attention with dropout, and their gradients, in one pass over rows of scores.

A row is what one query scores of all keys; it fits into the nearest cache, so softmax, dropping and the
causal limit cost one trip. The exponential in float32 is a polynomial, because a call of the C library's for
every weight would be most of the time; it is right to 2 units in the last place.

Importing this file imports Numba; `machine_code` does it when nothing compiled is on disk.
"""

import math
from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import carray, int32, njit, types, uint32
from numba.extending import intrinsic

from aaren.nn.dropout_kernel import hash_place
from aaren.ops.shares import FIRST_FIELD, pointer, take_share

_F = FIRST_FIELD
_JIT = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy"}

# exp(x) = 2^n exp(r) with |r| <= ln(2) / 2; ln(2) in two parts, so that n ln(2) is subtracted exactly.
_LOWEST_POWER = np.float32(-87.0)  # exp of it is the smallest that float32 holds in full
_PER_OCTAVE = np.float32(1 / math.log(2))
_OCTAVE_HEAD = np.float32(0.693359375)
_OCTAVE_TAIL = np.float32(math.log(2) - 0.693359375)
_HALF, _ONE = np.float32(0.5), np.float32(1.0)
_THIRD_ORDER, _FOURTH_ORDER, _FIFTH_ORDER, _SIXTH_ORDER = (
    np.float32(1 / math.factorial(order)) for order in (3, 4, 5, 6)
)
_EXPONENT_BIAS, _FRACTION_BITS = 127, 23


@intrinsic
def _as_float(_context, bits):  # type: ignore[no-untyped-def]  # numba's protocol
    """Read the bits of an int32 as a float32."""

    def build(_target, builder, _signature, arguments):  # type: ignore[no-untyped-def]  # as above
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(bits), build


@intrinsic
def _larger(_context, left, right):  # type: ignore[no-untyped-def]  # as above
    """Return the larger one, or NaN; unlike max(), LLVM makes SIMD code of it."""

    def build(_target, builder, _signature, arguments):  # type: ignore[no-untyped-def]  # as above
        number = arguments[0].type
        kind = ir.FunctionType(number, [number, number])
        function = builder.module.declare_intrinsic("llvm.maximum", [number], kind)
        return builder.call(function, arguments)

    return left(left, right), build


@njit(**_JIT)
def _exp_single(x):  # type: ignore[no-untyped-def]  # numba infers
    """Return exp(x) for x <= 0; NaN stays NaN."""
    x = x if not x < _LOWEST_POWER else _LOWEST_POWER
    octaves = np.floor(x * _PER_OCTAVE + _HALF)
    rest = (x - octaves * _OCTAVE_HEAD) - octaves * _OCTAVE_TAIL
    tail = ((_SIXTH_ORDER * rest + _FIFTH_ORDER) * rest + _FOURTH_ORDER) * rest + _THIRD_ORDER
    series = ((tail * rest + _HALF) * rest + _ONE) * rest + _ONE
    return series * _as_float(int32((int32(octaves) + int32(_EXPONENT_BIAS)) << int32(_FRACTION_BITS)))


@njit(**_JIT)
def _exp_double(x):  # type: ignore[no-untyped-def]  # as above
    return math.exp(x)


def forward_job(number: types.Float) -> Callable[..., None]:
    """Return what turns rows of scores into dropped weights, in place, and leaves their log-sums.

    Fields: rows per pair, keys, place of the first query, whether causal, threshold, two keys of the hash;
    addresses of the scores (pairs * rows, keys), the log-sums (pairs * rows,) and the scale of what is kept.
    """
    exp = _exp_single if number is types.float32 else _exp_double

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
        job = carray(at, _F + 10)
        rows, keys, start, is_causal = job[_F], job[_F + 1], job[_F + 2], job[_F + 3]
        threshold, first_key, second_key = uint32(job[_F + 4]), uint32(job[_F + 5]), uint32(job[_F + 6])
        cuts = carray(pointer(job[2]), job[1] + 1, types.int64)
        scores = carray(pointer(job[_F + 7]), (cuts[job[1]], keys), number)
        log_sums = carray(pointer(job[_F + 8]), cuts[job[1]], number)
        scale = carray(pointer(job[_F + 9]), 1, number)[0]
        share = take_share(at)
        while share < job[1]:
            for row in range(cuts[share], cuts[share + 1]):
                seen = min(start + row % rows + 1, keys) if is_causal else keys
                log_sums[row] = drop_row(
                    scores[row], seen, row * keys, threshold, first_key, second_key, scale
                )
            share = take_share(at)

    return run


def backward_job(number: types.Float) -> Callable[..., None]:
    """Return what turns scores into dropped weights, and gradients of these into gradients of the scores.

    Both in place. Fields: as of `forward_job`, then the addresses of the gradients, like the scores, and of
    what each row's gradients sum to under its weights, like the log-sums.
    """
    exp = _exp_single if number is types.float32 else _exp_double

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
        job = carray(at, _F + 12)
        rows, keys, start, is_causal = job[_F], job[_F + 1], job[_F + 2], job[_F + 3]
        threshold, first_key, second_key = uint32(job[_F + 4]), uint32(job[_F + 5]), uint32(job[_F + 6])
        cuts = carray(pointer(job[2]), job[1] + 1, types.int64)
        scores = carray(pointer(job[_F + 7]), (cuts[job[1]], keys), number)
        log_sums = carray(pointer(job[_F + 8]), cuts[job[1]], number)
        scale = carray(pointer(job[_F + 9]), 1, number)[0]
        gradients = carray(pointer(job[_F + 10]), (cuts[job[1]], keys), number)
        means = carray(pointer(job[_F + 11]), cuts[job[1]], number)
        share = take_share(at)
        while share < job[1]:
            for row in range(cuts[share], cuts[share + 1]):
                seen = min(start + row % rows + 1, keys) if is_causal else keys
                return_row(
                    scores[row], gradients[row], log_sums[row], means[row],
                    seen, row * keys, threshold, first_key, second_key, scale,
                )  # fmt: skip
            share = take_share(at)

    return run
