"""StateLayout: the state of a stream as bytes of a fixed number, and the states of many as rows of a block.

The bytes are those of the native engine, which steps blocks as they are.
"""

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.errors import StateError
from aaren.nn import KVCache
from aaren.nn.state import map_tensors
from aaren.stream.native.engine import view_leaf
from aaren.stream.native.program import Leaf

WORD = 8  # bytes; the size of a state is a multiple
Words: TypeAlias = NDArray[np.uint64]  # (b, words): the states of b streams


class StateLayout:
    """How states become bytes, and bytes states.

    Args:
        like: any state of the model, of one stream.
    """

    def __init__(self, like: object) -> None:
        self.like = like
        self.parts: list[Leaf] = []
        end = 0
        for tensor in _leaves(like):
            size = tensor.element_size()
            begin = -(-end // size) * size
            end = begin + tensor[0].numel() * size
            self.parts.append(Leaf(begin, tuple(tensor.shape[1:]), tensor.dtype))
        self.nbytes = -(-end // WORD) * WORD
        self.empty = self.pack(like)  # (1, nbytes)

    def pack(self, state: object) -> Tensor:
        """Return the states of b streams as bytes, (b, nbytes) uint8."""
        tensors = list(_leaves(state))
        block = torch.zeros(len(tensors[0]), self.nbytes, dtype=torch.uint8)
        for part, tensor in zip(self.parts, tensors, strict=True):
            if tensor.dtype != part.dtype or tuple(tensor.shape[1:]) != part.shape:
                raise StateError(
                    f"a pool holds states that keep their size: expected {part.shape} of {part.dtype}, as "
                    f"before the first item; after it came {tuple(tensor.shape[1:])} of {tensor.dtype}."
                )
            view_leaf(block, part).copy_(tensor)
        return block

    def unpack(self, block: Tensor) -> Any:
        """Return the states in bytes, as the model takes them."""
        views = (view_leaf(block, part) for part in self.parts)
        return _rebuild(self.like, (view.clone(memory_format=torch.contiguous_format) for view in views))

    def describe(self) -> str:
        """Return the layout as text, to be kept with the bytes."""
        return json.dumps([[str(part.dtype), *part.shape] for part in self.parts])


def _leaves(state: object) -> Iterator[Tensor]:
    """Walk through the tensors of a state, which must be all that it holds."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple) and not isinstance(state, KVCache):
        for part in state:
            yield from _leaves(part)
    else:
        raise StateError(
            f"a pool holds states of a constant size; this model's has a {type(state).__name__}, which grows "
            f"or is shared by all streams. Use a model with mixer='aaren', or another recurrent one."
        )


def _rebuild(like: object, tensors: Iterator[Tensor]) -> Any:
    """Return a state of the same structure around other tensors."""
    return map_tensors(lambda _: next(tensors), like)


def as_bytes(block: Words) -> Tensor:
    """View states (b, words) as their bytes (b, nbytes)."""
    return torch.from_numpy(block.view(np.uint8))


def as_words(content: Tensor) -> Words:
    """View bytes (b, nbytes) as words, which are copied faster."""
    found: Words = content.numpy().view(np.uint64)
    return found
