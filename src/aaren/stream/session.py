"""Session: a model and the state of its streams, held together for people. Push an item, get an output.

The one place that holds a state in an object; everything beneath passes it as a value. Works for every model
that can be stepped. Numbers are checked here, before they could spoil a state for ever; shapes in
`aaren.nn.checks`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aaren.errors import ConfigError, DataError, ShapeError, StateError, unknown_name
from aaren.nn.state import StateBytes, state_from_bytes, state_to_bytes
from aaren.stream.native.program import Leaf
from aaren.stream.native.streams import NativeStreams

ENGINES = ("auto", "torch", "native")
SAFE_POWER = 0.45  # power of a dtype's largest number up to which squares, as in a norm, can be held as well


def largest(dtype: torch.dtype) -> float:
    """Return the largest number that a model of this dtype takes in: one that it can still compute with.

    >>> f"{largest(torch.float32):.0e}, {largest(torch.float64):.0e}"
    '2e+17, 5e+138'
    """
    top = float(torch.finfo(dtype).max)
    return top if dtype == torch.float16 else top**SAFE_POWER  # norms of float16 are computed in float32


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
    """A model that is stepped along a stream, item by item."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Give the weights; the first one's dtype and device are those that items are converted to."""

    def init_state(self, batch_size: int) -> StateT_co:
        """Return the state before the first item."""

    @property
    def step(self) -> Callable[..., tuple[Tensor, StateT_co]]:
        """Take in one item per stream: `step(item, state, **extras) -> (output, state)`."""

    def fingerprint(self) -> str:
        """Return a short name of the weights."""


class Turns(NamedTuple):
    """States of streams as they lie in memory, and how many of them have an item in each turn."""

    block: Tensor  # (b, bytes)
    layout: Sequence[Leaf]
    sizes: Sequence[int]


class Session(Generic[StateT]):
    """One or more streams under way; made by `model.stream()`.

    `state` may be read, kept and set: setting it takes the session back, or on from where another ended.

    Args:
        model: a model for inference, usually folded; with the native engine its weights are read once.
        batch_size: how many streams go side by side; None: one, whose items and outputs have no axis for it.
        engine: "torch"; "native", the C runtime, or an error that says why not; "auto": native if possible.
    """

    def __init__(
        self, model: Steppable[StateT], *, batch_size: int | None = None, engine: str = "torch"
    ) -> None:
        if engine not in ENGINES:
            raise unknown_name("engine", engine, ENGINES)
        self.model = model
        self.batch_size = read_batch_size(batch_size)
        self._weight = next(iter(model.parameters()))
        self._largest = largest(self._weight.dtype)
        self._item_dtype: torch.dtype = getattr(model, "item_dtype", self._weight.dtype)
        self._native: NativeStreams[StateT] | None = None
        if engine != "torch":
            self._native = NativeStreams(model, largest=self._largest, is_required=engine == "native")
        self._like: StateT | None = None
        self._plan: tuple[object, StateBytes] | None = None
        self.count = 0  # pushes so far
        self._has_turns = _has_turns(type(self))
        self.reset()

    _state: StateT | None  # None: the native engine holds it
    _is_packed: bool  # whether the native engine holds it too
    is_lent: bool  # whether it does so in memory that was lent

    @property
    def engine(self) -> str:
        """What the streams run on: "native" or "torch"; before the first item, what is to be tried first."""
        return "native" if self._native is not None and self._native.is_usable else "torch"

    @property
    def state(self) -> StateT:
        """All that the streams remember, as a value."""
        if self._state is None:
            assert self._native is not None
            self._state = self._native.unpack()
        return self._state

    @state.setter
    def state(self, state: StateT) -> None:
        self._state = state
        self._is_packed = self.is_lent = False

    def push(self, item: Item, **extras: Item) -> Tensor:
        """Take in one item of every stream and return the model's output after it.

        Args:
            item: (b, ...), or without b in a session of one stream. Lists, arrays and tensors will do.
            **extras: what else the model's `step` takes, alike: `mask`, `marks`.
        """
        if self._native is not None and self._native.is_usable:
            if not extras and self._is_packed and self.batch_size is None:
                answer = self._native.push_one(item)
                if answer is not None:
                    self._state = None
                    self.count += 1
                    return answer
            output = self._push_native(item, extras)
            if output is not None:
                return output
        mask = self._mask(extras["mask"]) if "mask" in extras else None
        given = self._tensor("an item", item, mask, dtype=self._item_dtype)
        others = {
            name: self._tensor(name, value, mask, where=f" of its {name}")
            for name, value in extras.items()
            if name != "mask"
        }
        if mask is not None:
            others["mask"] = mask
        if self._native is not None and self._native.offer(self.model.step, given, others, self.state):
            output = self._push_native(given if self.batch_size is not None else given[0], extras)
            if output is not None:
                return output
        with torch.no_grad():
            output, state = self.model.step(given, self.state, **others)
        self._require_finite_answer(output)
        self.state = state
        self.count += 1
        return output.squeeze(0) if self.batch_size is None else output

    def reset(self) -> None:
        """Forget all items."""
        with torch.no_grad():
            self.state = self._empty()
        self.count = 0

    def lend(self, block: Tensor, layout: Sequence[Leaf]) -> bool:
        """Take over the states of `batch_size` streams as they lie in memory, (b, bytes); False: it cannot.

        The next push changes them there if `is_lent` then says so, and leaves them alone otherwise.
        """
        native = self._native
        if native is None or not native.is_usable or not native.lend(block, layout):
            return False
        self._state, self._is_packed, self.is_lent = None, True, True
        return True

    def push_turns(
        self, block: Tensor, layout: Sequence[Leaf], sizes: Sequence[int], item: Item, **extras: Item
    ) -> Sequence[Any] | None:
        """Take in items of streams whose states lie in memory, and change them there.

        A turn has one item of each of the first streams: the first `sizes[0]` items are of all streams, the
        next `sizes[1]` of the first `sizes[1]` streams, and so on. Returns the answer after every item, as
        `push` of one stream gives it, or None: it cannot, or some item is to be looked at by `push`; the
        states stay as they were. A class with a `push` of its own says by its own `_turns` how it does this.
        """
        return self._turns(Turns(block, layout, sizes), item, extras) if self._has_turns else None

    def _turns(self, turns: Turns, item: Any, extras: dict[str, Any]) -> Sequence[Any] | None:
        names = tuple(sorted(extras))
        found = self._run_turns(turns, [item, *(extras[name] for name in names)], names)
        return None if found is None else found[0].unbind()

    def _run_turns(
        self, turns: Turns, values: Sequence[object], names: tuple[str, ...] = ()
    ) -> list[Tensor] | None:
        """Run the program of these names over turns; returns the parts of its answers."""
        native = self._native
        if native is None or not native.is_usable or not native.lend(turns.block, turns.layout):
            return None
        if not native.holds(names, sum(turns.sizes)) or not native.fill(values, has_axis=True):
            return None
        if native.run_turns(turns.sizes):
            return None
        self.count += len(turns.sizes)
        return native.outputs()

    def to_bytes(self) -> bytes:
        """Return the state as bytes that name the weights they belong to."""
        if self._state is None and self._native is not None:
            plan = self._bytes_plan(self._native.held[0])
            if plan.is_usual:
                return plan.join(self._native.held)
        return state_to_bytes(self.state, fingerprint=self._name_weights())

    def restore(self, blob: bytes | bytearray | memoryview) -> None:
        """Resume from what `to_bytes` returned; refuses a state of other weights or more or fewer streams."""
        native = self._native
        if not isinstance(blob, bytes | bytearray | memoryview):
            raise StateError(f"a saved state is bytes, as to_bytes returned them; got {type(blob).__name__}.")
        blob = bytes(blob)
        if native is not None and native.is_usable and native.has_slab(self._num_streams):
            plan = self._bytes_plan(native.held[0])
            if plan.is_usual and plan.split(blob, native.held):
                self._state, self._is_packed, self.is_lent = None, True, False
                return
        if self._like is None or count_streams(self._like) != self._num_streams:
            self._like = self._empty()
        like = self._like
        state = state_from_bytes(blob, like=like, fingerprint=self._name_weights())
        held = count_streams(state)
        if held != count_streams(like):
            raise StateError(
                f"the saved state holds {held} streams; this session has {self._num_streams}. Open one with "
                f"stream(batch_size={held}), restore it there, and pick streams with its state.select."
            )
        self.state = state

    def _push_native(self, item: Item, extras: dict[str, Item]) -> Tensor | None:
        """Take in an item without torch; None: torch is to take it, or to say what is wrong with it."""
        native = self._native
        assert native is not None
        names = tuple(sorted(extras)) if extras else ()
        if not native.holds(names, self._num_streams):
            return None
        if not self._is_packed:
            if not native.pack(self.state):
                return None
            self._is_packed = True
        values = [item, *(extras[name] for name in names)]
        if not native.fill(values, has_axis=self.batch_size is not None) or native.run():
            return None
        self._state = None
        self.count += 1
        output = native.output()
        return output[0] if self.batch_size is None else output

    def _bytes_plan(self, slab: object) -> StateBytes:
        """Return how the state in the native engine's memory becomes bytes."""
        if self._plan is None or self._plan[0] is not slab:
            assert self._native is not None
            self._plan = (slab, StateBytes(self._native.unpack(), fingerprint=self._name_weights()))
        return self._plan[1]

    def _name_weights(self) -> str:
        """Return the name of the weights that the engine computes with: programs hold them as they were."""
        native = self._native
        if native is not None and native.is_usable and native.fingerprint:
            return native.fingerprint
        return self.model.fingerprint()  # torch does not count changes such as p.data.mul_()

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


def _has_turns(kind: type) -> bool:
    """Tell whether `_turns` of a class is that of its `push`: no class above changed `push` alone."""
    owners = [next(part for part in kind.__mro__ if name in vars(part)) for name in ("_turns", "push")]
    return issubclass(*owners)
