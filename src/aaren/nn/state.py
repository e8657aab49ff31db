"""States: what a stream has to keep; operations on them, and their conversion to bytes.

A state, of a layer, a stack or a model, is a tree of NamedTuples around tensors whose first axis is the
stream. A state that holds more than tensors (KVCache) brings its own `map_tensors`, `parts` and `from_parts`;
everything here goes through these. `State` gives the states of stacks and models their methods.

Bytes are versioned, checksummed and readable without pickle: magic, format version, lengths of what follows,
SHA-256 of all that and of what follows; then the model's fingerprint (UTF-8) and the tensors (safetensors).
Nothing is rebuilt before all of it has been checked.

A fingerprint is a short hash of a model's weights and config, kept with the states that the model made.
Weights are rounded to float32 first, so that a copy in another precision keeps its name. Only numbers as they
are stored are hashed: a product of them may differ in the last bit from one machine to the next.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, asdict, fields
from typing import NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from aaren.errors import StateError
from aaren.nn.kv_cache import KVCache
from aaren.ops import ScanState
from aaren.ops.state import Target, settle_targets

MAGIC = b"AARENST\0"
FORMAT_VERSION = 2  # 1 did not check its own head
HEAD = struct.Struct("<8sHHQ")  # magic, version, fingerprint bytes, tensor bytes
DIGEST_BYTES = 32  # of SHA-256

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

    def to_bytes(self, *, fingerprint: str = "") -> bytes:
        """Return the state as bytes that `from_bytes` checks; `fingerprint` names the model's weights."""
        return state_to_bytes(self, fingerprint=fingerprint)

    @classmethod
    def from_bytes(cls, blob: bytes, *, like: Self, fingerprint: str = "") -> Self:
        """Return the state that `to_bytes` wrote.

        Args:
            blob: what `to_bytes` returned.
            like: any state of the model that is to resume, for instance `model.init_state(1)`: sizes must
                agree.
            fingerprint: `model.fingerprint()`, to refuse a state that other weights made; "" accepts any.
        """
        return state_from_bytes(blob, like=like, fingerprint=fingerprint)


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


def state_to_bytes(state: object, *, fingerprint: str = "") -> bytes:
    """Return any state (of a layer, a stack or a model) as bytes.

    Args:
        state: a tree of NamedTuples with tensors as leaves.
        fingerprint: names the model that made it; kept beside the tensors.
    """
    name, payload = fingerprint.encode(), _write_tensors(dict(_flatten(state, "")))
    head, body = HEAD.pack(MAGIC, FORMAT_VERSION, len(name), len(payload)), name + payload
    return head + hashlib.sha256(head + body).digest() + body


def state_from_bytes(blob: bytes, *, like: TreeT, fingerprint: str = "") -> TreeT:
    """Return the state in these bytes, after checking that they are whole and fit the model.

    Args:
        blob: what `state_to_bytes` returned.
        like: any state of the model that is to resume, with any number of streams; gives structure, sizes and
            device.
        fingerprint: the model's; "" accepts any.
    """
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise StateError(f"a saved state is bytes, as to_bytes returned them; got {type(blob).__name__}.")
    name, payload = _checked(bytes(blob))
    if fingerprint and name != fingerprint:
        raise StateError(
            f"this state was saved by the model with fingerprint {name or '(none)'}; yours has "
            f"{fingerprint}. Load the weights that made it, or start the stream again with init_state."
        )
    try:
        tensors = safetensors.torch.load(payload)
    except SafetensorError as error:
        raise StateError(
            f"the tensors of this state cannot be read: {error}. Use an older copy of it."
        ) from error
    expected = [leaf_name for leaf_name, _ in _flatten(like, "")]
    if sorted(expected) != sorted(tensors):
        raise StateError(
            f"this state has the parts {_some(tensors)}; this model has {_some(expected)}. It was saved by a "
            f"model with other layers: load that model, or start the stream again with init_state."
        )
    return cast("TreeT", _unflatten(like, "", tensors))


class StateBytes:
    """The bytes of states of one shape, whose head is made once: for streams that are saved after every item.

    Args:
        like: any such state.
        fingerprint: of the model.
    """

    def __init__(self, like: object, *, fingerprint: str) -> None:
        blob = state_to_bytes(like, fingerprint=fingerprint)
        tensors = dict(_flatten(like, ""))
        self.is_usual = all(tensor.dtype in PLAIN_TYPES for tensor in tensors.values())
        order = list(PLAIN_TYPES)
        ranked = (
            sorted(tensors, key=lambda name: (order.index(tensors[name].dtype), name))
            if self.is_usual
            else []
        )
        self._places = [
            list(tensors).index(name) for name in ranked
        ]  # where each part of the bytes comes from
        self._sizes = [tensors[name].nbytes for name in ranked]
        self._head = blob[: HEAD.size]
        self._start = HEAD.size + DIGEST_BYTES
        self._prefix = blob[self._start : len(blob) - sum(self._sizes)]
        self._nbytes = len(blob)

    def join(self, parts: Sequence[NDArray[np.generic]]) -> bytes:
        """Return what `state_to_bytes` returns for a state with these tensors, in the order of the state."""
        body = b"".join([self._prefix, *(parts[place].tobytes() for place in self._places)])
        return b"".join([self._head, hashlib.sha256(self._head + body).digest(), body])

    def split(self, blob: bytes, parts: Sequence[NDArray[np.generic]]) -> bool:
        """Copy the tensors in these bytes into arrays; False: of another shape or model, or damaged."""
        start, end = self._start, self._start + len(self._prefix)
        if len(blob) != self._nbytes or blob[: HEAD.size] != self._head or blob[start:end] != self._prefix:
            return False
        if hashlib.sha256(blob[: HEAD.size] + blob[start:]).digest() != blob[HEAD.size : start]:
            return False
        for place, size in zip(self._places, self._sizes, strict=True):
            part = parts[place]
            part[...] = np.frombuffer(blob, part.dtype, part.size, end).reshape(part.shape)
            end += size
        return True


# The types of nearly all states, in the order in which safetensors writes them.
PLAIN_TYPES = {torch.int64: "I64", torch.float64: "F64", torch.float32: "F32", torch.bool: "BOOL"}


def _write_tensors(tensors: dict[str, Tensor]) -> bytes:
    """Return what `safetensors.torch.save` returns, for the usual types in a tenth of its time."""
    if any(tensor.dtype not in PLAIN_TYPES for tensor in tensors.values()):
        copies = {
            name: part.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, part in tensors.items()
        }
        return safetensors.torch.save(copies)
    ranks = {dtype: rank for rank, dtype in enumerate(PLAIN_TYPES)}
    header, parts, offset = {}, [], 0
    for name in sorted(tensors, key=lambda name: (ranks[tensors[name].dtype], name)):
        tensor = tensors[name]
        parts.append(tensor.detach().cpu().numpy().tobytes())
        end = offset + len(parts[-1])
        header[name] = {
            "dtype": PLAIN_TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def _checked(blob: bytes) -> tuple[str, bytes]:
    """Return fingerprint and payload of an undamaged blob."""
    start = HEAD.size + DIGEST_BYTES
    if len(blob) < start or not blob.startswith(MAGIC):
        raise StateError(
            f"these {len(blob)} bytes are not a saved state, or only the beginning of one: it starts with "
            f"{MAGIC!r} and has at least {start} bytes. Pass what to_bytes returned, whole."
        )
    _, version, name_size, payload_size = HEAD.unpack_from(blob)
    if version > FORMAT_VERSION:
        raise StateError(
            f"this state has format version {version}; this aaren reads {FORMAT_VERSION}. Upgrade: pip "
            f"install -U aaren."
        )
    if version < FORMAT_VERSION:
        raise StateError(
            f"this state has format version {version}, which an earlier aaren wrote and this one, of version "
            f"{FORMAT_VERSION}, no longer trusts. Start the stream again with init_state."
        )
    body = blob[start:]
    if len(body) != name_size + payload_size:
        raise StateError(
            f"this state should have {start + name_size + payload_size} bytes; got {len(blob)}. It was "
            f"cut short or added to: use an older copy of it."
        )
    if hashlib.sha256(blob[: HEAD.size] + body).digest() != blob[HEAD.size : start]:
        raise StateError(
            "this state's checksum does not match its bytes: it was damaged. Use an older copy of it."
        )
    return body[:name_size].decode(), body[name_size:]


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


def _unflatten(like: object, prefix: str, tensors: dict[str, Tensor]) -> object:
    if isinstance(like, Tensor):
        return _fitting(tensors[prefix], like, prefix)
    if isinstance(like, KVCache):
        return like.from_parts(
            {name: tensors[f"{prefix}.{name}"].to(part.device) for name, part in like.parts().items()}
        )
    if isinstance(like, tuple):
        names = getattr(like, "_fields", None) or [str(index) for index in range(len(like))]
        children = [
            _unflatten(child, f"{prefix}.{name}" if prefix else name, tensors)
            for name, child in zip(names, like, strict=True)
        ]
        build = cast("Callable[..., object]", type(like))
        return build(*children) if hasattr(like, "_fields") else tuple(children)
    return tensors[prefix].item()


def _fitting(saved: Tensor, like: Tensor, name: str) -> Tensor:
    if saved.shape[1:] != like.shape[1:] or saved.is_floating_point() != like.is_floating_point():
        raise StateError(
            f"the saved {name} has shape {tuple(saved.shape)} of {saved.dtype}; this model needs "
            f"(b, {', '.join(str(size) for size in like.shape[1:])}) of {like.dtype}. It was saved by "
            f"another model."
        )
    return saved.to(like.device)


def _some(names: object) -> str:
    listed = sorted(cast("list[str]", names))
    return ", ".join(listed[:6]) + (f" and {len(listed) - 6} more" if len(listed) > 6 else "")


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
