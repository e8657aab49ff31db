"""Mixer: the interface of every layer that mixes over time.

A state is a NamedTuple of tensors whose first axis is the stream (b), passed in and handed back, never hidden
in the module. It is a value: stepping twice from the same state gives two branches.

Also what mixers share: frozen copies for inference, and when a projection's weight may be read.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from aaren.errors import ConfigError
from aaren.nn.checks import (
    check_sequence,
    check_token,
    hide_padding,
    refuse_decay,
    refuse_dynamic_length,
    require_divides,
    require_probability,
    require_size,
)
from aaren.nn.dropout import drop
from aaren.nn.state import hash_weights, tensors_of
from aaren.ops.tracing import is_traced
from aaren.shapes import Activations, LogDecay, Mask, Token, TokenMask

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}
LayerState: TypeAlias = tuple[object, ...]
StateT = TypeVar("StateT", bound=LayerState)
ModuleT = TypeVar("ModuleT", bound=nn.Module)


class Mixer(nn.Module, Generic[StateT]):
    """A layer over time: `forward` for a whole sequence, `step` for one item of every stream.

    Repeated `step` equals `forward`; splitting a sequence anywhere and carrying the state changes nothing. A
    masked item is ignored: it leaves the state as it was, and the output there is that of the prefix so far.
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


class ProjectedAttention(Mixer[StateT]):
    """What Aaren and the Transformer's layer share: heads, four projections, dropout."""

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        qkv_bias: bool,
        dropout: float,
        dropout_on: str,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        require_divides("num_heads", num_heads, "width", width)
        require_probability("dropout", dropout)
        if dropout_on not in ("weights", "output"):
            raise ConfigError(f"dropout_on must be 'weights' or 'output'; got {dropout_on!r}.")
        super().__init__()
        self.width = width
        self.num_heads = num_heads
        self.head_width = width // num_heads
        self.dropout = dropout
        self.dropout_on = dropout_on
        self.q_proj = nn.Linear(width, width, bias=qkv_bias, device=device, dtype=dtype)
        self.k_proj = nn.Linear(width, width, bias=qkv_bias, device=device, dtype=dtype)
        self.v_proj = nn.Linear(width, width, bias=qkv_bias, device=device, dtype=dtype)
        self.out_proj = nn.Linear(width, width, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw all parameters again, as the constructor does."""
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            projection.reset_parameters()

    def extra_repr(self) -> str:
        return (
            f"width={self.width}, num_heads={self.num_heads}, "
            f"dropout={self.dropout}, dropout_on={self.dropout_on!r}"
        )

    def _finish_values(self, values: Activations) -> Activations:
        """Apply dropout to the heads' outputs, if asked to, and project them."""
        if self.training and self.dropout_on == "output":
            values = drop(values, self.dropout)
        projected: Activations = self.out_proj(values)
        return projected


class PlainMixer(Mixer[StateT]):
    """The common part of mixers that take no decay from outside.

    Args:
        width: c.
        dropout: while training.
    """

    name: str  # the config's word for it
    has_loop = True  # whether it goes through time in a loop, which torch.export unrolls

    def __init__(self, width: int, dropout: float) -> None:
        require_size("width", width)
        require_probability("dropout", dropout)
        super().__init__()
        self.width = width
        self.dropout = dropout

    def extra_repr(self) -> str:
        return f"width={self.width}, dropout={self.dropout}"

    def forward(
        self,
        x: Activations,
        state: StateT | None = None,
        *,
        mask: Mask | None = None,
        log_decay: LogDecay | None = None,
    ) -> tuple[Activations, StateT]:
        """Take in a whole sequence, (b, t, c); `log_decay` is refused: the layer has its own decay."""
        check_sequence(x, self.width, mask)
        refuse_decay(log_decay, self.name)
        if self.has_loop:
            refuse_dynamic_length(x, self.name)
        if state is None:
            state = self.init_state(x.shape[0], device=x.device)
        self._check_state(state, x.shape[0])
        return self._run_sequence(hide_padding(x, mask), state, mask)

    def step(
        self,
        x: Token,
        state: StateT,
        *,
        mask: TokenMask | None = None,
        log_decay: Tensor | None = None,
    ) -> tuple[Token, StateT]:
        """Take in one item per stream, (b, c); a stream whose mask is False keeps its state bit for bit."""
        check_token(x, self.width, mask)
        refuse_decay(log_decay, self.name)
        self._check_state(state, x.shape[0])
        return self._run_item(hide_padding(x, mask), state, mask)

    def fold(self) -> "PlainMixer[StateT]":
        """Return a frozen copy; there is nothing to fold."""
        return frozen_copy(self)

    def _run_sequence(self, x: Activations, state: StateT, mask: Mask | None) -> tuple[Activations, StateT]:
        """Mix a whole sequence, its padding set to 0."""
        raise NotImplementedError

    def _run_item(self, x: Token, state: StateT, mask: TokenMask | None) -> tuple[Token, StateT]:
        """Mix one item per stream, 0 where the mask is False."""
        raise NotImplementedError

    def _check_state(self, state: StateT, batch_size: int) -> None:
        """Raise unless the state is one of this layer and this many streams."""
        raise NotImplementedError


def is_right_padded(mask: Mask) -> bool:
    """Tell whether all padding follows all real items; in a trace, where values are unknown, False."""
    if is_traced():
        return False
    return not bool((mask[:, 1:] & ~mask[:, :-1]).any())


def any_weight(module: nn.Module) -> Tensor:
    """Return some weight, for its dtype and device; a module that was quantised may have none left."""
    return next((part for part in module.parameters() if part.is_floating_point()), torch.empty(0))


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
    require_plain(module)
    return copy.deepcopy(module).requires_grad_(False).eval()


def require_plain(module: nn.Module, linear: Iterable[str] = ()) -> None:
    """Raise if a part has hooks or parametrizations, or if a child named in `linear` is no plain layer."""
    if any(parameter.is_meta for parameter in module.parameters()):
        raise ConfigError(
            "fold computes with the weights; these are on the meta device, without memory. Load them with "
            "to_empty(device='cpu') and load_state_dict, then fold."
        )
    for name, part in module.named_modules():
        is_ours = type(part).__module__.startswith("aaren.")  # a head that has a linear layer's weights
        is_linear = name in linear or (isinstance(part, nn.Linear) and not is_ours)
        is_changed = is_linear and not is_plain(part)
        if is_changed or part._forward_hooks or part._forward_pre_hooks or is_parametrized(part):
            raise ConfigError(
                f"fold needs plain layers; {name or 'the module'} ({type(part).__name__}) is or has an "
                f"adapter, a hook, a parametrization or quantised weights. Merge adapters first, make "
                f"pruning and weight_norm permanent, and remove hooks."
            )
