"""Run a step through the C runtime: record, lower, and call it over a slab of states, without the GIL.

A slab holds the flat states of streams end to end; its leaves are seen as torch tensors without a copy, so
states pass to and from torch at any moment.
"""

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Generic, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from aaren.errors import StateError
from aaren.ops.cpu import library
from aaren.ops.cpu.threads import run as run_on_threads
from aaren.stream.native.assemble import assemble
from aaren.stream.native.header import DEFINES, STRUCTS
from aaren.stream.native.program import OK, Leaf, Program
from aaren.stream.native.record import LoweringError, Recording, record

LANES = DEFINES["AAREN_MANY_LANES"]
FEW = 48  # streams: to wake another thread takes as long as to step them
StateT = TypeVar("StateT", bound=tuple[object, ...])
# From the inputs, in leaves, and a state to the outputs, in leaves, and the state after them.
Step = Callable[[list[Tensor], StateT], tuple[list[Tensor], StateT]]


def compile_step(
    step: Step[StateT],
    inputs: Sequence[Tensor],
    state: StateT,
    *,
    largest: float,
    weights: str = "float32",
) -> "NativeStep[StateT]":
    """Record a step twice, with other numbers, and lower it.

    Args:
        step: what is to run without torch.
        inputs: of one stream, with its axis; as an example of shapes, types and usual numbers.
        state: of one stream, before the first item.
        largest: the largest number that is let in.
        weights: "float32" or "int8".
    """
    leaves, spec = pytree.tree_flatten(state)
    if not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise LoweringError(
            "the state holds more than tensors, or grows, as a Transformer's cache does: only a state of "
            "constant size can be run without torch. Use engine='torch'."
        )

    def run(given: list[Tensor], held: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        outputs, new = step(given, pytree.tree_unflatten(held, spec))
        found = pytree.tree_leaves(new)
        for old, part in zip(held, found, strict=True):
            if old.shape != part.shape:
                raise LoweringError(
                    f"the state grows, from {tuple(old.shape)} to {tuple(part.shape)}, as a Transformer's "
                    f"cache does: only a state of constant size can be run without torch. Use engine='torch'."
                )
        return outputs, found

    recordings: list[Recording] = []
    held = [leaf.detach().cpu() for leaf in leaves]
    for number in range(2):
        given = [_vary(tensor, number) for tensor in inputs]
        recordings.append(record(run, given, held))
        with torch.no_grad():
            _, held = run(given, held)
    programs = [assemble(recording, largest=largest, weights=weights) for recording in recordings]
    first, second = programs
    if first.ops.tobytes() != second.ops.tobytes() or first.weights != second.weights:
        raise LoweringError(
            "what the step computes depends on its numbers in Python (a branch, a list or an array made of a "
            "tensor): what runs without Python must do the same for all of them."
        )
    return NativeStep(first, spec)


def _vary(tensor: Tensor, number: int) -> Tensor:
    """Return other numbers that a step may be given; integers and truths stay as they are."""
    if not tensor.is_floating_point():
        return tensor.clone()
    wave = torch.arange(1, tensor.numel() + 1, dtype=torch.float64).mul(1.0 + number).sin().view(tensor.shape)
    return (tensor.double() + 0.5 * (wave + 1.0)).to(tensor.dtype)


class Slab:
    """Flat states of some streams, end to end: (n, bytes)."""

    def __init__(self, leaves: Sequence[Leaf], memory: Tensor, *, is_lent: bool = False) -> None:
        self.memory = memory
        self.is_lent = is_lent  # the memory is somebody else's
        self.address = memory.data_ptr()
        self._leaves = leaves

    @cached_property
    def leaves(self) -> list[Tensor]:
        """The parts of the states, each (n, *shape)."""
        return [view_leaf(self.memory, leaf) for leaf in self._leaves]

    @cached_property
    def arrays(self) -> list[NDArray[np.generic]]:
        """The same, for NumPy."""
        return [leaf.numpy() for leaf in self.leaves]


def view_leaf(memory: Tensor, leaf: Leaf) -> Tensor:
    """Return a part of flat blocks (n, bytes), (n, *shape), without a copy."""
    count, size = memory.shape
    if not leaf.count:
        return torch.zeros(count, *leaf.shape, dtype=leaf.dtype)
    bytes_ = leaf.count * leaf.dtype.itemsize
    whole = memory[:, leaf.offset : leaf.offset + bytes_]
    assert size % leaf.dtype.itemsize == 0
    return whole.view(leaf.dtype).view(count, *leaf.shape) if leaf.shape else whole.view(leaf.dtype)[:, 0]


class NativeStep(Generic[StateT]):
    """A step as a program; called over slabs of any number of streams, from any thread."""

    def __init__(self, program: Program, spec: pytree.TreeSpec) -> None:
        function, many = library.runtime_function("aaren_run"), library.runtime_function("aaren_run_many")
        if function is None or many is None:
            raise LoweringError(f"the native engine needs the compiled library: {library.describe()}.")
        self.program = program
        self._spec = spec
        self._function = function
        self._function.restype = ctypes.c_int  # type: ignore[attr-defined]  # a function of ctypes
        self._function.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_int64]  # type: ignore[attr-defined]
        self._many = cast("library.Kernel", many)
        self._many.restype, self._many.argtypes = None, [ctypes.c_void_p]  # type: ignore[attr-defined]
        # What the struct points to, kept alive; weights start where a vector may be loaded.
        padded = np.zeros(len(program.weights) + 64, np.uint8)
        start = -padded.ctypes.data % 64
        self._weights = padded[start : start + len(program.weights)]
        self._weights[:] = np.frombuffer(program.weights, np.uint8)
        self._ops = program.ops
        self._inputs, self._outputs = program.input_fields(), program.output_fields()
        self._struct = np.zeros(1, STRUCTS["aaren_program"])
        for name, array in (
            ("ops", self._ops),
            ("inputs", self._inputs),
            ("outputs", self._outputs),
            ("weights", self._weights),
        ):
            self._struct[name] = array.ctypes.data
        for name in ("ops", "inputs", "outputs"):
            self._struct[f"num_{name}"] = len(getattr(self, f"_{name}"))
        for name in ("state_bytes", "input_bytes", "output_bytes", "scratch_bytes", "output_at"):
            self._struct[name] = getattr(program, name)
        self._address = self._struct.ctypes.data

    def slab(self, count: int) -> Slab:
        """Return room for the states of some streams."""
        return Slab(self.program.states, torch.zeros(count, self.program.state_bytes, dtype=torch.uint8))

    def pack(self, state: StateT, slab: Slab) -> None:
        """Copy a state into a slab."""
        leaves = pytree.tree_leaves(state)
        for leaf, place in zip(leaves, slab.leaves, strict=True):
            if leaf.shape != place.shape or leaf.dtype != place.dtype:
                raise StateError(
                    f"a part of the state must be {tuple(place.shape)} {place.dtype}; got "
                    f"{tuple(leaf.shape)} {leaf.dtype}."
                )
            place.copy_(leaf)

    def unpack(self, slab: Slab) -> StateT:
        """Return the state in a slab, in its own memory."""
        state: StateT = pytree.tree_unflatten([leaf.clone() for leaf in slab.leaves], self._spec)
        return state

    def buffers(self, count: int) -> "Buffers":
        """Return room for items, answers and what lies between, of some streams."""
        return Buffers(self, count)

    def run(self, slab: Slab, buffers: "Buffers") -> int:
        """Take in the items in the buffers, one of each stream."""
        code: int = self._function(
            self._address,
            slab.address,
            buffers.input_address,
            buffers.output_address,
            buffers.scratch_address,
            buffers.code_address,
            buffers.count,
        )
        return code

    def bound(self, slab: Slab, buffers: "Buffers") -> tuple[Callable[[], int], Callable[[int], int]]:
        """Return `run` of these, its arguments converted once, and the same for an item at an address."""
        first = [ctypes.c_void_p(address) for address in (self._address, slab.address)]
        others = (buffers.output_address, buffers.scratch_address, buffers.code_address)
        rest = [*map(ctypes.c_void_p, others), ctypes.c_int64(buffers.count)]
        function, alive = self._function, (self, slab, buffers)  # what the pointers point to

        def run_at(address: int, _alive: object = alive) -> int:
            return function(*first, address, *rest)

        call = functools.partial(function, *first, ctypes.c_void_p(buffers.input_address), *rest)
        call.alive = alive  # type: ignore[attr-defined]
        return call, run_at

    def run_many(
        self,
        slab: Slab,
        buffers: "Buffers",
        *,
        first: int = 0,
        count: int | None = None,
        threads: int | None = None,
    ) -> int:
        """Take in items in the buffers, one of each of the first streams, spread over threads.

        Args:
            slab: states.
            buffers: items.
            first: the item of the first stream.
            count: how many streams have one; default: all.
            threads: default: as many as torch's.
        """
        count = buffers.count if count is None else count
        num_threads = count_threads() if threads is None else threads
        program, item = self.program, buffers.first(first)
        if count <= FEW or num_threads == 1:
            code: int = self._function(self._address, slab.address, *item, count)
            return code
        pieces, room = -(-count // LANES), LANES * program.scratch_bytes
        inputs, outputs, _, codes = item
        scratch = torch.empty(num_threads * room + 64, dtype=torch.uint8)
        begin = scratch.data_ptr() + -scratch.data_ptr() % 64
        job = (0, self._address, slab.address, inputs, outputs, begin, codes, count, room)
        run_on_threads(self._many, job, num_pieces=pieces, num_threads=num_threads)
        wrong = np.flatnonzero(buffers.codes[first : first + count])
        return int(buffers.codes[first + wrong[0]]) if len(wrong) else OK


class Buffers:
    """Room for the items and answers of some streams, seen as tensors without a copy."""

    def __init__(self, step: NativeStep[StateT], count: int) -> None:
        program = step.program
        self.count = count
        self._input = torch.zeros(count, max(8, program.input_bytes), dtype=torch.uint8)
        self._output = torch.zeros(count, max(8, program.output_bytes), dtype=torch.uint8)
        self.codes = np.zeros(count, np.int32)
        self._scratch = np.zeros(min(count, LANES) * program.scratch_bytes + 64, np.uint8)
        self.inputs = [view_leaf(self._input, leaf) for leaf in program.inputs]
        self.outputs = [view_leaf(self._output, leaf) for leaf in program.outputs]
        self.input_arrays = [tensor.numpy() for tensor in self.inputs]
        self.output_arrays = [tensor.numpy() for tensor in self.outputs]
        self.input_address, self.output_address = self._input.data_ptr(), self._output.data_ptr()
        self.scratch_address = self._scratch.ctypes.data + -self._scratch.ctypes.data % 64
        self.code_address = self.codes.ctypes.data
        self._sizes = program.input_bytes, program.output_bytes

    def first(self, item: int) -> tuple[int, int, int, int]:
        """Return the addresses from an item on: of items, answers, what lies between, and codes."""
        input_bytes, output_bytes = self._sizes
        return (
            self.input_address + item * input_bytes,
            self.output_address + item * output_bytes,
            self.scratch_address,
            self.code_address + item * 4,
        )


def count_threads() -> int:
    """Return how many threads a call over many streams uses: torch's, or fewer where there are fewer CPUs."""
    return max(1, min(torch.get_num_threads(), os.cpu_count() or 1))
