"""Mixer: what every layer that mixes over time can do, whatever it remembers. Knows no block and no stack.

A state is a NamedTuple of tensors whose first axis is the stream (b), passed in and handed back, never hidden
in the module. Whoever holds one treats it as a value: stepping twice from the same state gives two branches.

Packed sequences for mixers that know only batches: spread over a padded batch, mixed, and packed again.
"""

from typing import Generic, TypeAlias, TypeVar

import torch
from torch import nn

from aaren.nn.state import hash_weights, tensors_of
from aaren.ops.checks import check_bounds
from aaren.ops.packing import pad, pad_index, unpad
from aaren.shapes import Activations, LogDecay, Mask, SequenceBounds, Token, TokenMask

State: TypeAlias = tuple[object, ...]
StateT = TypeVar("StateT", bound=State)


class Mixer(nn.Module, Generic[StateT]):
    """A layer over time with two verbs: `forward` for a whole sequence, `step` for one item of every stream.

    Folding `step` equals `forward`; splitting a sequence anywhere and carrying the state changes nothing. A
    masked item is no item: it leaves the state as it was, and the output there is that of the prefix so far.
    """

    width: int

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> StateT:
        """Return the state before the first item, for `batch_size` streams."""
        raise NotImplementedError

    def forward(
        self,
        x: Activations,
        state: StateT | None = None,
        *,
        mask: Mask | None = None,
        log_decay: LogDecay | None = None,
        cu_seqlens: SequenceBounds | None = None,
    ) -> tuple[Activations, StateT]:
        """Take in a whole sequence and return every prefix's output, with the state after the last item."""
        raise NotImplementedError

    def step(
        self,
        x: Token,
        state: StateT,
        *,
        mask: TokenMask | None = None,
        log_decay: torch.Tensor | None = None,
    ) -> tuple[Token, StateT]:
        """Take in one item per stream; a stream whose mask is False keeps its state bit for bit."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return a name of the weights that make the states; a folded copy has the same."""
        return hash_weights(tensors_of(self))

    def fold(self) -> "Mixer[StateT]":
        """Return a frozen copy for inference, with all that is constant after training computed once."""
        raise NotImplementedError


def forward_packed(
    mixer: Mixer[StateT], x: Activations, state: StateT | None, mask: Mask | None, cu_seqlens: SequenceBounds
) -> tuple[Activations, StateT]:
    """Run `mixer.forward` on sequences end to end in one row, (1, t, c), as if they stood in a batch."""
    check_bounds(cu_seqlens, x.shape[1])
    index, is_real = pad_index(cu_seqlens)
    batch_mask = is_real if mask is None else is_real & pad(mask, index)
    outputs, state = mixer.forward(pad(x, index), state, mask=batch_mask)
    return unpad(outputs, is_real), state
