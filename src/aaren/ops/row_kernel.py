"""One step of the scan over the width of a head, in explicit SIMD; for the compiled kernels.

Left to itself, LLVM asks before every such short loop whether its arrays overlap, which costs as much as the
loop. And whoever writes memory that is not in the cache waits for it to be read first, unless it was asked
for in time: with that, the scan writes at the speed of a copy.

Importing this file imports Numba.
"""

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LINE_BYTES = 64  # of a cache


@intrinsic
def _mix_lines(_context, means, values, outputs, later_values, later_outputs, forget, gate):  # type: ignore[no-untyped-def]  # numba's protocol
    """Set means and outputs to forget * means + gate * values, by whole cache lines of values.

    Meanwhile the lines of later rows are fetched; those need not exist.
    """

    def build(target, builder, signature, arguments):  # type: ignore[no-untyped-def]  # as above
        arrays = [
            target.make_array(kind)(target, builder, item)
            for kind, item in zip(signature.args[:5], arguments[:5], strict=True)
        ]
        lanes = LINE_BYTES * 8 // values.dtype.bitwidth
        index, number = ir.IntType(64), target.get_value_type(values.dtype)
        numbers, doubles = ir.VectorType(number, lanes), ir.VectorType(ir.DoubleType(), lanes)
        spread = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
        nothing = ir.Constant(doubles, ir.Undefined)
        forgets, gates = (
            builder.shuffle_vector(builder.insert_element(nothing, factor, index(0)), nothing, spread)
            for factor in arguments[5:]
        )
        width = builder.extract_value(arrays[1].shape, 0)
        with cgutils.for_range(builder, builder.udiv(width, index(lanes))) as loop:
            place = builder.mul(loop.index, index(lanes))
            at = [builder.gep(array.data, [place]) for array in arrays]
            _prefetch(builder, at[3], to_write=False)
            _prefetch(builder, at[4], to_write=True)
            old = builder.load(builder.bitcast(at[0], doubles.as_pointer()), align=8)
            new = builder.load(builder.bitcast(at[1], numbers.as_pointer()), align=values.dtype.bitwidth // 8)
            if number != ir.DoubleType():
                new = builder.fpext(new, doubles)
            kept = builder.fmul(old, forgets, flags=["contract"])
            added = builder.fmul(new, gates, flags=["contract"])
            mean = builder.fadd(kept, added, flags=["contract"])
            builder.store(mean, builder.bitcast(at[0], doubles.as_pointer()), align=8)
            if number != ir.DoubleType():
                mean = builder.fptrunc(mean, numbers)
            builder.store(
                mean, builder.bitcast(at[2], numbers.as_pointer()), align=values.dtype.bitwidth // 8
            )
        return target.get_dummy_value()

    return types.void(means, values, outputs, later_values, later_outputs, forget, gate), build


def _prefetch(builder: ir.IRBuilder, place: ir.Value, *, to_write: bool) -> None:
    flag, address = ir.IntType(32), ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [address, flag, flag, flag])
    function = builder.module.declare_intrinsic("llvm.prefetch", [address], kind)
    nearest, is_data = flag(3), flag(1)
    builder.call(function, [builder.bitcast(place, address), flag(int(to_write)), nearest, is_data])


@njit(fastmath={"contract"}, error_model="numpy")
def mix_row(means, values, outputs, later_values, later_outputs, forget, gate):  # type: ignore[no-untyped-def]  # numba infers
    """Set means (d,) and outputs (d,) to forget * means + gate * values (d,), and fetch what comes later."""
    _mix_lines(means, values, outputs, later_values, later_outputs, forget, gate)
    width, per_line = len(values), LINE_BYTES // values.itemsize
    for j in range(width - width % per_line, width):
        means[j] = forget * means[j] + gate * values[j]
        outputs[j] = means[j]
