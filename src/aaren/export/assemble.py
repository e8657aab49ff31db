"""Assemble a program of the C runtime: simplify lowered operations, place all that they read and write."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aaren.export.lower import Lowering
from aaren.export.program import (
    ALIGNMENT,
    CODES,
    INPUT,
    KINDS,
    NONE,
    OP,
    SCRATCH,
    STATE,
    TYPES,
    WEIGHTS,
    Op,
    Program,
    contiguous_strides,
)
from aaren.export.record import LoweringError, Recording, Ref
from aaren.nn.blocks import Leaf

FUSED = ("gelu", "relu", "silu", "sigmoid", "tanh")  # that a linear layer may end with
NEW_STATE, ANSWER = -1, -2  # storages of results that have to be copied to their place


def assemble(recording: Recording, *, largest: float, weights: str = "float32") -> Program:
    """Turn a recording into a program.

    Args:
        recording: of a step of one stream.
        largest: numbers beyond it are refused at the door.
        weights: "float32", or "int8" with a scale per row.
    """
    lowering = Lowering(recording, is_int8=weights == "int8")
    lowering.lower_nodes()
    return _Placement(lowering, largest).program()


def simplify(ops: list[Op], results: set[int]) -> list[Op]:
    """Write casts away around scans, let linear layers do what follows them, drop what nobody reads.

    Args:
        ops: in their order; they are changed.
        results: storages that are read afterwards.
    """
    simpler = _Simplification(ops, results)
    simpler.drop_casts_before_scans()
    simpler.drop_casts_after_scans()
    simpler.activate_in_linears()
    simpler.add_in_linears()
    return simpler.needed()


class _Simplification:
    """Operations, and which of them read and write each storage."""

    def __init__(self, ops: list[Op], results: set[int]) -> None:
        self.ops, self.results = ops, results
        self.readers: dict[int, list[Op]] = {}
        self.writers: dict[int, list[Op]] = {}
        for op in ops:
            for ref in [*op.operands[op.num_written :], op.mask]:
                if ref is not None:
                    self.readers.setdefault(ref.storage, []).append(op)
            for ref in op.operands[: op.num_written]:
                if ref is not None:
                    self.writers.setdefault(ref.storage, []).append(op)

    def drop_casts_before_scans(self) -> None:
        """Let scans read float32 scores and values themselves."""
        for op in self.ops:
            if op.kind == "scan":
                for place in (3, 4):  # scores and values
                    found = self._cast_of(op.first(5)[place])
                    if found is not None:
                        op.operands[place] = found

    def drop_casts_after_scans(self) -> None:
        """Let scans write float32 outputs where nothing else is done with the float64 ones."""
        for op in [op for op in self.ops if op.kind == "scan"]:
            output = op.first(2)[1]
            uses = self.readers.get(output.storage, [])
            if len(uses) != 1 or output.storage in self.results or not _is(uses[0], "copy"):
                continue
            copied, source = uses[0].first(2)
            if (
                copied.dtype == torch.float32
                and _are_alike(copied, source)
                and copied.numel == output.numel
                and len(self.writers[copied.storage]) == 1
            ):
                op.operands[1] = copied
                self.ops.remove(uses[0])

    def activate_in_linears(self) -> None:
        """Let linear layers apply the activation that follows."""
        for op in [op for op in self.ops if _is(op, *FUSED)]:
            out, source = op.first(2)
            linear = self._made_by_linear(source, out)
            if linear is not None:
                linear.operands[0], linear.code = out, op.code
                self.ops.remove(op)

    def add_in_linears(self) -> None:
        """Let linear layers add what is known before them, such as the residual stream."""
        for op in [op for op in self.ops if _is(op, "add")]:
            out, *terms = op.first(3)
            for source, other in (terms, terms[::-1]):
                linear = self._made_by_linear(source, out)
                if linear is None or linear.operands[4:] != [None] or source.shape != other.shape:
                    continue
                is_known = all(
                    self.ops.index(writer) < self.ops.index(linear)
                    for writer in self.writers.get(other.storage, [])
                )
                if is_known and other.is_contiguous and other.dtype == torch.float32:
                    linear.operands[0] = out
                    linear.operands.append(other)
                    self.ops.remove(op)
                    self.writers[out.storage] = [linear]
                    break

    def needed(self) -> list[Op]:
        """Return the operations without those whose results nobody reads."""
        kept: list[Op] = []
        needed = set(self.results)
        for op in reversed(self.ops):
            written = [ref.storage for ref in op.operands[: op.num_written] if ref is not None]
            if not op.num_written or not needed.isdisjoint(written):
                kept.append(op)
                needed.update(ref.storage for ref in [*op.operands, op.mask] if ref is not None)
        return kept[::-1]

    def _cast_of(self, ref: Ref) -> Ref | None:
        """Return the float32 numbers that these are the float64 copy of."""
        made = self.writers.get(ref.storage, [])
        if len(made) != 1 or not _is(made[0], "copy"):
            return None
        to, source = made[0].first(2)
        if source.dtype != torch.float32 or to.offset or not _are_alike(to, source):
            return None
        return ref._replace(storage=source.storage, offset=source.offset + ref.offset, dtype=source.dtype)

    def _made_by_linear(self, source: Ref, out: Ref) -> Op | None:
        """Return the linear layer that made what one operation alone reads, and may make its results."""
        made = self.writers.get(source.storage, [])
        if len(made) != 1 or made[0].kind != "linear" or made[0].code != CODES.index("copy"):
            return None
        if source.storage in self.results or out.dtype != torch.float32:
            return None
        is_free = len(self.readers[source.storage]) == len(self.writers[out.storage]) == 1
        is_whole = made[0].first(1)[0].numel == source.numel
        return made[0] if is_free and is_whole and _are_alike(out, source) else None


def _is(op: Op, *codes: str) -> bool:
    return op.kind == "elementwise" and CODES[op.code] in codes


def _are_alike(one: Ref, other: Ref) -> bool:
    return one.is_contiguous and other.is_contiguous and one.numel == other.numel


class _Placement:
    """Where operands lie: given numbers, weights, results, and what is computed in between."""

    def __init__(self, lowering: Lowering, largest: float) -> None:
        self.lowering, self.recording, self.largest = lowering, lowering.recording, largest
        self.states, self.state_bytes = _leaves(self.recording.states)
        self.inputs, self.input_bytes = _leaves(self.recording.inputs)
        self.outputs, self.output_bytes = _leaves(self.recording.outputs)
        self.output_at = _align(self.state_bytes, ALIGNMENT)  # after the new state
        self.blob = bytearray()
        self.constants: dict[object, int] = {}  # offset in the weights
        self.given = {  # storages of what comes from outside: block and offset
            ref.storage: (block, leaf.offset)
            for block, refs, leaves in (
                (STATE, self.recording.states, self.states),
                (INPUT, self.recording.inputs, self.inputs),
            )
            for ref, leaf in zip(refs, leaves, strict=True)
        }

    def program(self) -> Program:
        """Give every operand an address, and write the table."""
        recording = self.recording
        results = {ref.storage for ref in [*recording.new_states, *recording.outputs]} | {NEW_STATE, ANSWER}
        scratch = {NEW_STATE: 0, ANSWER: self.output_at}
        self.place_results(scratch, NEW_STATE, recording.new_states, self.states)
        self.place_results(scratch, ANSWER, recording.outputs, self.outputs)
        ops = simplify(self.lowering.ops, results)
        scratch_bytes = self.allocate(ops, scratch, results)
        return Program(
            ops=self.table(ops, scratch),
            weights=bytes(self.blob),
            inputs=self.inputs,
            outputs=self.outputs,
            states=self.states,
            input_bytes=self.input_bytes,
            output_bytes=self.output_bytes,
            state_bytes=self.state_bytes,
            scratch_bytes=scratch_bytes,
            output_at=self.output_at,
            largest=self.largest,
        )

    def place_results(
        self, scratch: dict[int, int], whole: int, refs: Sequence[Ref], leaves: Sequence[Leaf]
    ) -> None:
        """Have results computed where they are expected, in a block called `whole`, or copied there."""
        base = scratch[whole]
        for ref, leaf in zip(refs, leaves, strict=True):
            if ref.dtype != leaf.dtype:
                raise LoweringError(
                    f"a part of the state comes in as {leaf.dtype} and goes out as {ref.dtype}: a "
                    f"program needs one type."
                )
            wanted = base + leaf.offset - ref.offset * ref.dtype.itemsize
            is_made = ref.storage in self.recording.produced and ref.storage not in self.given
            is_free = is_made and scratch.get(ref.storage, wanted) == wanted >= base
            if is_free and ref.is_contiguous and self.fits(ref, refs):
                scratch[ref.storage] = wanted
                continue
            start, strides = leaf.offset // leaf.dtype.itemsize, contiguous_strides(ref.shape)
            self.lowering.elementwise("copy", Ref(whole, start, ref.shape, strides, ref.dtype), [ref])

    def fits(self, ref: Ref, refs: Sequence[Ref]) -> bool:
        """Tell whether a whole storage may lie in the place of a result: it must have no more numbers."""
        recording = self.recording
        held = sum(other.numel for other in {other for other in refs if other.storage == ref.storage})
        both = [*recording.new_states, *recording.outputs]
        if sum(other.storage == ref.storage for other in both) != sum(o.storage == ref.storage for o in refs):
            return False
        tensor = recording.tensors[ref.storage]
        return held * tensor.element_size() == tensor.untyped_storage().nbytes()

    def allocate(self, ops: list[Op], scratch: dict[int, int], results: set[int]) -> int:
        """Place what is computed in the scratch block; what is not needed any more is written over."""
        last: dict[int, int] = {}
        sizes: dict[int, int] = {}
        for number, op in enumerate(ops):
            for ref in [*op.operands, op.mask]:
                if ref is None or ref.storage in self.given or self.lowering.is_constant(ref):
                    continue
                last[ref.storage] = number
                needed = (ref.offset + _span(ref.shape, ref.strides)) * ref.dtype.itemsize
                sizes[ref.storage] = max(sizes.get(ref.storage, 0), needed)
        top = end = self.output_at + _align(self.output_bytes, ALIGNMENT)
        live: list[tuple[int, int, int]] = []  # start, end, storage
        for number, op in enumerate(ops):
            live = [part for part in live if part[2] in results or last[part[2]] >= number]
            for ref in op.operands[: op.num_written]:
                if ref is None or ref.storage in scratch:
                    continue
                size, start = _align(sizes[ref.storage], ALIGNMENT), top
                for taken, until, _ in sorted(live):
                    if start + size <= taken:
                        break
                    start = max(start, until)
                scratch[ref.storage] = start
                live.append((start, start + size, ref.storage))
                end = max(end, start + size)
        return _align(end, 64) | 64  # odd in cache lines: blocks of streams do not share sets of the cache

    def table(self, ops: list[Op], scratch: dict[int, int]) -> NDArray[Any]:
        """Write the operations as the runtime reads them."""

        def address(ref: Ref | None) -> int:
            if ref is None:
                return NONE
            if self.lowering.is_constant(ref):
                return self.weight_address(ref) * 4 + WEIGHTS
            block, start = self.given.get(ref.storage) or (SCRATCH, scratch[ref.storage])
            return (start + ref.offset * ref.dtype.itemsize) * 4 + block

        table = np.zeros(len(ops), OP)
        for row, op in zip(table, ops, strict=True):
            row["kind"], row["code"] = KINDS.index(op.kind), op.code
            row["at"] = NONE
            for place, operand in enumerate(op.operands):
                row["at"][place] = address(operand)
                row["type"][place] = 0 if operand is None else TYPES[operand.dtype]
            row["size"] = op.size
            for place, stride in enumerate(op.strides):
                row["stride"][place] = stride
            row["number"] = op.numbers
            if op.mask is not None:
                row["size"][3] = np.uint32(address(op.mask)).astype(np.int32)
        return table

    def weight_address(self, ref: Ref) -> int:
        """Return the offset of a constant in the weights, put there once."""
        shape = tuple(1 if stride == 0 else size for size, stride in zip(ref.shape, ref.strides, strict=True))
        seen = (ref.storage, ref.offset, shape, ref.strides)
        if seen in self.constants:
            return self.constants[seen]
        value = self.lowering.value(ref._replace(shape=shape))
        if value.dtype not in TYPES:
            raise self.lowering.unsupported(f"{value.dtype} numbers")
        # Strided as it is used: what lies between is left where it is, so that strides stay true.
        whole = value
        if value.numel():
            span = Ref(ref.storage, ref.offset, (_span(shape, ref.strides),), (1,), ref.dtype)
            whole = self.lowering.value(span)
        content = whole.contiguous().cpu().numpy().tobytes()
        key = (content, value.dtype)
        if key not in self.constants:
            self.blob.extend(b"\0" * (_align(len(self.blob), ALIGNMENT) - len(self.blob)))
            self.constants[key] = len(self.blob)
            self.blob.extend(content)
        self.constants[seen] = self.constants[key]
        return self.constants[key]


def _leaves(refs: list[Ref]) -> tuple[list[Leaf], int]:
    """Lay tensors of one stream end to end."""
    leaves, offset = [], 0
    for ref in refs:
        offset = _align(offset, ref.dtype.itemsize)
        leaves.append(Leaf(offset, ref.shape[1:], ref.dtype))
        offset += ref.numel * ref.dtype.itemsize
    return leaves, _align(offset, 8)


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many numbers lie between the first and the last of a tensor, both included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _align(offset: int, to: int) -> int:
    return -(-offset // to) * to
