"""Record a model's step: every operation on tensors that it performs, with one stream's real numbers.

Views cost nothing: a tensor is a place in a storage, with a shape and strides. What depends on neither item
nor state is a constant, whatever computed it. A step that looks at its numbers in Python is refused, and so
is one whose recording differs with other numbers (`compile_step` compares two).
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from aaren.errors import AarenError
from aaren.ops.state import ScanState, step
from aaren.ops.tracing import RECORDER

SCAN = "aaren.scan_step"
REQUIRE = "aaren.require"
# Their result does not depend on the numbers in the tensor that they are given.
FACTORIES = ("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full")
IN_PLACE = ("add_", "sub_", "mul_", "div_", "sigmoid_", "tanh_", "exp_", "neg_", "relu_")
OURS_NOT = ("torch", "aaren.ops", "aaren.export")  # parts of file names that say nothing of a model


class LoweringError(AarenError):
    """A model's step cannot be run without torch; the message names the operation and its line."""


class Ref(NamedTuple):
    """A tensor as a place in a storage."""

    storage: int
    offset: int  # in numbers
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @property
    def numel(self) -> int:
        """How many numbers it has."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def is_contiguous(self) -> bool:
        """Tell whether its numbers lie end to end."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


@dataclass
class Node:
    """One operation."""

    name: str
    args: tuple[Any, ...]  # Any: Ref, number, list of these, None
    kwargs: dict[str, Any]
    outputs: list[Ref]
    where: str  # the line of the model


@dataclass
class Recording:
    """What a step does."""

    nodes: list[Node]
    inputs: list[Ref]
    states: list[Ref]
    outputs: list[Ref]
    new_states: list[Ref]
    tensors: dict[int, Tensor]  # one of each storage, for its numbers and to keep it alive
    produced: set[int] = field(default_factory=set)  # storages that hold inputs, states or results


def record(
    run: Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]],
    inputs: list[Tensor],
    states: list[Tensor],
) -> Recording:
    """Run a step once and record it.

    Args:
        run: from inputs and states, in leaves, to outputs and new states.
        inputs: of one stream, each in its own memory.
        states: of one stream, each in its own memory.
    """
    recorder = _Recorder()
    given = [tensor.clone() for tensor in inputs]
    held = [tensor.clone() for tensor in states]
    input_refs, state_refs = (
        [recorder.own(tensor, is_given=True) for tensor in part] for part in (given, held)
    )
    token = RECORDER.set(recorder)
    try:
        with torch.no_grad(), recorder:
            outputs, new_states = run(given, held)
    finally:
        RECORDER.reset(token)
    return Recording(
        nodes=recorder.nodes,
        inputs=input_refs,
        states=state_refs,
        outputs=[recorder.ref(tensor) for tensor in outputs],
        new_states=[recorder.ref(tensor) for tensor in new_states],
        tensors=recorder.tensors,
        produced=recorder.produced,
    )


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler, for two seconds, to tell it to leave a recording alone."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes: list[Node] = []
        self.tensors: dict[int, Tensor] = {}
        self.produced: set[int] = set()
        self._given: set[int] = set()  # storages of inputs and states, which stay as they are
        self._numbers: dict[int, int] = {}
        self._is_paused = False

    def ref(self, tensor: Tensor) -> Ref:
        address = tensor.untyped_storage().data_ptr() if tensor.numel() else -id(tensor)
        number = self._numbers.setdefault(address, len(self._numbers))
        self.tensors.setdefault(number, tensor)  # alive, so that nothing else gets its memory
        return Ref(number, int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def own(self, tensor: Tensor, *, is_given: bool = False) -> Ref:
        ref = self.ref(tensor)
        self.produced.add(ref.storage)
        if is_given:
            self._given.add(ref.storage)
        return ref

    def __torch_dispatch__(
        self,
        func: Any,  # Any: torch's operator
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self._is_paused:
            return func(*args, **kwargs)
        name = str(func)
        given = list(_tensors((args, kwargs)))
        depends = [tensor for tensor in given if self.ref(tensor).storage in self.produced]
        if depends and name.startswith(("aten._local_scalar_dense", "aten.equal", "aten.nonzero")):
            raise LoweringError(
                f"the step looks at its numbers ({name}, at {_line()}): what runs without Python must do the "
                f"same for all of them. Use torch.where, or check where items come in."
            )
        found = func(*args, **kwargs)
        made = [tensor for tensor in _tensors(found) if tensor.numel()]
        if func._schema.is_mutable and depends:
            return self._in_place(name, args, kwargs, found)
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise LoweringError(f"the step draws random numbers ({name}, at {_line()}).")
        if not depends or name.split(".")[1] in FACTORIES:
            for tensor in made:
                self.ref(tensor)
            return found
        if all(self.ref(tensor).storage in self.produced for tensor in made) and not _is_new(made, given):
            return found  # a view
        node = Node(name, self._refs(args), self._refs(kwargs), [], _line())
        node.outputs = [self.own(tensor) for tensor in _tensors(found)]
        self.nodes.append(node)
        return found

    def scan(
        self,
        state: ScanState,
        score: Tensor,
        value: Tensor,
        mask: Tensor | None,
        log_decay: Tensor | None,
    ) -> tuple[Tensor, ScanState]:
        self._is_paused = True
        token = RECORDER.set(None)
        try:
            output, new = step(state, score, value, mask=mask, log_decay=log_decay)
            output, joined = output.clone(), torch.cat([part.flatten() for part in new])
            sizes = [part.numel() for part in new]
            parts = [part.view_as(like) for part, like in zip(torch.split(joined, sizes), new, strict=True)]
        finally:
            RECORDER.reset(token)
            self._is_paused = False
        given = (*state, score, value, mask, log_decay)
        node = Node(SCAN, tuple(None if part is None else self.ref(part) for part in given), {}, [], _line())
        node.outputs = [self.own(output), *(self.own(part) for part in parts)]
        self.nodes.append(node)
        return output, ScanState(*parts)

    def require(self, fine: Tensor, code: int) -> None:
        ref = self.ref(fine)
        if ref.storage in self.produced:
            self.nodes.append(Node(REQUIRE, (ref, code), {}, [], _line()))

    def _in_place(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], found: Any) -> Any:
        """Record an operation that writes into its first argument, which must have been computed here."""
        target = self.ref(args[0])
        if name.split(".")[1] not in IN_PLACE or target.storage not in self.produced - self._given:
            raise LoweringError(f"the step changes a tensor in place ({name}, at {_line()}): make a new one.")
        plain = name.replace("_.", ".", 1)
        self.nodes.append(Node(plain, self._refs(args), self._refs(kwargs), [target], _line()))
        return found

    def _refs(self, given: Any) -> Any:
        if isinstance(given, Tensor):
            return self.ref(given)
        if isinstance(given, dict):
            return {key: self._refs(part) for key, part in given.items()}
        if isinstance(given, list | tuple):
            return type(given)(self._refs(part) for part in given)
        return given


def _tensors(tree: object) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        return [tensor for part in tree for tensor in _tensors(part)]
    return []


def _is_new(made: list[Tensor], given: list[Tensor]) -> bool:
    """Tell whether any result has memory of its own."""
    held = {tensor.untyped_storage().data_ptr() for tensor in given}
    return any(tensor.untyped_storage().data_ptr() not in held for tensor in made)


def _line() -> str:
    """Return file and line of the innermost frame that belongs to a model."""
    frame = sys._getframe(1)
    found = frame
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        found = frame
        if not module.startswith(OURS_NOT):
            break
        frame = cast("Any", frame.f_back)
    return f"{found.f_code.co_filename}:{found.f_lineno} ({found.f_code.co_name})"
