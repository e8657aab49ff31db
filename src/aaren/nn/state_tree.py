"""What can be done to any state, of a layer, a stack or a model: a tree of NamedTuples around tensors.

The first axis of every tensor is the stream. A state that holds more than tensors (KVCache) brings its own
`map_tensors`, `parts` and `from_parts`; everything here goes through these.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor

from aaren.nn.kv_cache import KVCache
from aaren.ops import ScanState
from aaren.ops.state import Target, settle_targets

TreeT = TypeVar("TreeT")


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


def detach(state: TreeT) -> TreeT:
    """Return the state cut off from the graph that made it, so that gradients stop there."""
    return map_tensors(Tensor.detach, state)


def clone(state: TreeT) -> TreeT:
    """Return a copy in its own memory."""
    return map_tensors(Tensor.clone, state)


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
