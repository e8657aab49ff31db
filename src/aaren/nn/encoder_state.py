"""EncoderState: what a stack of layers remembers of its streams, as one value."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from aaren.nn import state_tree
from aaren.nn.state_bytes import state_from_bytes, state_to_bytes
from aaren.ops.state import Target


class EncoderState(NamedTuple):
    """The states of all layers, first to last."""

    layers: tuple[tuple[object, ...], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, all layers together."""
        return state_tree.count_bytes(self)

    def to(
        self,
        *targets: Target,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> "EncoderState":
        """Return the state in another floating dtype, on another device, or both, as a tensor's `to` does."""
        return state_tree.convert(self, *targets, dtype=dtype, device=device)

    def detach(self) -> "EncoderState":
        """Return the state cut off from the graph that made it."""
        return state_tree.detach(self)

    def clone(self) -> "EncoderState":
        """Return a copy in its own memory."""
        return state_tree.clone(self)

    def select(self, streams: Sequence[int] | Tensor) -> "EncoderState":
        """Return the states of some streams, in the order given; an index may come twice."""
        return state_tree.select(self, streams)

    def to_bytes(self, *, fingerprint: str = "") -> bytes:
        """Return the state as bytes that `from_bytes` checks; `fingerprint` names the model's weights."""
        return state_to_bytes(self, fingerprint=fingerprint)

    @classmethod
    def from_bytes(cls, blob: bytes, *, like: "EncoderState", fingerprint: str = "") -> "EncoderState":
        """Return the state that `to_bytes` wrote.

        Args:
            blob: what `to_bytes` returned.
            like: any state of the model that is to go on, for instance `encoder.init_state(1)`: sizes must
                agree.
            fingerprint: `encoder.fingerprint()`, to refuse a state that other weights made; "" does not ask.
        """
        return state_from_bytes(blob, like=like, fingerprint=fingerprint)
