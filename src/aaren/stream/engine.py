"""The native engine of a session: programs of the C runtime by what is pushed, and one verb, `run`.

It takes payloads of states (`aaren.nn.blocks`) and items, writes the states of the streams whose items it
took in, and says which it refused. A program is made when the first item of a kind (with a mask, with marks)
comes, which shows its shape. What cannot be lowered, and the words of every refusal, are torch's.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aaren.export.compile import Buffers, NativeStep, compile_step
from aaren.export.record import LoweringError
from aaren.nn.blocks import Layout, Words
from aaren.nn.state import select

StateT = TypeVar("StateT", bound=tuple[object, ...])
Names = tuple[str, ...]
_FLOATS = (torch.float32, torch.float64)
_PLAIN = tuple(np.dtype(kind) for kind in (np.float64, np.float32, np.int64, np.int32, np.bool_))


class Request(NamedTuple):
    """Items, as a program takes them."""

    names: Names  # of the program: what is pushed beside an item
    values: Sequence[object]  # of its inputs, each (n, ...)


class Taken(NamedTuple):
    """What became of the items of a run."""

    answers: list[Tensor]  # the parts of the answers, each (n, ...); of refused items they mean nothing
    refused: list[int]  # the items that were refused, all of one turn, which was the last that was run
    num_turns: int  # that were run


class HasWeights(Protocol):
    """A model whose weights can be looked at."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Give the weights."""


class _OneStream(NamedTuple):
    """The shortest path of an item of one stream."""

    run: Callable[[], int]
    run_at: Callable[[int], int]  # the same with an item that lies elsewhere
    place: NDArray[np.generic]  # where an item goes
    answer: NDArray[np.generic]
    dtype: torch.dtype  # of an item
    shape: tuple[int, ...]
    flat: memoryview | None  # where a list goes


class NativeEngine:
    """Programs of one model.

    Args:
        model: whose weights they hold.
        fingerprint: names these weights.
        largest: the largest number that is let in.
        is_required: whether a step that cannot be lowered is an error.
    """

    def __init__(
        self, model: HasWeights, *, fingerprint: Callable[[], str], largest: float, is_required: bool
    ) -> None:
        self._name_weights, self._largest, self._is_required = fingerprint, largest, is_required
        self._programs: dict[Names, tuple[NativeStep, Buffers]] = {}
        self._one: _OneStream | None = None
        self.memory: Words | None = None  # of the state of one stream, at an address that programs know
        self.layout: Layout | None = None  # of the states that programs take
        self.fingerprint = ""  # of the weights that they hold
        self.obstacle = _obstacle(model)  # why it is torch that runs, "": it need not
        if self.obstacle and is_required:
            raise LoweringError(self.obstacle)

    def knows(self, names: Names) -> bool:
        """Tell whether there is a program of this name."""
        return names in self._programs

    def offer(
        self,
        step: Callable[..., tuple[Tensor, StateT]],
        item: Tensor,
        extras: Mapping[str, Tensor],
        state: StateT,
    ) -> bool:
        """Make a program for items like this one; False: there is none, or there was one before."""
        if not item.ndim or any(value.shape[:1] != item.shape[:1] for value in extras.values()):
            return False  # torch will say which shape it wants
        names = tuple(sorted(extras))

        def run(inputs: list[Tensor], held: StateT) -> tuple[list[Tensor], StateT]:
            output, new = step(inputs[0], held, **dict(zip(names, inputs[1:], strict=True)))
            return [output], new

        examples = [
            item[:1] if bool(item[:1].isfinite().all()) else torch.zeros_like(item[:1]),  # masked: anything
            *(torch.ones_like(extras[n][:1]) if n == "mask" else extras[n][:1] for n in names),
        ]
        return self.compile(names, run, examples, state)

    def compile(
        self,
        names: Names,
        run: Callable[[list[Tensor], StateT], tuple[list[Tensor], StateT]],
        examples: list[Tensor],
        state: StateT,
    ) -> bool:
        """Make a program, or keep the reason why there is none; False: none was made.

        Args:
            names: what is pushed beside an item.
            run: the step, from the inputs and a state to the parts of the answer and the new state.
            examples: of the inputs of one stream, (1, ...).
            state: of any streams.
        """
        if self.obstacle or names in self._programs or not len(examples[0]):
            return False
        fingerprint = self._name_weights()
        try:
            step = compile_step(run, examples, select(state, [0]), largest=self._largest)
        except LoweringError as error:
            if self._is_required:
                raise
            self.obstacle, self._one = str(error), None
            self._programs.clear()
            return False
        if fingerprint != self.fingerprint:  # the weights were changed since the other programs were made
            self._programs.clear()
            self.fingerprint = fingerprint
        if self.layout is None or self.layout.text != step.layout.text:
            self.layout, self.memory = step.layout, np.zeros((1, step.layout.nbytes // 8), np.uint64)
            self._programs.clear()
        self._programs[names] = step, step.buffers(1)
        self._bind()
        return True

    def pack(self, state: object) -> Words:
        """Return states as programs take them; of one stream in memory of this engine."""
        assert self.layout is not None
        return self.place(self.layout.pack(state))

    def place(self, words: Words) -> Words:
        """Return states where programs take them best."""
        if len(words) != 1 or self.memory is None:
            return words
        self.memory[...] = words
        return self.memory

    def run(
        self, words: Words, request: Request, sizes: Sequence[int], *, has_axis: bool = True
    ) -> Taken | None:
        """Take in items, turn by turn, until one is refused; None: they are for torch to look at.

        Args:
            words: the states of the streams; those of streams whose item was taken in are changed.
            request: the items: the first `sizes[0]` are of all streams, the next `sizes[1]` of the first
                `sizes[1]` streams, and so on.
            sizes: of the turns.
            has_axis: whether items have the axis of the streams.
        """
        count = sum(sizes)
        if not count or request.names not in self._programs:
            return None
        step, buffers = self._programs[request.names]
        if buffers.count != count:
            buffers = step.buffers(count)
            self._programs[request.names] = step, buffers
            self._bind()
        if words.shape[1] * 8 != step.layout.nbytes or not _fill(buffers, request.values, has_axis=has_axis):
            return None
        first = 0
        for number, size in enumerate(sizes):
            if step.run_many(words, buffers, first=first, count=size):
                refused = (first + np.flatnonzero(buffers.codes[first : first + size])).tolist()
                return Taken([output.clone() for output in buffers.outputs], refused, number + 1)
            first += size
        return Taken([output.clone() for output in buffers.outputs], [], len(sizes))

    def run_plain(self, words: Words, names: Names, numbers: Sequence[float]) -> list[Tensor] | None:
        """Take in an item of one stream, whose inputs are a number each; None: torch is to look at it."""
        program = self._programs.get(names)
        if program is None or program[1].count != 1:
            return None
        step, buffers = program
        try:
            for place, number in zip(buffers.input_arrays, numbers, strict=True):
                place[0] = number
        except OverflowError:
            return None
        return None if step.run(words, buffers) else [output.clone() for output in buffers.outputs]

    def run_one(self, item: object) -> Tensor | None:
        """Take in an item of the stream in `memory`, by the shortest path; None: torch is to look at it."""
        if self._one is None:
            return None
        run, run_at, place, answer, dtype, shape, flat = self._one
        if type(item) is list:
            try:
                flat[:] = array(flat.format, item)  # type: ignore[index, union-attr]  # None: TypeError
            except (TypeError, ValueError, OverflowError):  # not numbers, too large, or more or fewer
                return None
            return None if run() else torch.from_numpy(answer.copy())
        if isinstance(item, Tensor):
            if item.requires_grad or not item.is_cpu or item.is_neg() or item.dtype not in _FLOATS:
                return None
            if item.layout is not torch.strided:
                return None
            if item.dtype is dtype and item.shape == shape and item.is_contiguous():
                return None if run_at(item.data_ptr()) else torch.from_numpy(answer.copy())
            item = item.numpy()
        if not isinstance(item, np.ndarray) or item.dtype.kind != "f" or item.shape != shape:
            return None
        if item.dtype == place.dtype:
            place[...] = item
        else:
            with np.errstate(over="ignore"):  # what the type cannot hold is refused
                place[...] = item
        return None if run() else torch.from_numpy(answer.copy())

    def _bind(self) -> None:
        """Prepare the shortest path: one stream, items without extras."""
        program = self._programs.get(())
        self._one = None
        if program is None or program[1].count != 1 or self.memory is None:
            return
        step, buffers = program
        if len(buffers.input_arrays) == len(buffers.output_arrays) == 1:
            place = buffers.input_arrays[0][0, ...]
            self._one = _OneStream(
                *step.bound(self.memory, buffers),
                place,
                buffers.output_arrays[0][0, ...],
                buffers.inputs[0].dtype,
                place.shape,
                memoryview(place) if place.ndim == 1 and place.dtype.kind == "f" else None,  # type: ignore[arg-type]  # NumPy's
            )


def _fill(buffers: Buffers, values: Sequence[object], *, has_axis: bool) -> bool:
    """Put what came into the buffers; False: torch is to look at it."""
    for value, place in zip(values, buffers.inputs, strict=True):
        if not isinstance(value, Tensor):
            if not isinstance(value, np.ndarray):
                try:
                    value = np.asarray(value, dtype=None)
                except (TypeError, ValueError, OverflowError, RuntimeError):
                    return False
            if value.dtype not in _PLAIN:
                return False
            value = torch.from_numpy(value) if value.flags.writeable else torch.tensor(value)
        shape = value.shape if has_axis else (1, *value.shape)
        if shape != place.shape or (place.dtype == torch.bool) != (value.dtype == torch.bool):
            return False
        if value.is_complex() or value.requires_grad or not value.is_cpu or value.layout != torch.strided:
            return False
        place.copy_(value)
    return True


def _obstacle(model: HasWeights) -> str:
    """Say why a model must run on torch; "": perhaps it need not."""
    weights = list(model.parameters())
    if any(weight.device.type != "cpu" for weight in weights):
        return "the native engine runs on the CPU, and the model does not. Move it: model.cpu()."
    allowed = _FLOATS if getattr(model, "computes_in_float64", False) else (torch.float32,)
    if any(weight.dtype not in allowed for weight in weights if weight.is_floating_point()):
        return "the native engine has float32 weights, and the model has others. Convert it: model.float()."
    parts = model.modules() if isinstance(model, nn.Module) else ()
    if any(part._forward_hooks or part._forward_pre_hooks for part in parts):
        return "the model has forward hooks, which the native engine would leave out. Remove them."
    return ""
