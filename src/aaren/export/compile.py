"""Run a step through the C runtime: record, lower, and call it over payloads of states, without the GIL."""

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from aaren.export.assemble import assemble
from aaren.export.header import DEFINES, STRUCTS
from aaren.export.program import OK, Program
from aaren.export.record import LoweringError, Recording, record
from aaren.nn.blocks import Layout, Words, view_leaf
from aaren.ops.cpu import library
from aaren.ops.cpu.threads import run as run_on_threads

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
) -> "NativeStep":
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
    return NativeStep(first, Layout(state))


def _vary(tensor: Tensor, number: int) -> Tensor:
    """Return other numbers that a step may be given; integers and truths stay as they are."""
    if not tensor.is_floating_point():
        return tensor.clone()
    wave = torch.arange(1, tensor.numel() + 1, dtype=torch.float64).mul(1.0 + number).sin().view(tensor.shape)
    return (tensor.double() + 0.5 * (wave + 1.0)).to(tensor.dtype)


class NativeStep:
    """A step as a program; called over the states of any number of streams, from any thread."""

    def __init__(self, program: Program, layout: Layout) -> None:
        function, many = library.runtime_function("aaren_run"), library.runtime_function("aaren_run_many")
        if function is None or many is None:
            raise LoweringError(f"the native engine needs the compiled library: {library.describe()}.")
        assert layout.leaves == program.states
        self.program, self.layout = program, layout
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

    def buffers(self, count: int) -> "Buffers":
        """Return room for items, answers and what lies between, of some streams."""
        return Buffers(self, count)

    def run(self, words: Words, buffers: "Buffers") -> int:
        """Take in the items in the buffers, one of each stream; returns the first code that is not 0.

        Args:
            words: the states, changed where their item is taken in.
            buffers: the items; the code of every stream is in its `codes`.
        """
        code: int = self._function(self._address, _address_of(words), *buffers.first(0), buffers.count)
        return code

    def bound(self, words: Words, buffers: "Buffers") -> tuple[Callable[[], int], Callable[[int], int]]:
        """Return `run` of these, its arguments converted once, and the same for an item at an address."""
        first = [ctypes.c_void_p(address) for address in (self._address, _address_of(words))]
        others = buffers.first(0)
        rest = [*map(ctypes.c_void_p, others[1:]), ctypes.c_int64(buffers.count)]
        function, alive = self._function, (self, words, buffers)  # what the pointers point to

        def run_at(address: int, _alive: object = alive) -> int:
            return function(*first, address, *rest)

        call = functools.partial(function, *first, ctypes.c_void_p(others[0]), *rest)
        call.alive = alive  # type: ignore[attr-defined]
        return call, run_at

    def run_many(
        self,
        words: Words,
        buffers: "Buffers",
        *,
        first: int = 0,
        count: int | None = None,
        threads: int | None = None,
    ) -> int:
        """Take in items in the buffers, one of each of the first streams, spread over threads.

        Args:
            words: states.
            buffers: items.
            first: the item of the first stream.
            count: how many streams have one; default: all.
            threads: default: as many as torch's.
        """
        count = buffers.count if count is None else count
        num_threads = count_threads() if threads is None else threads
        program, item = self.program, buffers.first(first)
        if count <= FEW or num_threads == 1:
            code: int = self._function(self._address, _address_of(words), *item, count)
            return code
        pieces, room = -(-count // LANES), LANES * program.scratch_bytes
        inputs, outputs, _, codes = item
        scratch = torch.empty(num_threads * room + 64, dtype=torch.uint8)
        begin = scratch.data_ptr() + -scratch.data_ptr() % 64
        job = (0, self._address, _address_of(words), inputs, outputs, begin, codes, count, room)
        run_on_threads(self._many, job, num_pieces=pieces, num_threads=num_threads)
        wrong = np.flatnonzero(buffers.codes[first : first + count])
        return int(buffers.codes[first + wrong[0]]) if len(wrong) else OK


def _address_of(words: Words) -> int:
    """Return where contiguous states begin."""
    assert words.flags.c_contiguous
    return int(words.__array_interface__["data"][0])


class Buffers:
    """Room for the items and answers of some streams, seen as tensors without a copy."""

    def __init__(self, step: NativeStep, count: int) -> None:
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
