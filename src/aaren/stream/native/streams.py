"""The streams of a session on the C runtime: programs for what is pushed, a slab of states, buffers.

A program is made when the first item of a kind (with a mask, with marks, ...) comes, which shows its shape.
What cannot be lowered stays with torch.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from aaren.errors import StateError
from aaren.nn.state import select
from aaren.stream.native.engine import Buffers, NativeStep, Slab, compile_step
from aaren.stream.native.program import BAD_STATE, Leaf
from aaren.stream.native.record import LoweringError

StateT = TypeVar("StateT", bound=tuple[object, ...])
_FLOATS = (torch.float32, torch.float64)


class _Short(NamedTuple):
    """The shortest way of one item through a program."""

    run: Callable[[], int]
    run_at: Callable[[int], int]  # the same with an item that lies elsewhere
    slab: Slab  # the states that it changes
    place: NDArray[np.generic]  # where an item goes
    answer: NDArray[np.generic]
    dtype: torch.dtype  # of an item
    shape: tuple[int, ...]
    flat: memoryview | None  # where a list goes


class HasWeights(Protocol):
    """A model whose weights can be looked at."""

    def fingerprint(self) -> str:
        """Return a short name of the weights."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Give the weights."""


class NativeStreams(Generic[StateT]):
    """What a session holds instead of a state while the C runtime does its work."""

    def __init__(self, model: HasWeights, *, largest: float, is_required: bool) -> None:
        self.is_required = is_required
        self._model, self._largest = model, largest
        self.fingerprint = ""  # of the weights that the programs hold
        self._steps: dict[tuple[str, ...], tuple[NativeStep[StateT], Buffers]] = {}  # by what is pushed
        self._slab: Slab | None = None
        self._step: NativeStep[StateT] | None = None
        self._buffers: Buffers | None = None
        self._lent_by: Sequence[Leaf] | None = None  # the layout of states that others lend
        self._lender: NativeStep[StateT] | None = None  # a program that knows it
        self._before = np.zeros(0, np.uint8)  # states as they were
        self._short: _Short | None = None
        self.reason = _obstacle(model)  # why it is torch that runs, "": it need not
        if self.reason and is_required:
            raise LoweringError(self.reason)

    @property
    def is_usable(self) -> bool:
        """Tell whether there is, or may yet be, a program."""
        return not self.reason

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
        return self.compile(names, run, examples, state, count=len(item))

    def compile(
        self,
        names: tuple[str, ...],
        run: Callable[[list[Tensor], StateT], tuple[list[Tensor], StateT]],
        examples: list[Tensor],
        state: StateT,
        *,
        count: int,
    ) -> bool:
        """Make a program, or keep the reason why there is none; False: none was made."""
        if self.reason or not count or names in self._steps:
            return False
        held = [leaf for leaf in pytree.tree_leaves(state) if isinstance(leaf, Tensor)]
        if any(len(leaf) != count for leaf in held):  # a state of more or fewer streams: torch will say so
            return False
        try:
            made: NativeStep[StateT] = compile_step(run, examples, select(state, [0]), largest=self._largest)
        except LoweringError as error:
            if self.is_required:
                raise
            self.reason = str(error)
            return False
        fingerprint = self._model.fingerprint()
        if fingerprint != self.fingerprint:  # the weights were changed since the other programs were made
            self._steps.clear()
            self._short = None
            self.fingerprint = fingerprint
        self._steps[names] = (made, made.buffers(count))
        if self._slab is None:
            self._slab = made.slab(count)
        self._shorten()
        return True

    def holds(self, names: tuple[str, ...], count: int) -> bool:
        """Tell whether there is a program for items with these extras, in their order, and take it up."""
        found = self._steps.get(names)
        if found is None:
            return False
        self._step, self._buffers = found
        if self._buffers.count != count:
            if not count:
                return False
            self._buffers = self._step.buffers(count)
            self._steps[names] = (self._step, self._buffers)
        return True

    def lend(self, block: Tensor, layout: Sequence[Leaf]) -> bool:
        """Take over states as they lie in memory, (b, bytes), to be changed there; False: no program can.

        Args:
            block: contiguous bytes of the CPU.
            layout: what lies in them.
        """
        if self._lent_by is not layout:  # compared once
            held = (step for step, _ in self._steps.values())
            self._lender = next((step for step in held if step.program.states == layout), None)
            self._lent_by = None if self._lender is None else layout
        if self._lender is None or block.shape[1] != self._lender.program.state_bytes:
            return False
        self._step, self._slab = self._lender, Slab(layout, block, is_lent=True)
        return True

    def pack(self, state: StateT) -> bool:
        """Take over a state; False: it is not of the kind that the program was made for."""
        assert self._step is not None
        size = (self.buffers.count, self._step.program.state_bytes)
        if self._slab is None or self._slab.memory.shape != size or self._slab.is_lent:
            self._slab = self._step.slab(size[0])
            self._shorten()
        try:
            self._step.pack(state, self._slab)
        except (StateError, ValueError, AttributeError):
            return False
        return True

    @property
    def buffers(self) -> Buffers:
        """Where the items of the program in use are put."""
        assert self._buffers is not None
        return self._buffers

    @property
    def held(self) -> list[NDArray[np.generic]]:
        """Return the parts of the state as they stand, without a copy."""
        assert self._slab is not None
        return self._slab.arrays

    def has_slab(self, count: int) -> bool:
        """Tell whether the state of so many streams can lie here."""
        slab = self._slab
        return self._step is not None and slab is not None and len(slab.memory) == count and not slab.is_lent

    def unpack(self) -> StateT:
        """Return the state, in its own memory."""
        assert self._step is not None
        assert self._slab is not None
        return self._step.unpack(self._slab)

    def fill(self, values: Sequence[object], *, has_axis: bool) -> bool:
        """Put what came, the item and its extras, into the buffers; False: torch is to look at it."""
        assert self._buffers is not None
        for value, place in zip(values, self._buffers.inputs, strict=True):
            if not isinstance(value, Tensor):
                if not isinstance(value, np.ndarray):
                    try:
                        value = np.asarray(value, dtype=None)
                    except (TypeError, ValueError, OverflowError):
                        return False
                if value.dtype not in _PLAIN:
                    return False
                value = torch.from_numpy(value) if value.flags.writeable else torch.tensor(value)
            shape = value.shape if has_axis else (1, *value.shape)
            if shape != place.shape or (place.dtype == torch.bool) != (value.dtype == torch.bool):
                return False
            if value.is_complex() or value.requires_grad or value.device.type != "cpu":
                return False
            place.copy_(value)
        return True

    def push_one(self, item: object) -> Tensor | None:
        """Take in one item of one stream by the shortest way; None: there is more to look at."""
        if self._short is None:
            return None
        run, run_at, slab, place, answer, dtype, shape, flat = self._short
        if slab is not self._slab:
            return None
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

    def _shorten(self) -> None:
        """Prepare the shortest way: one stream, items without extras."""
        found = self._steps.get(())
        if found is None or found[1].count != 1 or self._slab is None or self._slab.is_lent:
            return
        step, buffers = found
        if self._slab.memory.shape != (1, step.program.state_bytes):
            return
        if len(buffers.input_arrays) == len(buffers.output_arrays) == 1:
            place = buffers.input_arrays[0][0, ...]
            self._short = _Short(
                *step.bound(self._slab, buffers),
                self._slab,
                place,
                buffers.output_arrays[0][0, ...],
                buffers.inputs[0].dtype,
                place.shape,
                memoryview(place) if place.ndim == 1 and place.dtype.kind == "f" else None,  # type: ignore[arg-type]  # NumPy's
            )

    def run(self) -> int:
        """Take in what is in the buffers; not 0: the states stay as they were."""
        assert self._step is not None
        assert self._slab is not None
        assert self._buffers is not None
        if len(self._slab.memory) != self._buffers.count:
            return BAD_STATE
        if self._buffers.count == 1:
            return self._step.run(self._slab, self._buffers)
        return self.run_turns([self._buffers.count])

    def run_turns(self, sizes: Sequence[int]) -> int:
        """Take in what is in the buffers, turn by turn; not 0: the states stay as they were.

        Args:
            sizes: of the turns; a turn has one item of each of the first streams.
        """
        assert self._step is not None
        assert self._slab is not None
        # All or nothing, as with torch: one stream's bad item leaves all of them as they were.
        states = self._slab.memory.view(-1).numpy()
        if len(self._before) < len(states):
            self._before = np.empty(len(states), np.uint8)
        np.copyto(self._before[: len(states)], states)
        first = 0
        for size in sizes:
            code = self._step.run_many(self._slab, self.buffers, first=first, count=size)
            if code:
                np.copyto(states, self._before[: len(states)])
                return code
            first += size
        return 0

    def output(self) -> Tensor:
        """Return the answers, (b, ...), in their own memory."""
        return cast("Buffers", self._buffers).outputs[0].clone()

    def outputs(self) -> list[Tensor]:
        """Return all parts of the answers, (b, ...), in their own memory."""
        return [output.clone() for output in cast("Buffers", self._buffers).outputs]


_PLAIN = (
    np.dtype(np.float64),
    np.dtype(np.float32),
    np.dtype(np.int64),
    np.dtype(np.int32),
    np.dtype(np.bool_),
)


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
