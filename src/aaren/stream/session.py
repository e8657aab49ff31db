"""Session: a model and the state of its streams, held together for people. Push an item, get an output.

The one place that holds a state in an object; everything beneath passes it as a value. Works for every module
with the verbs of `Steppable`. Numbers are checked here, before they could spoil a state for ever; shapes in
`aaren.nn.checks`.

A push takes one of two paths: through a program of the native engine (`aaren.stream.engine`), which holds the
state as blocks; or through `model.step`, which passes it as a value. What a program does not take or refuses
goes to torch, whose errors say what is wrong.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aaren.errors import AarenError, ConfigError, DataError, ShapeError, StateError, unknown_name
from aaren.nn.blocks import (
    Layout,
    Words,
    read_state,
    state_to_bytes,
    words_from_bytes,
    words_to_bytes,
)
from aaren.nn.checks import largest
from aaren.nn.state import fingerprint_of
from aaren.stream.engine import NativeEngine, Request

ENGINES = ("auto", "torch", "native")


def largest_of(values: Tensor) -> float:
    """Return the largest absolute value, NaN if there is one, 0 of nothing."""
    return float(torch.linalg.vector_norm(values, math.inf)) if values.numel() else 0.0


def read_numbers(name: str, given: object) -> Tensor:
    """Turn what people have, lists, arrays or tensors of real numbers, into a tensor without a graph.

    >>> read_numbers("time", [1, 2.5])
    tensor([1.0000, 2.5000], dtype=torch.float64)
    """
    if isinstance(given, Tensor):
        if given.is_complex() or given.layout != torch.strided or given.is_meta:
            raise DataError(
                f"{name} must be real numbers, dense and in memory; got {given.dtype}, {given.layout} on "
                f"{given.device}."
            )
        return given.detach()
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:  # lists of several lengths
        raise DataError(f"{name} must be real numbers, in lists of one length; {error}") from error
    if array.dtype.kind not in "biuf":
        hint = "Convert them first: float(...)."
        if array.dtype.kind in "mMO":
            hint = "Of dates give numbers in the unit of training: (date - first) / np.timedelta64(1, 'h')."
        raise DataError(f"{name} must be real numbers; got {array.dtype}. {hint}")
    # In float64, which keeps all digits of a list of floats; torch would round them to float32.
    return torch.from_numpy(np.array(array, dtype=np.float64, order="C"))


def read_batch_size(batch_size: object) -> int | None:
    """Return how many streams go side by side, or say that there can be no such number."""
    if batch_size is None:
        return None
    if isinstance(batch_size, bool) or not isinstance(batch_size, Integral) or batch_size < 0:
        raise ConfigError(
            f"batch_size must be None, for one stream without an axis of its own, or a whole number of "
            f"streams; got {batch_size!r}."
        )
    return int(batch_size)


def count_streams(state: object) -> int | None:
    """Return the first axis of a state's first tensor, the stream; None: it has no tensor.

    >>> count_streams(((), 7, torch.zeros(3, 2)))
    3
    """
    if isinstance(state, Tensor):
        return state.shape[0]
    counts = (count_streams(part) for part in state) if isinstance(state, tuple) else ()
    return next((count for count in counts if count is not None), None)


StateT = TypeVar("StateT", bound=tuple[object, ...])
StateT_co = TypeVar("StateT_co", bound=tuple[object, ...], covariant=True)
Item: TypeAlias = Tensor | NDArray[np.generic] | list[float] | list[list[float]] | tuple[float, ...] | float


class Steppable(Protocol[StateT_co]):
    """A model that is stepped along a stream, item by item; it may name its weights by `fingerprint()`."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Give the weights; the first one's dtype and device are those that items are converted to."""

    def init_state(self, batch_size: int) -> StateT_co:
        """Return the state before the first item."""

    @property
    def step(self) -> Callable[..., tuple[Tensor, StateT_co]]:
        """Take in one item per stream: `step(item, state, **extras) -> (output, state)`."""


class Session(Generic[StateT]):
    """One or more streams under way; made by `model.stream()`, or of a module with the verbs of `Steppable`.

    `state` may be read, kept and set: setting it takes the session back, or on from where another ended.

    Args:
        model: a model for inference, usually folded; programs of the native engine hold its weights as they
            are when the first item comes.
        batch_size: how many streams go side by side; None: one, whose items and outputs have no axis for it.
        engine: "torch"; "native", the C runtime, or an error that says why not; "auto": native if possible.
    """

    def __init__(
        self, model: Steppable[StateT], *, batch_size: int | None = None, engine: str = "torch"
    ) -> None:
        if engine not in ENGINES:
            raise unknown_name("engine", engine, ENGINES)
        _require_steppable(model)
        self.model = model
        self.batch_size = read_batch_size(batch_size)
        self._weight = next(iter(model.parameters()))
        self._largest = largest(self._weight.dtype)
        self._item_dtype: torch.dtype = getattr(model, "item_dtype", self._weight.dtype)
        self._native: NativeEngine | None = None
        if engine != "torch":
            self._native = NativeEngine(
                model,
                fingerprint=lambda: fingerprint_of(model),
                largest=self._largest,
                is_required=engine == "native",
            )
        self._is_requestable = _is_requestable(type(self))
        self.count = 0  # pushes so far
        self.reset()

    _state: StateT | None  # one of the two holds the state: torch's path
    _words: Words | None  # or the native engine's

    @property
    def engine(self) -> str:
        """What the streams run on: "native" or "torch"; before the first item, what is to be tried first."""
        return "torch" if self._native is None or self._native.obstacle else "native"

    @property
    def state(self) -> StateT:
        """All that the streams remember, as a value."""
        if self._words is None:
            return cast("StateT", self._state)
        state: StateT = cast("NativeEngine", self._native).layout.unpack(self._words)  # type: ignore[union-attr]  # it has one
        return state

    @state.setter
    def state(self, state: StateT) -> None:
        self._state, self._words = state, None

    def push(self, item: Item, **extras: Item) -> Tensor:
        """Take in one item of every stream and return the model's output after it.

        Args:
            item: (b, ...), or without b in a session of one stream. Lists, arrays and tensors will do.
            **extras: what else the model's `step` takes, alike: `mask`, `marks`.
        """
        native = self._native
        if native is not None and self._words is not None:
            if not extras and self._words is native.memory and self.batch_size is None:
                answer = native.run_one(item)
                if answer is not None:
                    self.count += 1
                    return answer
            names = tuple(sorted(extras))
            request = Request(names, [item, *(extras[name] for name in names)])
            parts = self._run_native(request, has_axis=self.batch_size is not None)
            if parts is not None:
                return parts[0][0] if self.batch_size is None else parts[0]
        return self._push_checked(item, extras)

    def _push_checked(self, item: Item, extras: dict[str, Item]) -> Tensor:
        """Take in an item after a look at its numbers; make a program for items of its kind."""
        mask = self._mask(extras["mask"]) if "mask" in extras else None
        given = self._tensor("an item", item, mask, dtype=self._item_dtype)
        others = {
            name: self._tensor(name, value, mask, where=f" of its {name}")
            for name, value in extras.items()
            if name != "mask"
        }
        if mask is not None:
            others["mask"] = mask
        names = tuple(sorted(others))
        native, state = self._native, self.state
        if native is not None and self._fits(given, state):
            is_new = native.offer(self.model.step, given, others, state)
            if is_new or (self._words is None and native.knows(names)):
                parts = self._run_native(Request(names, [given, *(others[name] for name in names)]))
                if parts is not None:
                    return parts[0][0] if self.batch_size is None else parts[0]
        with torch.no_grad():
            output, state = self.model.step(given, state, **others)
        self._require_finite_answer(output)
        self.state = state
        self.count += 1
        return output.squeeze(0) if self.batch_size is None else output

    def _fits(self, item: Tensor, state: StateT) -> bool:
        return bool(item.ndim) and count_streams(state) in (None, len(item))

    def _run_native(self, request: Request, *, has_axis: bool = True) -> list[Tensor] | None:
        """Take in an item of every stream by a program: all or none; None: torch is to take it."""
        native = self._native
        if native is None or not native.knows(request.names):
            return None
        words = self._words
        if words is None:
            try:
                words = native.pack(self._state)
            except StateError:  # of another kind than the program's
                return None
            if len(words) != self._num_streams:
                return None
            self._state, self._words = None, words
        # Beside others, one stream's bad item leaves all of them as they were.
        attempt = words if len(words) == 1 else words.copy()
        taken = native.run(attempt, request, [len(attempt)], has_axis=has_axis)
        if taken is None or taken.refused:
            return None
        self._words = attempt
        self.count += 1
        return taken.answers

    def run(self, words: Words, sizes: Sequence[int], item: Any, **extras: Any) -> list[Any]:
        """Take in items of streams whose states are payloads of blocks, and change these.

        A turn has one item of each of the first streams: the first `sizes[0]` items are of all streams, the
        next `sizes[1]` of the first `sizes[1]` streams, and so on. An error has the number of its item, and
        leaves some of the states changed.

        Args:
            words: the states.
            sizes: of the turns.
            item: the items, as `push` of so many streams takes them.
            **extras: what else `push` takes, alike.

        Returns:
            The answer after every item, as `push` of one stream gives it.
        """
        answers: list[Any] = []
        native, first, turn = self._native, 0, 0
        while turn < len(sizes):
            rest = [part[first:] for part in (item, *extras.values())] if first else [item, *extras.values()]
            others = dict(zip(extras, rest[1:], strict=True))
            request = self._request(rest[0], others) if self._is_requestable and native is not None else None
            taken = None
            if native is not None and request is not None:
                taken = native.run(words, request, sizes[turn:])
            if taken is None:
                size = sizes[turn]
                picked = {name: part[:size] for name, part in others.items()}
                answers += self._step(words, size, first, rest[0][:size], picked)
                turn, first = turn + 1, first + size
                continue
            done = sum(sizes[turn : turn + taken.num_turns])
            answers += list(self._answers(taken.answers))[:done]
            for number in taken.refused:
                stream = number - done + sizes[turn + taken.num_turns - 1]
                answers[first + number] = self._step_alone(words, stream, first + number, item, extras)
            turn, first = turn + taken.num_turns, first + done
        self.count += len(sizes)
        return answers

    def _step(self, words: Words, size: int, first: int, item: Any, extras: dict[str, Any]) -> list[Any]:
        """Take in one item of each of the first streams by `push`; returns their answers."""
        layout = self._layout
        self.batch_size, self.state = size, layout.unpack(words[:size])
        try:
            output: Any = self.push(item, **extras)
        except AarenError as error:
            for stream in range(size if size > 1 else 0):  # say whose item it is
                self._step_alone(words[:size].copy(), stream, stream, item, extras, first=first)
            error.item = first
            raise
        words[:size] = layout.pack(self.state) if self._words is None else self._words
        return list(output.unbind()) if isinstance(output, Tensor) else [output[i] for i in range(size)]

    def _step_alone(
        self, words: Words, stream: int, number: int, item: Any, extras: dict[str, Any], *, first: int = 0
    ) -> Any:
        """Take in one item of one stream by `push`, whose errors get the number of the item."""
        layout = self._layout
        self.batch_size, self.state = 1, layout.unpack(words[stream : stream + 1])
        one = {name: part[number : number + 1] for name, part in extras.items()}
        try:
            output: Any = self.push(item[number : number + 1], **one)
        except AarenError as error:
            error.item = first + number
            raise
        words[stream] = (layout.pack(self.state) if self._words is None else self._words)[0]
        return output[0]

    def _request(self, item: Any, extras: dict[str, Any]) -> Request | None:
        """Return the items of a run as a program takes them; None: `push` is to look at them.

        A class with a `push` of its own says by a `_request` of its own how programs take what it takes.
        """
        names = tuple(sorted(extras))
        return Request(names, [item, *(extras[name] for name in names)])

    def _answers(self, parts: list[Tensor]) -> Sequence[Any]:
        """Return the answer of every stream, as `push` of one gives it, from the parts of a program's."""
        return parts[0].unbind()

    def reset(self) -> None:
        """Forget all items."""
        with torch.no_grad():
            self.state = self._empty()
        self.count = 0

    def to_bytes(self) -> bytes:
        """Return the state as bytes that name the weights they belong to: a block for each stream."""
        if self._words is None:
            return state_to_bytes(self._state, fingerprint=self.fingerprint, count=self.count)
        return words_to_bytes(self._words, self._layout, fingerprint=self.fingerprint, count=self.count)

    def restore(self, blob: bytes | bytearray | memoryview) -> None:
        """Resume from what `to_bytes` returned; refuses a state of other weights or more or fewer streams."""
        fingerprint, native = self.fingerprint, self._native
        if native is not None and native.layout is not None:
            words, count = words_from_bytes(blob, native.layout, fingerprint=fingerprint)
            self._require_streams(len(words))
            self._state, self._words, self.count = None, native.place(words), count
            return
        state, count = read_state(blob, like=self.state, fingerprint=fingerprint)
        self._require_streams(count_streams(state))
        self.state, self.count = state, count

    def _require_streams(self, held: int | None) -> None:
        if held not in (None, self._num_streams):
            raise StateError(
                f"the saved state holds {held} streams; this session has {self._num_streams}. Open one with "
                f"stream(batch_size={held}), restore it there, and pick streams with its state.select."
            )

    @property
    def fingerprint(self) -> str:
        """The name of the weights that the streams run on: programs hold them as they were."""
        native = self._native
        if native is not None and native.layout is not None and not native.obstacle:
            return native.fingerprint
        return fingerprint_of(self.model)  # each time: torch does not count changes such as p.data.mul_()

    @property
    def _layout(self) -> Layout:
        """How a state of the model lies in a block."""
        native = self._native
        return native.layout if native is not None and native.layout is not None else Layout(self.state)

    @property
    def _num_streams(self) -> int:
        return 1 if self.batch_size is None else self.batch_size

    def _empty(self) -> StateT:
        """Return the state before the first item."""
        return self.model.init_state(self._num_streams)

    def _mask(self, mask: Item | list[bool]) -> Tensor:
        """Return which streams take part, (b,) bool; in a session of one stream one truth will do."""
        given = read_numbers("mask", mask)
        real = given.to(torch.bool)
        if given.dtype != torch.bool and bool((given != real).any()):
            raise DataError(f"mask must say True or False for each stream; got {given.tolist()}.")
        real = real.to(self._weight.device)
        if self.batch_size is None and real.ndim == 0:
            real = real.unsqueeze(0)
        if real.shape != (self._num_streams,):
            raise ShapeError(f"mask must be ({self._num_streams},), one per stream; got {tuple(real.shape)}.")
        return real

    def _tensor(
        self,
        name: str,
        value: Item,
        mask: Tensor | None,
        *,
        where: str = "",
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Return numbers as the model takes them; those that it cannot hold are refused."""
        tensor = read_numbers(name, value).to(self._weight.device, dtype or self._weight.dtype)
        if self.batch_size is None:
            tensor = tensor.unsqueeze(0)
        if not largest_of(tensor) <= self._largest:  # NaN: not
            self._refuse(tensor, mask, where)
        return tensor

    def _refuse(self, item: Tensor, mask: Tensor | None, where: str) -> None:
        wrong = ~(item.abs() <= self._largest)
        if mask is not None:
            if item.ndim == 0 or item.shape[0] != mask.shape[0]:
                return  # the model will say which shape it wants
            wrong = wrong & mask.view(-1, *[1] * (item.ndim - 1))
        if bool(wrong.any()):
            place = tuple(wrong.nonzero()[0].tolist())[1 if self.batch_size is None else 0 :]
            raise DataError(
                f"item {self.count} of this session holds {item[wrong][0].item()} at {place}{where}; the "
                f"model takes finite numbers up to {self._largest:.1g}, and one beyond would stay in the "
                f"state for ever. Leave the item out, or give mask=False for its stream."
            )

    def _require_finite_answer(self, output: Tensor) -> None:
        """Refuse an item that the model could not compute with; its state is not kept."""
        if math.isfinite(output.sum().item()) or bool(output.isfinite().all()):
            return
        stream = int((~output.isfinite()).nonzero()[0][0])
        raise DataError(
            f"after item {self.count} of this session the answer of stream {stream} would not be finite: its "
            f"numbers are too large for this model. The state stays as it was. Leave the item out, or give "
            f"mask=False for its stream."
        )


def _require_steppable(model: object) -> None:
    """Raise unless an object has what a session needs."""
    missing = [name for name in ("parameters", "init_state", "step") if not hasattr(model, name)]
    if missing:
        raise ConfigError(
            f"a session needs a model with parameters(), init_state(batch_size) and step(item, state); "
            f"{type(model).__name__} has no {missing[0]}."
        )


def _is_requestable(kind: type) -> bool:
    """Tell whether `_request` of a class is that of its `push`: no class above changed `push` alone."""
    owners = [next(part for part in kind.__mro__ if name in vars(part)) for name in ("_request", "push")]
    return issubclass(*owners)
