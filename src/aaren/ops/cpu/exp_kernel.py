"""Exponentials of numbers that are not positive, as code that becomes SIMD; for the compiled kernels.

A call of the C library's for every number would be most of a kernel's time. exp(x) = 2^n exp(r) with |r| at
most ln(2) / 2: exp(r) comes from its series, 2^n from writing n where a number keeps its exponent. Adding
1.5 * 2^52 (in float32 1.5 * 2^23) rounds to a whole number and leaves it in the low bits. The relative
error is below 5e-16 in float64 and 2e-7 in float32; NaN stays NaN.

Importing this file imports Numba.
"""

import math

import numpy as np
from llvmlite import ir
from numba import int32, njit, types
from numba.extending import intrinsic

_JIT = {"fastmath": {"contract"}, "error_model": "numpy"}  # `reassoc` would take the rounding away

_PER_OCTAVE = 1 / math.log(2)
_ROUNDER = 1.5 * 2.0**52
# ln(2) in two parts, of which the first has so few bits that its products with n are exact.
_HEAD, _TAIL = 0.6931471803691238, 1.9082149292705877e-10
_LOWEST = -707.0  # exp of it is near the smallest that float64 holds in full
_C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11, _C12, _C13 = (
    1 / math.factorial(order) for order in range(2, 14)
)

_PER_OCTAVE_32 = np.float32(_PER_OCTAVE)
_ROUNDER_32 = np.float32(1.5 * 2.0**23)
_HEAD_32, _TAIL_32 = np.float32(0.693359375), np.float32(-0.00021219444005469057)
_LOWEST_32 = np.float32(-87.0)
_ZERO_32, _ONE_32 = np.float32(0.0), np.float32(1.0)
_D2, _D3, _D4, _D5, _D6, _D7 = (np.float32(1 / math.factorial(order)) for order in range(2, 8))


@intrinsic
def _bits(_context, number):  # type: ignore[no-untyped-def]  # numba's protocol
    """Read a float as an integer of its size."""
    integer = types.int32 if number is types.float32 else types.int64

    def build(_target, builder, _signature, arguments):  # type: ignore[no-untyped-def]  # as above
        return builder.bitcast(arguments[0], ir.IntType(integer.bitwidth))

    return integer(number), build


@intrinsic
def _float(_context, bits):  # type: ignore[no-untyped-def]  # as above
    """Read an integer as a float of its size."""
    number, kind = (
        (types.float32, ir.FloatType()) if bits is types.int32 else (types.float64, ir.DoubleType())
    )

    def build(_target, builder, _signature, arguments):  # type: ignore[no-untyped-def]  # as above
        return builder.bitcast(arguments[0], kind)

    return number(bits), build


@njit(**_JIT)
def exp_double(x):  # type: ignore[no-untyped-def]  # numba infers
    """Return exp(x) of a float64, x <= 0; 0 where it is below 1e-307."""
    shifted = x * _PER_OCTAVE + _ROUNDER
    octaves = shifted - _ROUNDER
    r = (x - octaves * _HEAD) - octaves * _TAIL
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 + r) + r2 * (_C2 + r * _C3) + r4 * ((_C4 + r * _C5) + r2 * (_C6 + r * _C7))
    high = (_C8 + r * _C9) + r2 * (_C10 + r * _C11) + r4 * (_C12 + r * _C13)
    scale = _float((_bits(shifted) << 52) + (1023 << 52))
    return 0.0 if x < _LOWEST else (low + (r4 * r4) * high) * scale


@njit(**_JIT)
def exp_single(x):  # type: ignore[no-untyped-def]  # numba infers
    """Return exp(x) of a float32, x <= 0; 0 where it is below 1e-38."""
    shifted = x * _PER_OCTAVE_32 + _ROUNDER_32
    octaves = shifted - _ROUNDER_32
    r = (x - octaves * _HEAD_32) - octaves * _TAIL_32
    r2 = r * r
    series = (_ONE_32 + r) + r2 * ((_D2 + r * _D3) + r2 * ((_D4 + r * _D5) + r2 * (_D6 + r * _D7)))
    scale = _float(int32((_bits(shifted) << 23) + (127 << 23)))  # Numba computes these in 64 bits
    return _ZERO_32 if x < _LOWEST_32 else series * scale
