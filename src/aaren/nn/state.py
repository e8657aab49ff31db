"""States: what a stream has to keep, and operations on them. Their bytes: `aaren.nn.blocks`.

A state, of a layer, a stack or a model, is a tree of NamedTuples around tensors whose first axis is the
stream. A state that holds more than tensors (KVCache) brings its own `map_tensors`, `parts` and `from_parts`;
everything here goes through these. `State` gives the states of stacks and models their methods.

A fingerprint is a short hash of a model's weights and config, kept with the states that the model made.
Weights are rounded to float32 first, so that a copy in another precision keeps its name. Only numbers as they
are stored are hashed: a product of them may differ in the last bit from one machine to the next.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, asdict, fields
from typing import NamedTuple, Protocol, Self, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from aaren.errors import StateError
from aaren.nn.kv_cache import KVCache
from aaren.ops import ScanState
from aaren.ops.state import Target, settle_targets

TreeT = TypeVar("TreeT")


class State:
    """The methods of every state of a stack or a model, a NamedTuple whose class inherits from this one too.

    >>> class _Parts(NamedTuple):
    ...     encoder: EncoderState
    ...     count: Tensor  # (b,)
    >>> class CountingState(_Parts, State):
    ...     __slots__ = ()
    >>> state = CountingState(EncoderState(()), torch.zeros(3, dtype=torch.int64))
    >>> state.nbytes, state.select([0, 2]).count
    (24, tensor([0, 0]))
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Let torch.export and torch.func see the tensors: older torch knows only direct NamedTuples."""
        pytree._register_namedtuple(cls, serialized_type_name=f"{cls.__module__}.{cls.__qualname__}")

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return count_bytes(self)

    def to(
        self,
        *targets: Target,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Self:
        """Return the state in another floating dtype, on another device, or both, as a tensor's `to` does.

        The dtype is that of the encoder's part: what else a model remembers keeps its own.
        """
        dtype, device = settle_targets(targets, dtype, device)
        moved = convert(self, device=device)
        return moved if dtype is None else _convert_encoders(moved, dtype)

    def detach(self) -> Self:
        """Return the state cut off from the graph that made it, so that gradients stop there."""
        return map_tensors(Tensor.detach, self)

    def clone(self) -> Self:
        """Return a copy in its own memory."""
        return map_tensors(Tensor.clone, self)

    def select(self, streams: Sequence[int] | Tensor) -> Self:
        """Return the states of some streams, in the order given; an index may come twice, as a branch."""
        return select(self, streams)

    @classmethod
    def cat(cls, states: Sequence[Self]) -> Self:
        """Return the states of all streams of several states, in order."""
        return cat(states)

    @property
    def batch_size(self) -> int:
        """Number of streams; `len` counts the fields of the NamedTuple."""
        return batch_size(self)

    def reset(self, streams: Tensor, initial: Self) -> Self:
        """Return the state with some streams, (b,) bool, at their beginning, `model.init_state(1)`."""
        return reset(self, streams, initial)


class _EncoderParts(NamedTuple):
    layers: tuple[tuple[object, ...], ...]
    front: tuple[tuple[object, ...], ...] = ()


class EncoderState(_EncoderParts, State):
    """The states of all layers of a stack, first to last; and of what stands before them, if anything."""

    __slots__ = ()


def map_tensors(function: Callable[[Tensor], Tensor], state: TreeT) -> TreeT:
    """Return the same state with every tensor replaced by the function of it."""
    mapped: object
    if isinstance(state, Tensor):
        mapped = function(state)
    elif isinstance(state, KVCache):
        mapped = state.map_tensors(function)
    elif isinstance(state, tuple):
        children = [map_tensors(function, child) for child in state]
        mapped = type(state)(*children) if hasattr(state, "_fields") else tuple(children)
    else:
        mapped = state  # a plain number, such as a position
    return cast("TreeT", mapped)


def count_bytes(state: object) -> int:
    """Return the bytes that a state's tensors hold."""
    if isinstance(state, Tensor | KVCache):
        return state.nbytes
    return sum(count_bytes(child) for child in state) if isinstance(state, tuple) else 0


def select(state: TreeT, streams: Sequence[int] | Tensor) -> TreeT:
    """Return the states of some streams, in the order given; an index may come twice."""

    def pick(tensor: Tensor) -> Tensor:
        # An empty list would become floating point.
        dtype = None if len(streams) else torch.int64
        chosen = torch.as_tensor(streams, dtype=dtype, device=tensor.device)
        return tensor[chosen]

    return map_tensors(pick, state)


def cat(states: Sequence[TreeT]) -> TreeT:
    """Return the states of all streams of several states of one model, in order.

    >>> whole = cat([ScanState.empty((2, 4), 8), ScanState.empty((1, 4), 8)])
    >>> whole.w.shape, batch_size(whole)
    (torch.Size([3, 4, 8]), 3)
    """
    if not states:
        raise StateError("cat joins at least one state; got none. A state without streams: init_state(0).")
    first = states[0]
    if any(type(state) is not type(first) for state in states):
        kinds = ", ".join(type(state).__name__ for state in states)
        raise StateError(f"cat joins states of one model; got {kinds}.")
    joined: object = first
    if isinstance(first, Tensor):
        tensors = cast("Sequence[Tensor]", states)
        if len({(tensor.shape[1:], tensor.dtype) for tensor in tensors}) > 1:
            shapes = ", ".join(f"{tuple(tensor.shape)} of {tensor.dtype}" for tensor in tensors)
            raise StateError(f"cat joins states of one model; got parts {shapes}.")
        joined = torch.cat(list(tensors))
    elif isinstance(first, KVCache):
        joined = KVCache.cat(cast("Sequence[KVCache]", states))
    elif isinstance(first, tuple):
        children = [cat(parts) for parts in zip(*cast("Sequence[tuple[object, ...]]", states), strict=True)]
        joined = type(first)(*children) if hasattr(first, "_fields") else tuple(children)
    return cast("TreeT", joined)


def batch_size(state: object) -> int:
    """Return how many streams a state is of."""
    return next(tensor.shape[0] for _, tensor in _flatten(state, "") if tensor.ndim)


def reset(state: TreeT, streams: Tensor, initial: TreeT) -> TreeT:
    """Return the state with some streams at their beginning.

    Args:
        state: of b streams.
        streams: (b,) bool, True: begins again.
        initial: the state before the first item, of one stream or b: `model.init_state(1)`.
    """
    mixed: object = state
    if isinstance(state, Tensor):
        begun = cast("Tensor", initial)
        mixed = torch.where(streams.view(-1, *[1] * (state.ndim - 1)), begun.to(state.dtype), state)
    elif isinstance(state, KVCache):
        mixed = state.reset(streams)
    elif isinstance(state, tuple):
        pairs = zip(state, cast("tuple[object, ...]", initial), strict=True)
        children = [reset(part, streams, begun) for part, begun in pairs]
        mixed = type(state)(*children) if hasattr(state, "_fields") else tuple(children)
    return cast("TreeT", mixed)


def convert(
    state: TreeT,
    *targets: Target,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> TreeT:
    """Return the state in another floating dtype, on another device, or both, as a tensor's `to` does."""
    dtype, device = settle_targets(targets, dtype, device)

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)

    converted: object
    if isinstance(state, ScanState):
        # Its own `to` knows that the empty state's lowest number differs between dtypes.
        converted = state.to(dtype=dtype, device=device)
    elif isinstance(state, tuple) and not isinstance(state, KVCache):
        children = [convert(child, dtype=dtype, device=device) for child in state]
        converted = type(state)(*children) if hasattr(state, "_fields") else tuple(children)
    else:
        converted = map_tensors(move, state)
    return cast("TreeT", converted)


def _convert_encoders(state: TreeT, dtype: torch.dtype) -> TreeT:
    converted: object = state
    if isinstance(state, EncoderState):
        converted = convert(state, dtype=dtype)
    elif isinstance(state, tuple) and hasattr(state, "_fields"):
        converted = type(state)(*(_convert_encoders(child, dtype) for child in state))
    return cast("TreeT", converted)


def flatten(state: object) -> list[tuple[str, Tensor]]:
    """Return the tensors of a state with their names, in order."""
    return _flatten(state, "")


def _flatten(state: object, prefix: str) -> list[tuple[str, Tensor]]:
    if isinstance(state, Tensor):
        return [(prefix, state)]
    if isinstance(state, KVCache):
        return [(f"{prefix}.{name}", part) for name, part in state.parts().items()]
    if isinstance(state, tuple):
        names = getattr(state, "_fields", None) or [str(index) for index in range(len(state))]
        return [
            leaf
            for name, child in zip(names, state, strict=True)
            for leaf in _flatten(child, f"{prefix}.{name}" if prefix else name)
        ]
    if isinstance(state, bool | int | float):  # a position or a count; kept as a tensor of no axes
        return [(prefix, torch.tensor(state))]
    raise StateError(
        f"a state consists of tensors and numbers; {prefix or 'it'} is a {type(state).__name__}."
    )


class Named(Protocol):
    """A part that names its own weights."""

    def fingerprint(self) -> str:
        """Return the name."""


def fingerprint_around(part: Named, whole: nn.Module) -> str:
    """Return a short name of a model of which one part, its encoder, has a name: folded, it is the same.

    Weights are identified by their place in the model: tied ones count at both places, as they do when the
    model has been saved and loaded.
    """
    inside = next(name for name, module in whole.named_modules() if module is part) + "."
    around = [value for name, value in whole.state_dict().items() if not name.startswith(inside)]
    named = part.fingerprint() + describe_config(getattr(whole, "config", None)) + hash_weights(around)
    return hashlib.sha256(named.encode()).hexdigest()[:16]


def describe_config(config: object) -> str:
    """Return what differs from the defaults in a config, except dropout, which no state depends on.

    Only differences, so that fields added later leave existing fingerprints unchanged.
    """
    if config is None:
        return ""
    usual = {field.name: field.default for field in fields(config)}  # type: ignore[arg-type]  # a dataclass
    values = asdict(config)  # type: ignore[call-overload]  # the same
    told = {
        name: value
        for name, value in values.items()
        if "dropout" not in name and (usual[name] is MISSING or value != usual[name])
    }
    return json.dumps(told, sort_keys=True, default=str)


def tensors_of(module: nn.Module) -> list[Tensor]:
    """Return all that a module would save."""
    return list(module.state_dict().values())


def hash_weights(weights: Iterable[Tensor | None]) -> str:
    """Return the hash of shapes and numbers; what is None is left out.

    >>> hash_weights([torch.ones(2), None]) == hash_weights([torch.ones(2).double()])
    True
    """
    digest = hashlib.sha256()
    for weight in weights:
        if weight is not None:
            digest.update(str(tuple(weight.shape)).encode())
            digest.update(weight.detach().to("cpu", torch.float32).numpy().tobytes())
    return digest.hexdigest()


def fingerprint_of(model: object) -> str:
    """Return a short name of a model's weights: its own, or that of its tensors."""
    if hasattr(model, "fingerprint"):
        return str(model.fingerprint())
    return hash_weights(tensors_of(cast("nn.Module", model)))[:16]
