"""EventState: all that an event model remembers of its streams, as one value."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from aaren.nn import EncoderState, state_tree
from aaren.nn.state_bytes import state_from_bytes, state_to_bytes
from aaren.ops.state import Target, settle_targets


class EventState(NamedTuple):
    """Its size depends on the model and the number of streams, never on how many events have come."""

    encoder: EncoderState
    output: Tensor  # (b, c)  the encoder's last output; the next event's law is read from it
    time: Tensor  # (b,) float64  when the last event came; before the first: when observation began
    start: Tensor  # (b,) float64  when observation began, or the first event came if that is unknown
    num_events: Tensor  # (b,) int64  so far

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return state_tree.count_bytes(self)

    def to(
        self,
        *targets: Target,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> "EventState":
        """Return the state with its encoder's part in another dtype, all on another device, or both."""
        dtype, device = settle_targets(targets, dtype, device)
        moved = state_tree.convert(self, device=device)
        return moved._replace(encoder=moved.encoder.to(dtype=dtype))

    def detach(self) -> "EventState":
        """Return the state cut off from the graph that made it."""
        return state_tree.detach(self)

    def clone(self) -> "EventState":
        """Return a copy in its own memory."""
        return state_tree.clone(self)

    def select(self, streams: Sequence[int] | Tensor) -> "EventState":
        """Return the states of some streams, in the order given; an index may come twice, as a branch."""
        return state_tree.select(self, streams)

    def to_bytes(self, *, fingerprint: str = "") -> bytes:
        """Return the state as bytes that `from_bytes` checks; `fingerprint` names the model's weights."""
        return state_to_bytes(self, fingerprint=fingerprint)

    @classmethod
    def from_bytes(cls, blob: bytes, *, like: "EventState", fingerprint: str = "") -> "EventState":
        """Return the state that `to_bytes` wrote; `like` is any state of the model that is to go on."""
        return state_from_bytes(blob, like=like, fingerprint=fingerprint)
