"""One step of the scan over the width of a head, forward and backward, in explicit SIMD; for the kernels.

Left to itself, LLVM asks before every such short loop whether its arrays overlap, which costs as much as the
loop. And whoever writes to memory that is not in the cache waits for it to be read first. So rows are fetched
ahead of their time; or, where a result is too large for the caches anyway, written past them ("streamed"),
which spares the reading.

Importing this file imports Numba.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from aaren.ops.cpu.pages import LINE_BYTES

_INDEX, _DOUBLE = ir.IntType(64), ir.DoubleType()
_JIT = {"fastmath": {"contract"}, "error_model": "numpy"}


class _Lines:
    """Writes the code that works on whole cache lines of rows (d,) of numbers and of float64, one by one."""

    def __init__(self, target: Any, builder: ir.IRBuilder, number: types.Float) -> None:
        self.target, self.builder = target, builder
        self.lanes = LINE_BYTES * 8 // number.bitwidth
        self.numbers = ir.VectorType(target.get_value_type(number), self.lanes)
        self.doubles = ir.VectorType(_DOUBLE, self.lanes)

    @contextmanager
    def each(self, kinds: tuple[types.Array, ...], rows: tuple[ir.Value, ...]) -> Iterator[list[ir.Value]]:
        """Write a loop; yield where the line stands in each row."""
        arrays = [
            self.target.make_array(kind)(self.target, self.builder, row)
            for kind, row in zip(kinds, rows, strict=True)
        ]
        width = self.builder.extract_value(arrays[-1].shape, 0)
        with cgutils.for_range(self.builder, self.builder.udiv(width, _INDEX(self.lanes))) as loop:
            place = self.builder.mul(loop.index, _INDEX(self.lanes))
            yield [self.builder.gep(array.data, [place]) for array in arrays]

    def spread(self, factor: ir.Value) -> ir.Value:
        """Put a float64 into every lane."""
        nothing = ir.Constant(self.doubles, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        single = self.builder.insert_element(nothing, factor, _INDEX(0))
        return self.builder.shuffle_vector(single, nothing, everywhere)

    def load(self, place: ir.Value) -> ir.Value:
        """Read a line of numbers, or as many float64, as float64."""
        vector = self._vector(place)
        line = self.builder.load(self.builder.bitcast(place, vector.as_pointer()), align=_align(vector))
        return line if vector == self.doubles else self.builder.fpext(line, self.doubles)

    def store(self, line: ir.Value, place: ir.Value, *, is_streamed: bool = False) -> None:
        """Write float64 to a line of numbers, or to as many float64."""
        vector = self._vector(place)
        if vector != self.doubles:
            line = self.builder.fptrunc(line, vector)
        align = LINE_BYTES if is_streamed else _align(vector)
        store = self.builder.store(line, self.builder.bitcast(place, vector.as_pointer()), align=align)
        if is_streamed:
            store.set_metadata("nontemporal", self.builder.module.add_metadata([ir.IntType(32)(1)]))

    def fetch(self, place: ir.Value, distance: ir.Value, *, to_write: bool = False) -> None:
        """Ask for a line some numbers away, which need not exist."""
        flag, address = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [address, flag, flag, flag])
        prefetch = self.builder.module.declare_intrinsic("llvm.prefetch", [address], kind)
        there = self.builder.bitcast(self.builder.gep(place, [distance]), address)
        self.builder.call(prefetch, [there, flag(int(to_write)), flag(3), flag(1)])  # to the nearest cache

    def weigh(self, line: ir.Value, factors: ir.Value, added: ir.Value | None = None) -> ir.Value:
        """Return line * factors (+ added), in one instruction where there is one."""
        product = self.builder.fmul(line, factors, flags=["contract"])
        return product if added is None else self.builder.fadd(product, added, flags=["contract"])

    def total(self, line: ir.Value) -> ir.Value:
        """Return the sum over all lanes."""
        kind = ir.FunctionType(_DOUBLE, [_DOUBLE, self.doubles])
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f64"
        reduce = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(reduce, [ir.Constant(_DOUBLE, 0.0), line], fastmath=["reassoc"])

    def _vector(self, place: ir.Value) -> ir.VectorType:
        return self.doubles if place.type.pointee == _DOUBLE else self.numbers


def _align(vector: ir.VectorType) -> int:
    return 8 if vector.element == _DOUBLE else 4


def _mixing(*, is_streamed: bool) -> Callable[..., None]:
    """Return what sets means and outputs to forget * means + gate * values, by whole lines of values."""

    def mix(_context, means, values, outputs, ahead, forget, gate):  # type: ignore[no-untyped-def]  # numba's protocol
        def build(target, builder, signature, arguments):  # type: ignore[no-untyped-def]  # as above
            lines = _Lines(target, builder, values.dtype)
            distance, forgets, gates = arguments[3], *(lines.spread(factor) for factor in arguments[4:])
            with lines.each(signature.args[:3], arguments[:3]) as (mean_at, value_at, output_at):
                lines.fetch(value_at, distance)
                if not is_streamed:
                    lines.fetch(output_at, distance, to_write=True)
                added = lines.weigh(lines.load(value_at), gates)
                mean = lines.weigh(lines.load(mean_at), forgets, added)
                lines.store(mean, mean_at)
                lines.store(mean, output_at, is_streamed=is_streamed)
            return target.get_dummy_value()

        return types.void(means, values, outputs, ahead, forget, gate), build

    return intrinsic(mix)  # type: ignore[no-any-return]  # numba ships no types


def _carrying(*, is_streamed: bool) -> Callable[..., tuple[float, float]]:
    """Return what `carry_row` does by whole lines."""

    def carry(_context, carries, grads, outputs, values, grad_values, ahead, kept, gate):  # type: ignore[no-untyped-def]  # numba's protocol
        pair = types.UniTuple(types.float64, 2)

        def build(target, builder, signature, arguments):  # type: ignore[no-untyped-def]  # as above
            lines = _Lines(target, builder, values.dtype)
            distance, kepts, gates = arguments[5], *(lines.spread(factor) for factor in arguments[6:])
            nothing = lines.spread(ir.Constant(_DOUBLE, 0.0))
            along_output, along_value = (cgutils.alloca_once_value(builder, nothing) for _ in range(2))
            with lines.each(signature.args[:5], arguments[:5]) as (
                carry_at,
                grad_at,
                output_at,
                value_at,
                to,
            ):
                for place in (grad_at, output_at, value_at):
                    lines.fetch(place, distance)
                if not is_streamed:
                    lines.fetch(to, distance, to_write=True)
                grad = lines.load(grad_at)
                total = lines.weigh(lines.load(carry_at), kepts, grad)
                lines.store(total, carry_at)
                lines.store(lines.weigh(total, gates), to, is_streamed=is_streamed)
                for sums, left, right in (
                    (along_output, grad, output_at),
                    (along_value, total, value_at),
                ):
                    builder.store(lines.weigh(lines.load(right), left, builder.load(sums)), sums)
            sums = [lines.total(builder.load(sums)) for sums in (along_output, along_value)]
            return target.make_tuple(builder, pair, sums)

        return pair(carries, grads, outputs, values, grad_values, ahead, kept, gate), build

    return intrinsic(carry)  # type: ignore[no-any-return]  # numba ships no types


_mix, _mix_streamed = _mixing(is_streamed=False), _mixing(is_streamed=True)
_carry, _carry_streamed = _carrying(is_streamed=False), _carrying(is_streamed=True)


@intrinsic
def finish_streaming(_context):  # type: ignore[no-untyped-def]  # numba's protocol
    """Let other threads see what was written past the caches."""

    def build(target, builder, _signature, _arguments):  # type: ignore[no-untyped-def]  # as above
        builder.fence("seq_cst")
        return target.get_dummy_value()

    return types.void(), build


@njit(**_JIT)
def mix_row(means, values, outputs, ahead, forget, gate, is_streamed):  # type: ignore[no-untyped-def]  # numba infers
    """Set means (d,) and outputs (d,) to forget * means + gate * values (d,).

    Rows as many numbers ahead as said are fetched meanwhile. Only whole aligned lines may be streamed.
    """
    if is_streamed:
        _mix_streamed(means, values, outputs, ahead, forget, gate)
        return
    _mix(means, values, outputs, ahead, forget, gate)
    width, per_line = len(values), LINE_BYTES // values.itemsize
    for j in range(width - width % per_line, width):
        means[j] = forget * means[j] + gate * values[j]
        outputs[j] = means[j]


@njit(**_JIT)
def carry_row(carries, grads, outputs, values, grad_values, ahead, kept, gate, is_streamed):  # type: ignore[no-untyped-def]  # numba infers
    """Set carries (d,) to grads + kept * carries and grad_values to gate times that; as `mix_row` otherwise.

    Returns:
        grads · outputs, and the new carries · values.
    """
    if is_streamed:
        return _carry_streamed(carries, grads, outputs, values, grad_values, ahead, kept, gate)
    along_output, along_value = _carry(carries, grads, outputs, values, grad_values, ahead, kept, gate)
    width, per_line = len(values), LINE_BYTES // values.itemsize
    for j in range(width - width % per_line, width):
        grad = float(grads[j])
        carries[j] = grad + kept * carries[j]
        grad_values[j] = gate * carries[j]
        along_output += grad * outputs[j]
        along_value += carries[j] * values[j]
    return along_output, along_value
