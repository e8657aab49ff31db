"""The compiled side of `team`: how a function written with Numba reads its job and takes shares of it.

A job is an array of int64: a counter, the number of shares, the address of the cuts between them, and then
whatever the function wants, numbers and addresses. Importing this file imports Numba.
"""

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

FIRST_FIELD = 3  # of the function's own, after what `team` writes
SIGNATURE = types.void(types.CPointer(types.int64))


@intrinsic
def take_share(_context, job):  # type: ignore[no-untyped-def]  # numba's protocol
    """Return the number of a share that nobody has taken; beyond the last, there is none left."""

    def build(_target, builder, _signature, arguments):  # type: ignore[no-untyped-def]  # as above
        return builder.atomic_rmw("add", arguments[0], cgutils.intp_t(1), "monotonic")

    return types.int64(job), build


@intrinsic
def pointer(_context, address):  # type: ignore[no-untyped-def]  # numba's protocol
    """Turn a number into a pointer, for `carray`."""

    def build(_target, builder, _signature, arguments):  # type: ignore[no-untyped-def]  # as above
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), build
