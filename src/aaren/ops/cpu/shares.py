"""The compiled side of `team`: how a function written with Numba reads its job and takes shares of it.

A job is an array of int64: a counter, the number of shares, the address of the cuts between them, and then
the function's own fields, numbers and addresses of arrays. Importing this file imports Numba.
"""

from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

SIGNATURE = types.void(types.CPointer(types.int64))
_CUTS, _FIRST_FIELD = 2, 3


@intrinsic
def take_share(_context, job):  # type: ignore[no-untyped-def]  # numba's protocol
    """Return the number of a share that nobody has taken; beyond the last, there is none left."""

    def build(_target, builder, _signature, arguments):  # type: ignore[no-untyped-def]  # as above
        return builder.atomic_rmw("add", arguments[0], cgutils.intp_t(1), "monotonic")

    return types.int64(job), build


@intrinsic(prefer_literal=True)
def read_fields(_context, job, count):  # type: ignore[no-untyped-def]  # numba's protocol
    """Return the function's own fields, of which there are `count`, to be named by who reads them."""
    fields = types.UniTuple(types.int64, count.literal_value)

    def build(target, builder, _signature, arguments):  # type: ignore[no-untyped-def]  # as above
        places = (
            builder.gep(arguments[0], [ir.IntType(64)(_FIRST_FIELD + field)])
            for field in range(count.literal_value)
        )
        return target.make_tuple(builder, fields, [builder.load(place) for place in places])

    return fields(job, count), build


@intrinsic
def _pointer(_context, address):  # type: ignore[no-untyped-def]  # numba's protocol
    """Turn a number into a pointer, for `carray`."""

    def build(_target, builder, _signature, arguments):  # type: ignore[no-untyped-def]  # as above
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), build


@njit
def array_at(address, shape, number):  # type: ignore[no-untyped-def]  # numba infers
    """Return the array that begins at an address."""
    return carray(_pointer(address), shape, number)


@njit
def read_cuts(job):  # type: ignore[no-untyped-def]  # numba infers
    """Return where shares begin and end: one more than there are shares."""
    head = carray(job, _FIRST_FIELD)
    return array_at(head[_CUTS], head[1] + 1, types.int64)
