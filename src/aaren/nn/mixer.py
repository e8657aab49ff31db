"""Mixer: what every layer that mixes over time can do, whatever it remembers.

A state is a NamedTuple of tensors whose first axis is the stream (b), passed in and handed back, never hidden
in the module. Whoever holds one treats it as a value: stepping twice from the same state gives two branches.

Beside it what mixers share: packed sequences for those that know only batches, frozen copies for inference,
and when a projection's weight may be read instead of calling it.
"""

import copy
from typing import Generic, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from aaren.errors import ConfigError
from aaren.nn.state import hash_weights, tensors_of
from aaren.ops.checks import check_bounds
from aaren.ops.packing import pad, pad_index, unpad
from aaren.shapes import Activations, LogDecay, Mask, SequenceBounds, Token, TokenMask

LayerState: TypeAlias = tuple[object, ...]
StateT = TypeVar("StateT", bound=LayerState)
ModuleT = TypeVar("ModuleT", bound=nn.Module)


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


def is_plain(projection: nn.Module) -> bool:
    """Tell whether a projection is its weight and bias and nothing else, so that these may be read.

    An adapter (LoRA), a hook, a parametrization, pruning, `weight_norm` and quantisation make it another
    function of its input: then only its call is right.

    >>> is_plain(nn.Linear(2, 2)), is_plain(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    (True, False)
    """
    return (
        type(projection) is nn.Linear
        and "forward" not in vars(projection)
        and not (projection._forward_hooks or projection._forward_pre_hooks)
        and not (projection._backward_hooks or projection._backward_pre_hooks)
        and not hasattr(projection.weight, "__tensor_flatten__")  # a wrapper, as quantised weights are
    )


def frozen_copy(module: ModuleT) -> ModuleT:
    """Return a copy for inference: no gradients, no dropout."""
    for name, part in module.named_modules():
        if hasattr(part, "step"):
            refuse_hooks(part, name)
    # `weight_norm`, `spectral_norm` and pruning keep a computed weight beside its parameters, which PyTorch
    # refuses to copy while it remembers how it was computed.
    memo: dict[int, object] = {
        id(value): value.detach().clone()
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    return copy.deepcopy(module, memo).requires_grad_(False).eval()


def refuse_hooks(part: nn.Module, name: str) -> None:
    """Raise if a part that a stream does not go through by its call has forward hooks."""
    if part._forward_hooks or part._forward_pre_hooks:
        raise ConfigError(
            f"{name or 'the model'} ({type(part).__name__}) has a forward hook, or pruning or weight_norm "
            f"that works by one. A stream goes step by step, not through `forward`, and would leave it out. "
            f"Remove it, put it on a layer inside, or use torch.nn.utils.parametrize."
        )
