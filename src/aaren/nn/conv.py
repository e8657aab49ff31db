"""Short causal convolutions along a stream: what comes out at an item depends on it and a few before it.

An Aaren layer without decay sees a set: the order of the items has no effect. A convolution in front of it
sees the order, and all that a stream must keep for it is a tail: the last (kernel - 1) * dilation rows of
what it reads. Masked items do not enter the tail, so a real item sees the real items before it.

    x = x + activation(taps(narrow(norm(x))))     once per dilation; zeros stand before the first item

(Dilated causal convolutions: van den Oord et al., 2016, "WaveNet"; short ones before a mixer over time: Fu
et al., 2023, "Hungry Hungry Hippos".)
"""

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import ConfigError, StateError, unknown_name
from aaren.fields import require_types
from aaren.nn.checks import hide_padding, wrong_kind
from aaren.nn.mixer import ACTIVATIONS, any_weight, is_plain, is_right_padded
from aaren.shapes import Activations, Mask, Token, TokenMask


@dataclass(frozen=True, kw_only=True, slots=True)
class Conv:
    """A short causal convolution of an `Encoder`: before every mixer, or once before the first block.

    A stream keeps (kernel - 1) * sum(dilations) * channels numbers at each place. A wide reach is cheap with
    few channels: kernel 9, dilations 1, 2, 4, 8 and 8 channels take 3,840 bytes in float32, 64 take 30,720.

    >>> Conv(kernel=1)
    Traceback (most recent call last):
    ...
    aaren.errors.ConfigError: kernel must be at least 2, the item and one before it; got 1.
    """

    kernel: int = 4  # items that one convolution sees, the current one included
    dilations: tuple[int, ...] = (1,)  # one convolution after the other, each with its distance between taps
    where: str = "block"  # "block": before every mixer; "stem": once, before the first block
    channels: int | None = (
        None  # None: every channel by itself (depthwise); n: it mixes n channels, at most c
    )

    def __post_init__(self) -> None:
        """Report a setting that makes no convolution."""
        require_types(self)
        if self.kernel < 2:
            raise ConfigError(f"kernel must be at least 2, the item and one before it; got {self.kernel}.")
        if not self.dilations or min(self.dilations) < 1:
            raise ConfigError(
                f"dilations must hold at least one distance, each at least 1; got {list(self.dilations)}."
            )
        if self.where not in ("block", "stem"):
            raise unknown_name("conv.where", self.where, ["block", "stem"])
        if self.channels is not None and self.channels < 1:
            raise ConfigError(
                f"channels must be at least 1; got {self.channels}. For every channel by itself, leave it "
                f"out."
            )


class ConvState(NamedTuple):
    """What a stack of convolutions remembers of a stream, however long it was."""

    tails: tuple[
        Tensor, ...
    ]  # per dilation: the last rows that it read, (b, (kernel - 1) * dilation, channels)


class CausalConv(nn.Module):
    """Convolutions along a stream with the methods of a mixer, one per dilation, each added to its input.

    Args:
        width: c, of what comes in and goes out.
        conv: kernel, dilations and channels.
        activation: of what is added.
        has_norm: whether each convolution normalises what it reads.
        norm_eps: of these norms.
        device: where the parameters are made.
        dtype: what they are made of.

    >>> conv = CausalConv(8, Conv(kernel=3, dilations=(1, 2)))
    >>> y, state = conv(torch.randn(2, 10, 8))
    >>> [tuple(tail.shape) for tail in state.tails]
    [(2, 2, 8), (2, 4, 8)]
    """

    def __init__(
        self,
        width: int,
        conv: Conv,
        *,
        activation: str = "gelu",
        has_norm: bool = True,
        norm_eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if conv.channels is not None and conv.channels > width:
            raise ConfigError(
                f"channels of a convolution are at most width, {width}, which needs no projection; got "
                f"{conv.channels}."
            )
        self.levels = nn.ModuleList(
            ConvLevel(
                width,
                conv.kernel,
                dilation,
                channels=conv.channels,
                activation=activation,
                norm_eps=norm_eps if has_norm else None,
                device=device,
                dtype=dtype,
            )
            for dilation in conv.dilations
        )

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> ConvState:
        """Return tails of zeros, in the weights' dtype unless asked otherwise: nothing adds up in them."""
        return ConvState(
            tuple(level.init_tail(batch_size, dtype=dtype, device=device) for level in self._levels())
        )

    def forward(
        self,
        x: Activations,
        state: ConvState | None = None,
        *,
        mask: Mask | None = None,
    ) -> tuple[Activations, ConvState]:
        """Convolve a whole sequence, (b, t, c)."""
        tails: tuple[Tensor | None, ...] = (None,) * len(self.levels)
        if state is not None:
            tails = self._checked(state)
        order = None if mask is None or is_right_padded(mask) else RealFirst(mask)
        x = hide_padding(x, mask)
        if order is not None:
            x = order.gather(x)
        counts = None if mask is None else mask.sum(1)
        kept = []
        for level, tail in zip(self.levels, tails, strict=True):
            x, tail = level(x, tail, counts)
            kept.append(tail)
        return (x if order is None else order.scatter(x)), ConvState(tuple(kept))

    def step(self, x: Token, state: ConvState, *, mask: TokenMask | None = None) -> tuple[Token, ConvState]:
        """Convolve one item per stream, (b, c); a stream whose mask is False keeps its tails bit for bit."""
        x = hide_padding(x, mask)
        kept = []
        for level, tail in zip(self._levels(), self._checked(state), strict=True):
            x, new = level.step(x, tail)
            kept.append(new if mask is None else torch.where(mask[:, None, None], new, tail))
        return x, ConvState(tuple(kept))

    def _levels(self) -> "list[ConvLevel]":
        return list(self.levels)  # type: ignore[arg-type]  # a ModuleList knows modules only

    def _checked(self, state: ConvState) -> tuple[Tensor, ...]:
        if not isinstance(state, ConvState):
            raise wrong_kind(ConvState, state)
        if len(state.tails) != len(self.levels):
            raise StateError(
                f"these convolutions have {len(self.levels)} dilations; the state has {len(state.tails)}. "
                f"A state fits only the model it was made by: start again with init_state."
            )
        return state.tails


class RealFirst:
    """The order in which each sequence's real items come first, and back."""

    def __init__(self, mask: Mask) -> None:
        self.order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)
        self.place = (mask.cumsum(1) - 1).clamp(min=0)  # of each real item among these

    def gather(self, x: Activations) -> Activations:
        """Move the real items to the front."""
        return x.gather(1, self.order.unsqueeze(-1).expand_as(x))

    def scatter(self, x: Activations) -> Activations:
        """Move the items back; padding gets what its latest real item has."""
        return x.gather(1, self.place.unsqueeze(-1).expand_as(x))


class ConvLevel(nn.Module):
    """One causal convolution with its tail, added to its input."""

    def __init__(
        self,
        width: int,
        kernel: int,
        dilation: int,
        *,
        channels: int | None,
        activation: str,
        norm_eps: float | None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.dilation = dilation
        self.tail_shape = ((kernel - 1) * dilation, channels or width)
        self.norm: nn.LayerNorm | None = None
        if norm_eps is not None:
            self.norm = nn.LayerNorm(width, eps=norm_eps, device=device, dtype=dtype)
        self.narrow: nn.Linear | None = None
        if channels is not None and channels < width:
            self.narrow = nn.Linear(width, channels, bias=False, device=device, dtype=dtype)
        self.taps: nn.Module
        if channels is None:
            self.taps = Depthwise(width, kernel, device=device, dtype=dtype)
        else:  # columns: all channels of the earliest tap, then of the next
            self.taps = nn.Linear(kernel * channels, width, device=device, dtype=dtype)

    def extra_repr(self) -> str:
        return f"dilation={self.dilation}, activation={self.activation!r}"

    def init_tail(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Return the rows of zeros before the first item."""
        weight = any_weight(self)
        shape = (batch_size, *self.tail_shape)
        return torch.zeros(shape, dtype=dtype or weight.dtype, device=device or weight.device)

    def forward(
        self, x: Activations, tail: Tensor | None, counts: Tensor | None = None
    ) -> tuple[Activations, Tensor]:
        """Convolve rows (b, t, c) after those in the tail; of stream i, the first counts[i] are real."""
        rows = self._read(x)
        tail = self.init_tail(x.shape[0], device=x.device) if tail is None else tail
        check_tail(tail, (x.shape[0], *self.tail_shape))
        padded = torch.cat([tail.to(rows.dtype), rows], dim=1)
        kept = self.tail_shape[0]
        if counts is None:
            # A copy: the state shall not hold on to the memory of the whole sequence.
            after = padded[:, padded.shape[1] - kept :].clone()
        else:
            latest = counts.unsqueeze(1) + torch.arange(kept, device=x.device)
            after = padded.gather(1, latest.unsqueeze(-1).expand(-1, -1, padded.shape[2]))
        return x + ACTIVATIONS[self.activation](self._convolve(padded)), after.to(tail.dtype)

    def step(self, x: Token, tail: Tensor) -> tuple[Token, Tensor]:
        """Convolve one row per stream, (b, c)."""
        check_tail(tail, (x.shape[0], *self.tail_shape))
        row = self._read(x)
        padded = torch.cat([tail.to(row.dtype), row.unsqueeze(1)], dim=1)
        found = self._convolve(padded).squeeze(1)
        return x + ACTIVATIONS[self.activation](found), padded[:, 1:].to(tail.dtype)

    def _read(self, x: Tensor) -> Tensor:
        x = x if self.norm is None else self.norm(x)
        return x if self.narrow is None else self.narrow(x)

    def _convolve(self, padded: Tensor) -> Tensor:
        """Return (b, t, c) of the rows of the tail and t more, (b, tail + t, channels)."""
        if isinstance(self.taps, Depthwise):
            found: Tensor = self.taps(padded, self.dilation)
            return found
        reach, channels = self.tail_shape
        num_steps, kernel = padded.shape[1] - reach, reach // self.dilation + 1
        if num_steps > 1 and is_plain(self.taps):  # without a copy of the rows for every tap
            taps = cast("nn.Linear", self.taps)
            weight = taps.weight.view(-1, kernel, channels).transpose(1, 2)
            return F.conv1d(padded.transpose(1, 2), weight, taps.bias, dilation=self.dilation).transpose(1, 2)
        beside = [padded[:, tap * self.dilation :][:, :num_steps] for tap in range(kernel)]
        found = self.taps(torch.cat(beside, dim=-1))
        return found


class Depthwise(nn.Module):
    """A weight per tap and channel, and a bias per channel: every channel is convolved by itself."""

    def __init__(
        self,
        width: int,
        kernel: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(kernel, width, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw from U(-1/sqrt(kernel), 1/sqrt(kernel)), as PyTorch's depthwise convolution does."""
        bound = self.weight.shape[0] ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        return f"kernel={self.weight.shape[0]}, width={self.weight.shape[1]}"

    def forward(self, padded: Tensor, dilation: int) -> Tensor:
        """Return (b, t, c) of (b, (kernel - 1) * dilation + t, c)."""
        weight, bias = self.weight.to(padded.dtype), self.bias.to(padded.dtype)
        kernel = weight.shape[0]
        num_steps = padded.shape[1] - (kernel - 1) * dilation
        if num_steps == 1:
            return (padded[:, ::dilation] * weight).sum(1, keepdim=True) + bias
        found = bias.expand(padded.shape[0], num_steps, -1)
        for tap in range(kernel):
            found = torch.addcmul(found, padded[:, tap * dilation :][:, :num_steps], weight[tap])
        return found


def check_tail(tail: Tensor, shape: tuple[int, ...]) -> None:
    """Raise unless the tail of a convolution has this shape, (b, rows, channels)."""
    if tail.shape != shape or not tail.is_floating_point():
        raise StateError(
            f"this convolution needs a tail of shape {shape}; got {tuple(tail.shape)} of {tail.dtype}. A "
            f"state fits the model and the number of streams it was made for: start again with "
            f"init_state({shape[0]}), or pick streams with select."
        )
