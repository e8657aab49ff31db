"""FeedForward: two linear layers with an activation between, on each item by itself.

LearnedDecay: how fast each head forgets, per item, as one learned number per head.

Block: a mixer over time and a feed-forward part, each with its residual, norm and dropout. Knows no stack.

post:  x = norm(x + dropout(mixer(x)));  x = norm(x + dropout(feed_forward(x)))     (the four base models)
pre:   x = x + dropout(mixer(norm(x)));  x = x + dropout(feed_forward(norm(x)))
"""

import functools
import math
from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.nn.aaren import AarenAttention
from aaren.nn.dropout import drop
from aaren.nn.encoder_config import EncoderConfig
from aaren.nn.inputs import check_decay
from aaren.nn.linear import frozen_copy
from aaren.nn.mixer import Mixer, State
from aaren.nn.recurrent import GRU, LSTM
from aaren.nn.softmax import SoftmaxAttention
from aaren.nn.wkv import WKV
from aaren.shapes import Activations, LogDecay, Mask, SequenceBounds, Token, TokenMask

ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}


class FeedForward(nn.Module):
    """Widen, activate, (drop,) narrow.

    >>> FeedForward(8, 32)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        width: int,
        inner_width: int,
        *,
        activation: str = "gelu",
        inner_dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.inner_dropout = inner_dropout
        self.widen = nn.Linear(width, inner_width, device=device, dtype=dtype)
        self.narrow = nn.Linear(inner_width, width, device=device, dtype=dtype)

    def extra_repr(self) -> str:
        """Describe what the submodules do not show."""
        return f"activation={self.activation!r}, inner_dropout={self.inner_dropout}"

    def forward(self, x: Tensor) -> Tensor:
        """Transform each item, (*, c), by itself."""
        inner: Tensor = ACTIVATION_FUNCTIONS[self.activation](self.widen(x))
        if self.training:
            inner = drop(inner, self.inner_dropout)
        narrowed: Tensor = self.narrow(inner)
        return narrowed


# The first head starts with the shorter, the last with the longer half-life; between them in even ratios.
# Different memories from the start, as heads that begin alike stay alike.
SHORTEST_HALF_LIFE_ITEMS = 32.0
LONGEST_HALF_LIFE_ITEMS = 2048.0


class LearnedDecay(nn.Module):
    """log_decay = -softplus(rate) for every real item, 0 on padding.

    >>> log_decay = LearnedDecay(1)((1, 3), mask=torch.tensor([[True, True, False]]))
    >>> (log_decay.exp() ** 32).round(decimals=4).flatten().tolist()  # after 32 items; padding is free
    [0.5, 0.5, 1.0]
    """

    def __init__(
        self, num_heads: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.rate = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Spread the heads' half-lives evenly (in ratio) over the range above."""
        exponents = torch.linspace(
            math.log(SHORTEST_HALF_LIFE_ITEMS), math.log(LONGEST_HALF_LIFE_ITEMS), self.num_heads
        )
        decay_per_item = math.log(2) / exponents.exp()
        self.rate.copy_(decay_per_item.expm1().log())  # the inverse of softplus

    def extra_repr(self) -> str:
        """Describe the module."""
        return f"num_heads={self.num_heads}"

    def forward(self, shape: tuple[int, ...], mask: Mask | None = None) -> LogDecay:
        """Return log_decay (*shape, h); padding does not decay."""
        log_decay: Tensor = -F.softplus(self.rate)
        log_decay = log_decay.expand(*shape, self.num_heads)
        return log_decay if mask is None else log_decay.masked_fill(~mask.unsqueeze(-1), 0.0)


class Block(nn.Module):
    """One layer of an encoder, around any mixer; the same verbs as the mixer's, and the mixer's own state.

    >>> config = EncoderConfig(width=512, num_heads=4, ff_width=2048)
    >>> sum(p.numel() for p in Block(config).parameters())  # the paper's section 4.5
    3152896
    """

    def __init__(
        self,
        config: EncoderConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.is_pre_norm = config.norm == "pre"
        self.dropout = config.dropout
        self.mixer = build_mixer(config, device=device, dtype=dtype)
        self.mixer_norm = nn.LayerNorm(config.width, eps=config.norm_eps, device=device, dtype=dtype)
        self.feed_forward = FeedForward(
            config.width,
            config.inner_width,
            activation=config.activation,
            inner_dropout=config.dropout if config.ff_inner_dropout else 0.0,
            device=device,
            dtype=dtype,
        )
        self.feed_forward_norm = nn.LayerNorm(config.width, eps=config.norm_eps, device=device, dtype=dtype)
        self.decay: LearnedDecay | None = None
        if config.decay == "learned":
            self.decay = LearnedDecay(config.num_heads, device=device, dtype=dtype)

    def extra_repr(self) -> str:
        """Describe what the submodules do not show."""
        return f"norm={'pre' if self.is_pre_norm else 'post'}, dropout={self.dropout}"

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> State:
        """Return the mixer's state before the first item."""
        return self.mixer.init_state(batch_size, dtype=dtype, device=device)

    def forward(
        self,
        x: Activations,
        state: State | None = None,
        *,
        mask: Mask | None = None,
        log_decay: LogDecay | None = None,
        cu_seqlens: SequenceBounds | None = None,
    ) -> tuple[Activations, State]:
        """Transform a whole sequence (b, t, c); a learned decay adds to `log_decay`."""
        log_decay = self._total_decay(x, mask, log_decay)
        mixed, state = self.mixer(
            self.mixer_norm(x) if self.is_pre_norm else x,
            state,
            mask=mask,
            log_decay=log_decay,
            cu_seqlens=cu_seqlens,
        )
        return self._finish(x, mixed), cast("State", state)

    def step(
        self, x: Token, state: State, *, mask: TokenMask | None = None, log_decay: Tensor | None = None
    ) -> tuple[Token, State]:
        """Transform one item per stream, (b, c)."""
        log_decay = self._total_decay(x, mask, log_decay)
        mixed, state = self.mixer.step(
            self.mixer_norm(x) if self.is_pre_norm else x, state, mask=mask, log_decay=log_decay
        )
        return self._finish(x, mixed), state

    def fold(self) -> "Block":
        """Return a frozen copy for inference, its mixer folded."""
        folded = frozen_copy(self)
        folded.mixer = self.mixer.fold()
        return folded

    def _total_decay(self, x: Tensor, mask: Tensor | None, log_decay: Tensor | None) -> Tensor | None:
        if self.decay is None:
            return log_decay
        learned: Tensor = self.decay(tuple(x.shape[:-1]), mask)
        check_decay(log_decay, tuple(learned.shape))
        return learned if log_decay is None else learned + log_decay

    def _finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + self._drop(mixed)
        if not self.is_pre_norm:
            x = self.mixer_norm(x)
        added = self._drop(self.feed_forward(self.feed_forward_norm(x) if self.is_pre_norm else x))
        x = x + added
        return x if self.is_pre_norm else self.feed_forward_norm(x)

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout) if self.training else x


def build_mixer(
    config: EncoderConfig, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> Mixer[State]:
    """Build the mixer that the config names."""
    factory: dict[str, torch.device | str | torch.dtype | None] = {"device": device, "dtype": dtype}
    recurrent: dict[str, Callable[..., nn.Module]] = {"gru": GRU, "lstm": LSTM, "wkv": WKV}
    if config.mixer in recurrent:
        mixer = recurrent[config.mixer](config.width, dropout=config.mixer_dropout, **factory)
        return cast("Mixer[State]", mixer)
    attention: Callable[..., nn.Module] = AarenAttention
    if config.mixer == "softmax":
        attention = functools.partial(SoftmaxAttention, window=config.window)
    mixer = attention(
        config.width,
        config.num_heads,
        qkv_bias=config.qkv_bias,
        out_bias=config.out_bias,
        dropout=config.mixer_dropout,
        dropout_on=config.dropout_on,
        **factory,
    )
    return cast("Mixer[State]", mixer)
