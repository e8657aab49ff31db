"""The bytes of a state: one block per stream, a head and a payload by one layout, end to end.

Sessions, pools, saved bytes, the pure step and exported C and WebAssembly read and write these blocks.

| bytes | of the head, little end first |
| 4, 4 | `AARN`; the format, 2 |
| 8 | whose: the first 8 bytes of the SHA-256 of the model's fingerprint |
| 8 | items so far |
| 4, 4 | bytes of the payload; the CRC-32 of its layout |
| 4, 4 | the CRC-32 of the payload and of the head as it is with 0 here; 0 |

A payload holds the numbers of every tensor of one stream, each aligned to the size of its numbers. A state
that grows (KVCache) has the number of its items before them.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from aaren.errors import StateError
from aaren.nn import KVCache
from aaren.nn.state import map_tensors

MAGIC, FORMAT_VERSION = b"AARN", 2
HEAD, _CHECKSUM = struct.Struct("<4sIQQIIII"), struct.Struct("<II")
WORD = 8  # bytes; a payload is a number of words
Words: TypeAlias = NDArray[np.uint64]  # (b, words): the payloads of b streams
TreeT = TypeVar("TreeT")


@dataclass
class Leaf:
    """A tensor of one stream: where its numbers lie."""

    offset: int  # in bytes
    shape: tuple[int, ...]  # without the stream
    dtype: torch.dtype

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)


class Layout:
    """How states of constant size lie in memory.

    Args:
        like: any state of the model.

    >>> layout = Layout((torch.zeros(1, 3), torch.ones(1, dtype=torch.int64)))
    >>> words = layout.pack((torch.zeros(2, 3), torch.tensor([7, 8])))
    >>> words.shape, layout.unpack(words)[1]
    ((2, 3), tensor([7, 8]))
    """

    def __init__(self, like: object) -> None:
        self.like = map_tensors(lambda tensor: tensor[:0], like)
        self.leaves: list[Leaf] = []
        end = 0
        for tensor in _tensors(like):
            size = tensor.element_size()
            begin = -(-end // size) * size
            self.leaves.append(Leaf(begin, tuple(tensor.shape[1:]), tensor.dtype))
            end = begin + prod(tensor.shape[1:]) * size
        self.nbytes = -(-end // WORD) * WORD
        self.text = json.dumps([[str(leaf.dtype), *leaf.shape] for leaf in self.leaves])
        self.checksum = zlib.crc32(self.text.encode())

    def pack(self, state: object) -> Words:
        """Return the states of b streams as their payloads."""
        tensors = list(_tensors(state))
        if len(tensors) != len(self.leaves):
            raise StateError(f"expected a state of {len(self.leaves)} tensors; got {len(tensors)}.")
        block = torch.zeros(len(tensors[0]) if tensors else 0, self.nbytes, dtype=torch.uint8)
        for leaf, tensor in zip(self.leaves, tensors, strict=True):
            if tensor.dtype != leaf.dtype or tuple(tensor.shape[1:]) != leaf.shape:
                raise StateError(
                    f"a state keeps its size: expected {leaf.shape} of {leaf.dtype}, as before the first "
                    f"item; after it came {tuple(tensor.shape[1:])} of {tensor.dtype}."
                )
            view_leaf(block, leaf).copy_(tensor.detach())
        return block.numpy().view(np.uint64)

    def unpack(self, words: Words) -> Any:  # Any: a state of the model
        """Return the states in payloads, as the model takes them, in memory of their own."""
        block = torch.from_numpy(words.view(np.uint8))
        views = (view_leaf(block, leaf) for leaf in self.leaves)

        def read(like: Tensor) -> Tensor:
            return next(views).clone(memory_format=torch.contiguous_format).to(like.device)

        return map_tensors(read, self.like)


def view_leaf(memory: Tensor, leaf: Leaf) -> Tensor:
    """Return a part of flat blocks (n, bytes), (n, *shape), without a copy."""
    count = memory.shape[0]
    if not leaf.count or not count:
        return torch.zeros(count, *leaf.shape, dtype=leaf.dtype)
    whole = memory[:, leaf.offset : leaf.offset + leaf.count * leaf.dtype.itemsize]
    return whole.view(leaf.dtype).view(count, *leaf.shape) if leaf.shape else whole.view(leaf.dtype)[:, 0]


def seal(payload: bytes | memoryview, *, fingerprint: str, layout: int, count: int = 0) -> bytes:
    """Return a payload behind its head: a block.

    Args:
        payload: of one stream.
        fingerprint: of the model.
        layout: the checksum of the layout.
        count: items so far.
    """
    head, checksum = _head(fingerprint, layout, count, len(payload))
    return b"".join((head, _CHECKSUM.pack(zlib.crc32(payload, checksum), 0), payload))


@lru_cache(maxsize=64)
def _head(fingerprint: str, layout: int, count: int, size: int) -> tuple[bytes, int]:
    """Return a head up to its checksum, and the checksum of it as it is with 0 there."""
    head = HEAD.pack(MAGIC, FORMAT_VERSION, name_of(fingerprint), count, size, layout, 0, 0)
    return head[: -_CHECKSUM.size], zlib.crc32(head)


@lru_cache(maxsize=64)
def name_of(fingerprint: str) -> int:
    """Return the number that stands for a fingerprint in a head."""
    return int.from_bytes(hashlib.sha256(fingerprint.encode()).digest()[:8], "big")


class Block(NamedTuple):
    """What a block holds, checked."""

    payload: memoryview
    num_items: int  # so far


def read_blocks(blob: object, *, fingerprint: str, layout: int) -> list[Block]:
    """Return the blocks in these bytes, after checking that they are whole and of this model.

    Args:
        blob: blocks, end to end.
        fingerprint: of the model; "" accepts any.
        layout: the checksum of the layout.
    """
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise StateError(f"a saved state is bytes, as to_bytes returned them; got {type(blob).__name__}.")
    rest, blocks = memoryview(bytes(blob)), []
    while len(rest):
        if len(rest) < HEAD.size or rest[:4] != MAGIC:
            raise StateError(
                f"these {len(rest)} bytes are not a saved state, or only the beginning of one: it starts "
                f"with {MAGIC!r} and has at least {HEAD.size} bytes. Pass what to_bytes returned, whole."
            )
        _, version, name, count, size, found, checksum, zero = HEAD.unpack_from(rest)
        if version != FORMAT_VERSION:
            raise StateError(
                f"this state has format version {version}; this aaren reads {FORMAT_VERSION}. Read it with "
                f"the aaren that wrote it, or start the stream again with init_state."
            )
        if len(rest) < HEAD.size + size:
            raise StateError(
                f"this state should have {HEAD.size + size} bytes; got {len(rest)}. It was cut short: use an "
                f"older copy of it."
            )
        payload = rest[HEAD.size : HEAD.size + size]
        head = HEAD.pack(MAGIC, version, name, count, size, found, 0, 0)
        if zero or zlib.crc32(payload, zlib.crc32(head)) != checksum:
            raise StateError(
                "this state's checksum does not match its bytes: it was damaged. Use an older copy of it."
            )
        if fingerprint and name != name_of(fingerprint):
            raise StateError(
                f"this state was saved by other weights than yours, whose fingerprint is {fingerprint}. Load "
                f"the weights that made it, or start the stream again with init_state."
            )
        if found != layout:
            raise StateError(
                "this state was saved by a model with other layers: load that model, or start the stream "
                "again with init_state."
            )
        blocks.append(Block(payload, count))
        rest = rest[HEAD.size + size :]
    return blocks


def layout_of(block: bytes) -> int:
    """Return the checksum of the layout that a block names."""
    return int(HEAD.unpack_from(block)[5])


def words_to_bytes(words: Words, layout: Layout, *, fingerprint: str, count: int = 0) -> bytes:
    """Return payloads as blocks, end to end."""
    return b"".join(
        seal(row.tobytes(), fingerprint=fingerprint, layout=layout.checksum, count=count) for row in words
    )


def words_from_bytes(blob: object, layout: Layout, *, fingerprint: str) -> tuple[Words, int]:
    """Return the payloads of blocks, and how many items the first stream has had."""
    blocks = read_blocks(blob, fingerprint=fingerprint, layout=layout.checksum)
    if any(len(block.payload) != layout.nbytes for block in blocks):
        raise StateError(f"the payload of this model's states has {layout.nbytes} bytes.")
    words = np.frombuffer(b"".join(block.payload for block in blocks), np.uint64).copy()
    return words.reshape(len(blocks), layout.nbytes // WORD), blocks[0].num_items if blocks else 0


def state_to_bytes(state: object, *, fingerprint: str = "", count: int = 0) -> bytes:
    """Return any state (of a layer, a stack or a model) as blocks, one for each stream.

    Args:
        state: a tree of NamedTuples with tensors, and caches, as leaves.
        fingerprint: `model.fingerprint()`, which names the weights that made it.
        count: items so far.
    """
    if not _grows(state):
        layout = Layout(state)
        return words_to_bytes(layout.pack(state), layout, fingerprint=fingerprint, count=count)
    layout_checksum = _describe(state)
    parts = [part.parts() if isinstance(part, KVCache) else part for part in _leaves(state)]
    num_streams = next(len(part["keys"] if isinstance(part, dict) else part) for part in parts)
    blocks = []
    for stream in range(num_streams):
        payload = b"".join(chunk for part in parts for chunk in _write(part, stream))
        blocks.append(seal(payload, fingerprint=fingerprint, layout=layout_checksum, count=count))
    return b"".join(blocks)


def state_from_bytes(blob: object, *, like: TreeT, fingerprint: str = "") -> TreeT:
    """Return the state in these bytes, after checking that they are whole and fit the model.

    Args:
        blob: what `state_to_bytes` returned.
        like: any state of the model that is to resume, with any number of streams; gives structure, sizes,
            types and device.
        fingerprint: the model's; "" accepts any.

    >>> state = (torch.ones(2, 3), torch.tensor([4, 5]))
    >>> state_from_bytes(state_to_bytes(state), like=state)[1]
    tensor([4, 5])
    """
    return read_state(blob, like=like, fingerprint=fingerprint)[0]


def read_state(blob: object, *, like: TreeT, fingerprint: str) -> tuple[TreeT, int]:
    """Return the state in these bytes, and how many items its first stream has had."""
    if not _grows(like):
        layout = Layout(like)
        words, count = words_from_bytes(blob, layout, fingerprint=fingerprint)
        return cast("TreeT", layout.unpack(words)), count
    blocks = read_blocks(blob, fingerprint=fingerprint, layout=_describe(like))
    if not blocks:
        return map_tensors(lambda tensor: tensor[:0], like), 0
    columns = zip(*(_read(block.payload, like) for block in blocks), strict=True)
    rebuilt = (_join(part, column) for part, column in zip(_leaves(like), columns, strict=True))
    return cast("TreeT", _rebuild(like, rebuilt)), blocks[0].num_items


def _write(part: Any, stream: int) -> Iterator[bytes]:  # Any: a tensor, or the parts of a cache
    if isinstance(part, Tensor):
        yield _bytes(part[stream])
        return
    length = int(part["lengths"][stream])
    yield struct.pack("<q", length)
    for name in ("keys", "values"):
        yield _bytes(part[name][stream, :, :length])


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().tobytes()


def _read(payload: memoryview, like: object) -> list[Any]:
    """Return what a stream's payload holds: tensors, and (keys, values) of caches."""
    cursor, parts = 0, list[Any]()

    def take(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        nonlocal cursor
        size = prod(shape) * dtype.itemsize
        content = bytearray(payload[cursor : cursor + size])
        cursor += size
        if len(content) != size:
            raise StateError("this state is shorter than the items that it counts. Use an older copy of it.")
        return torch.frombuffer(content, dtype=dtype).view(shape) if size else torch.zeros(shape, dtype=dtype)

    for part in _leaves(like):
        if isinstance(part, Tensor):
            parts.append(take(tuple(part.shape[1:]), part.dtype))
            continue
        length = int(take((), torch.int64))
        shape = (part.keys.shape[1], length, part.keys.shape[3])
        parts.append((take(shape, part.keys.dtype), take(shape, part.values.dtype)))
    return parts


def _join(like: Any, column: tuple[Any, ...]) -> Any:  # Any: tensors or caches
    """Return the tensor or cache of all streams."""
    if isinstance(like, Tensor):
        return torch.stack(column).to(like.device)
    lengths = [keys.shape[1] for keys, _ in column]
    longest, device = max(lengths), like.keys.device

    def stack(place: int) -> Tensor:
        padded = [pad(pair[place], (0, 0, 0, longest - pair[place].shape[1])) for pair in column]
        return torch.stack(padded).to(device)

    return like.from_parts(
        {"keys": stack(0), "values": stack(1), "lengths": torch.tensor(lengths, device=device)}
    )


def _leaves(state: object) -> Iterator[Any]:
    """Walk through the tensors and caches of a state, which must be all that it holds."""
    if isinstance(state, Tensor | KVCache):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from _leaves(part)
    else:
        raise StateError(f"a state consists of tensors; got a {type(state).__name__}.")


def _tensors(state: object) -> Iterator[Tensor]:
    """Walk through the tensors of a state of constant size."""
    for leaf in _leaves(state):
        if not isinstance(leaf, Tensor):
            raise StateError(
                f"only states of a constant size lie in blocks of one layout; this model's has "
                f"a {type(leaf).__name__}, which grows. Use a model with mixer='aaren', or another "
                f"recurrent one."
            )
        yield leaf


def _grows(state: object) -> bool:
    return any(isinstance(leaf, KVCache) for leaf in _leaves(state))


def _describe(state: object) -> int:
    """Return the checksum of the layout of a state that grows."""
    parts = [
        [str(leaf.dtype), *leaf.shape[1:]]
        if isinstance(leaf, Tensor)
        else ["cache", str(leaf.keys.dtype), leaf.keys.shape[1], leaf.keys.shape[3]]
        for leaf in _leaves(state)
    ]
    return zlib.crc32(json.dumps(parts).encode())


def _rebuild(like: Any, parts: Iterator[Any]) -> Any:
    """Return a state of the same structure around other tensors and caches."""
    if isinstance(like, Tensor | KVCache):
        return next(parts)
    children = [_rebuild(part, parts) for part in like]
    return type(like)(*children) if hasattr(like, "_fields") else tuple(children)
