"""States as bytes: versioned, checksummed, readable without pickle.

Layout: magic, format version, lengths of what follows, SHA-256 of all that and of what follows; then the
model's fingerprint (UTF-8) and the tensors (safetensors). Nothing is rebuilt before all of it has been
checked.
"""

import hashlib
import struct
from collections.abc import Callable
from typing import TypeVar, cast

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from aaren.errors import StateError
from aaren.nn.kv_cache import KVCache

MAGIC = b"AARENST\0"
FORMAT_VERSION = 2  # 1 did not check its own head
HEAD = struct.Struct("<8sHHQ")  # magic, version, fingerprint bytes, tensor bytes
DIGEST_BYTES = 32  # of SHA-256

TreeT = TypeVar("TreeT")


def state_to_bytes(state: object, *, fingerprint: str = "") -> bytes:
    """Return any state (of a layer, a stack or a model) as bytes.

    Args:
        state: a tree of NamedTuples with tensors as leaves.
        fingerprint: names the model that made it; kept beside the tensors.
    """
    tensors = {
        name: part.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, part in _flatten(state, "")
    }
    name, payload = fingerprint.encode(), safetensors.torch.save(tensors)
    head, body = HEAD.pack(MAGIC, FORMAT_VERSION, len(name), len(payload)), name + payload
    return head + hashlib.sha256(head + body).digest() + body


def state_from_bytes(blob: bytes, *, like: TreeT, fingerprint: str = "") -> TreeT:
    """Return the state in these bytes, after checking that they are whole and fit the model.

    Args:
        blob: what `state_to_bytes` returned.
        like: any state of the model that is to go on, with any number of streams; gives structure, sizes and
            device.
        fingerprint: the model's; "" accepts any.
    """
    name, payload = _checked(bytes(blob))
    if fingerprint and name != fingerprint:
        raise StateError(
            f"this state was saved by the model with fingerprint {name or '(none)'}; yours has "
            f"{fingerprint}. Load the weights that made it, or start the stream anew with init_state."
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
            f"model with other layers: load that model, or start the stream anew with init_state."
        )
    return cast("TreeT", _unflatten(like, "", tensors))


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
            f"{FORMAT_VERSION}, no longer trusts. Start the stream anew with init_state."
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
