"""Block: a mixer and a feed-forward part, each with its norm and residual; and what an encoder is made of.

post:  x = norm(x + dropout(mixer(x)));  x = norm(x + dropout(feed_forward(x)))     (the four base models)
pre:   x = x + dropout(mixer(norm(x)));  x = x + dropout(feed_forward(norm(x)))
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import ConfigError, unknown_name
from aaren.fields import build, faults_error, require_types, to_mapping
from aaren.nn.aaren import GATES, AarenAttention
from aaren.nn.checks import check_decay, require_divides, require_probability, wrong_kind
from aaren.nn.conv import CausalConv, Conv, ConvState
from aaren.nn.dropout import drop, gelu_and_drop
from aaren.nn.linear import LinearAttention, MinGRU, Retention
from aaren.nn.mixer import ACTIVATIONS, LayerState, Mixer, frozen_copy
from aaren.nn.recurrent import GRU, LSTM
from aaren.nn.softmax import SoftmaxAttention
from aaren.nn.wkv import WKV
from aaren.shapes import Activations, LogDecay, Mask, Token, TokenMask

MIXERS = ("aaren", "softmax", "gru", "lstm", "wkv", "linear", "retnet", "mingru")
HEADED = ("aaren", "softmax", "linear", "retnet")
# Options that not every mixer takes. So is num_heads, but it may stay when a mixer is exchanged by one word.
TAKEN_BY: dict[str, tuple[str, ...]] = {
    "qkv_bias": HEADED,
    "dropout_on": ("aaren", "softmax"),
    "decay": ("aaren",),
    "gates": ("aaren",),
}
POSITIONS = ("none", "sinusoid", "learned")
# The first head starts with the shorter, the last with the longer half-life; between them in even ratios.
# Different memories from the start, as heads that begin alike stay alike.
SHORTEST_HALF_LIFE_ITEMS = 32.0
LONGEST_HALF_LIFE_ITEMS = 2048.0


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderConfig:
    """What an `Encoder` is made of. Aaren and the Transformer differ in one word: `mixer`.

    >>> EncoderConfig(width=64, num_heads=5)
    Traceback (most recent call last):
    ...
    aaren.errors.ConfigError: num_heads must divide width: 64 is not a multiple of 5. Nearest that do: 4, 8.
    """

    width: int = 128  # model width c
    num_heads: int = 8  # must divide width; without meaning for gru, lstm, wkv, mingru
    num_layers: int = 2  # 0: a convolution stem alone, to see what the layers add to it
    ff_width: int | None = None  # inner width of the feed-forward part; default: 4 * width
    dropout: float = 0.1  # on what mixer and feed-forward add to the residual stream
    norm: str = "post"  # "post": norm(x + f(x)), as all four base models; "pre": x + f(norm(x))
    activation: str = "gelu"
    mixer: str = "aaren"  # softmax (the Transformer), gru, lstm, wkv (RWKV-4), linear, retnet, mingru
    qkv_bias: bool = True
    attention_dropout: float | None = None  # inside the mixer; default: the same as dropout
    dropout_on: str = (
        "weights"  # attention weights (forecasting, classification, events) or its "output" (rl)
    )
    ff_inner_dropout: bool = True  # also between the feed-forward part's two layers; rl: False
    norm_eps: float = 1e-5  # events: 1e-6
    final_norm: bool = False  # one more norm after the last block; forecasting, classification: True
    decay: str | None = None  # "learned": aaren only, every head learns how fast it forgets
    gates: str = "none"  # aaren only: "forget", "output" or "both", decided by every item
    conv: Conv | None = None  # a short causal convolution, in every block or as a stem
    position: str = "none"  # added to the input: "sinusoid", or "learned", a table
    max_positions: int = 1024  # rows of the learned table

    @classmethod
    def of(cls, config: object, **fixed: Any) -> "EncoderConfig":  # Any: the values of fields
        """Return the encoder's config of a model: what both configs name alike, and what the model fixes.

        Args:
            config: a dataclass, the model's config.
            **fixed: fields that are no choice in this model, or have another name in its config.
        """
        shared = {field.name for field in fields(cls)} & {field.name for field in fields(config)}  # type: ignore[arg-type]  # a dataclass
        return cls(**{name: getattr(config, name) for name in shared} | fixed)

    def __post_init__(self) -> None:
        """Report a setting that is unknown or contradicts another one."""
        require_types(self)
        if self.mixer in HEADED:
            require_divides("num_heads", self.num_heads, "width", self.width)
        for name, size in (
            ("width", self.width),
            ("ff_width", self.ff_width),
            ("max_positions", self.max_positions),
        ):
            if size is not None and size < 1:
                raise ConfigError(f"{name} must be at least 1; got {size}.")
        least = 0 if self.conv is not None and self.conv.where == "stem" else 1
        if self.num_layers < least:
            raise ConfigError(
                f"num_layers must be at least {least}; got {self.num_layers}. Only a stem, "
                f"conv=Conv(where='stem'), may stand alone."
            )
        for name, value in (("dropout", self.dropout), ("attention_dropout", self.attention_dropout)):
            if value is not None:
                require_probability(name, value)
        for kind, name, known in (
            ("mixer", self.mixer, MIXERS),
            ("activation", self.activation, ACTIVATIONS),
            ("norm", self.norm, ("post", "pre")),
            ("dropout_on", self.dropout_on, ("weights", "output")),
            ("position", self.position, POSITIONS),
            ("gates", self.gates, GATES),
        ):
            if name not in known:
                raise unknown_name(kind, name, known)
        channels = 0 if self.conv is None else self.conv.channels or 0
        if channels > self.width:
            raise ConfigError(
                f"a convolution mixes at most width={self.width} channels; got channels={channels}."
            )
        if self.decay not in (None, "learned"):
            raise unknown_name("decay", str(self.decay), ["learned"])
        self._refuse_unused()

    def _refuse_unused(self) -> None:
        """Report every option that the mixer does not take."""
        faults = [
            f"{field.name}={getattr(self, field.name)!r} (of {', '.join(TAKEN_BY[field.name])})"
            for field in fields(self)
            if self.mixer not in TAKEN_BY.get(field.name, MIXERS)
            and getattr(self, field.name) != field.default
        ]
        if faults:
            raise ConfigError(f"mixer={self.mixer!r} does not take {', '.join(faults)}. Leave it out.")

    def to_dict(self) -> dict[str, object]:
        """Return the fields as plain values, which JSON keeps.

        >>> EncoderConfig.from_dict(EncoderConfig(width=32).to_dict()) == EncoderConfig(width=32)
        True
        """
        return to_mapping(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> "EncoderConfig":
        """Return the config that `to_dict` wrote; missing fields have their defaults."""
        faults: list[str] = []
        config = build(cls, values, faults)
        if config is None:
            raise faults_error(faults, "EncoderConfig")
        return config

    @property
    def inner_width(self) -> int:
        """Return the feed-forward part's inner width, its default resolved."""
        return 4 * self.width if self.ff_width is None else self.ff_width

    @property
    def mixer_dropout(self) -> float:
        """Return the dropout inside the mixer, its default resolved."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout


class BlockState(NamedTuple):
    """What a block with a convolution remembers; without one, a block's state is its mixer's."""

    conv: ConvState
    mixer: LayerState


class Block(nn.Module):
    """One layer of an encoder, around any mixer; it has the mixer's methods and the mixer's state.

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
        self.conv: CausalConv | None = None
        if config.conv is not None and config.conv.where == "block":
            self.conv = build_conv(config, device=device, dtype=dtype)
        self.decay: LearnedDecay | None = None
        if config.decay == "learned":
            self.decay = LearnedDecay(config.num_heads, device=device, dtype=dtype)

    def extra_repr(self) -> str:
        return f"norm={'pre' if self.is_pre_norm else 'post'}, dropout={self.dropout}"

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> LayerState:
        """Return the mixer's state before the first item, and the convolution's if there is one."""
        state = self.mixer.init_state(batch_size, dtype=dtype, device=device)
        if self.conv is None:
            return state
        return BlockState(self.conv.init_state(batch_size, dtype=dtype, device=device), state)

    def forward(
        self,
        x: Activations,
        state: LayerState | None = None,
        *,
        mask: Mask | None = None,
        log_decay: LogDecay | None = None,
    ) -> tuple[Activations, LayerState]:
        """Transform a whole sequence (b, t, c); a learned decay adds to `log_decay`."""
        if self.decay is not None:
            log_decay = _add_decay(self.decay(tuple(x.shape[:-1])), log_decay, mask)
        items = self.mixer_norm(x) if self.is_pre_norm else x
        tail, inner = None, state
        if self.conv is not None:
            tail, inner = (None, None) if state is None else _parts(state)
            items, tail = self.conv(items, tail, mask=mask)
        mixed, inner = self.mixer(items, inner, mask=mask, log_decay=log_decay)
        return self._finish(x, mixed), inner if tail is None else BlockState(tail, inner)

    def step(
        self, x: Token, state: LayerState, *, mask: TokenMask | None = None, log_decay: Tensor | None = None
    ) -> tuple[Token, LayerState]:
        """Transform one item per stream, (b, c)."""
        if self.decay is not None:
            log_decay = _add_decay(self.decay(tuple(x.shape[:-1])), log_decay, mask)
        items = self.mixer_norm(x) if self.is_pre_norm else x
        tail, inner = None, state
        if self.conv is not None:
            tail, inner = _parts(state)
            items, tail = self.conv.step(items, tail, mask=mask)
        mixed, inner = self.mixer.step(items, inner, mask=mask, log_decay=log_decay)
        return self._finish(x, mixed), inner if tail is None else BlockState(tail, inner)

    def fold(self) -> "Block":
        """Return a frozen copy for inference, its mixer folded."""
        folded = frozen_copy(self)
        folded.mixer = self.mixer.fold()
        return folded

    def _finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + (drop(mixed, self.dropout) if self.training else mixed)
        if not self.is_pre_norm:
            x = self.mixer_norm(x)
        added = self.feed_forward(self.feed_forward_norm(x) if self.is_pre_norm else x)
        x = x + (drop(added, self.dropout) if self.training else added)
        return x if self.is_pre_norm else self.feed_forward_norm(x)


def _parts(state: LayerState) -> tuple[ConvState, LayerState]:
    """Return the states of a block's convolution and of its mixer."""
    if not isinstance(state, BlockState):
        raise wrong_kind(BlockState, state)
    return state.conv, state.mixer


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
        return f"activation={self.activation!r}, inner_dropout={self.inner_dropout}"

    def forward(self, x: Tensor) -> Tensor:
        """Transform each item, (*, c), by itself."""
        inner: Tensor = self.widen(x)
        if self.training and self.activation == "gelu":
            inner = gelu_and_drop(inner, self.inner_dropout)
        else:
            inner = ACTIVATIONS[self.activation](inner)
            inner = drop(inner, self.inner_dropout) if self.training else inner
        narrowed: Tensor = self.narrow(inner)
        return narrowed


class LearnedDecay(nn.Module):
    """log_decay = -softplus(rate) for every item; the operator leaves padding out.

    >>> log_decay = LearnedDecay(1)((1, 2))
    >>> (log_decay.exp() ** 32).round(decimals=4).flatten().tolist()  # after 32 items
    [0.5, 0.5]
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
        return f"num_heads={self.num_heads}"

    def forward(self, shape: tuple[int, ...]) -> LogDecay:
        """Return log_decay (*shape, h)."""
        log_decay: Tensor = -F.softplus(self.rate)
        return log_decay.expand(*shape, self.num_heads)


def build_mixer(
    config: EncoderConfig, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> Mixer[LayerState]:
    """Build the mixer that the config names."""
    width, dropout = config.width, config.mixer_dropout
    plain: dict[str, Callable[..., nn.Module]] = {"gru": GRU, "lstm": LSTM, "wkv": WKV, "mingru": MinGRU}
    linear = {"linear": LinearAttention, "retnet": Retention}
    mixer: nn.Module
    if config.mixer in plain:
        mixer = plain[config.mixer](width, dropout=dropout, device=device, dtype=dtype)
    elif config.mixer in linear:
        mixer = linear[config.mixer](
            width, config.num_heads, qkv_bias=config.qkv_bias, dropout=dropout, device=device, dtype=dtype
        )
    elif config.mixer == "softmax":
        mixer = SoftmaxAttention(
            width,
            config.num_heads,
            qkv_bias=config.qkv_bias,
            dropout=dropout,
            dropout_on=config.dropout_on,
            device=device,
            dtype=dtype,
        )
    else:
        mixer = AarenAttention(
            width,
            config.num_heads,
            gates=config.gates,
            qkv_bias=config.qkv_bias,
            dropout=dropout,
            dropout_on=config.dropout_on,
            device=device,
            dtype=dtype,
        )
    return cast("Mixer[LayerState]", mixer)


def build_conv(
    config: EncoderConfig, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> CausalConv:
    """Build the convolution that the config asks for; what a block gives it is normalised already."""
    assert config.conv is not None
    return CausalConv(
        config.width,
        config.conv,
        activation=config.activation,
        has_norm=config.conv.where == "stem",
        norm_eps=config.norm_eps,
        device=device,
        dtype=dtype,
    )


def _add_decay(learned: Tensor, log_decay: Tensor | None, mask: Tensor | None) -> Tensor:
    check_decay(log_decay, tuple(learned.shape), mask)
    return learned if log_decay is None else learned + log_decay
