"""Forecaster: a past window in, the whole horizon out; encoder and decoder with per-window normalisation.

The Transformer of the Time-Series-Library with the normalisation of the Non-stationary Transformer, its
causal self-attention in encoder and decoder replaceable by any mixer. Because the value convolution is
circular and the normalisation sees the whole window, it cannot be stepped: that is `StreamingForecaster`.
"""

from dataclasses import dataclass
from typing import ClassVar, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import ConfigError, ShapeError, require_at_least, unknown_name
from aaren.nn import AarenAttention, Encoder, EncoderConfig
from aaren.nn.dropout import attend_with_dropout, drop
from aaren.nn.embedding import SeriesEmbedding
from aaren.nn.encoder import FeedForward, build_mixer
from aaren.nn.mixer import frozen_copy
from aaren.shapes import Activations

CROSS_ATTENTION = ("softmax", "aaren", "none")
EPSILON = 1e-5  # under the square root of the window's variance


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecasterConfig:
    """What a `Forecaster` is made of; the defaults are the published ones.

    The paper does not say where Aaren goes. Here it is the self-attention of encoder and decoder;
    `cross_attention` says how the decoder reads the encoder's outputs. "softmax": as in a Transformer, in
    both models. "aaren": many-to-one, by one learned query (with another mixer than aaren, as softmax).
    "none": there is no decoder, but a linear head from the encoder's last output.

    >>> ForecasterConfig(num_series=7, cross_attention="gru")
    Traceback (most recent call last):
    ...
    aaren.errors.ConfigError: unknown cross_attention 'gru'; Known: aaren, none, softmax.
    """

    num_series: int  # columns in and out
    horizon_steps: int = 96
    past_steps: int = 96
    label_steps: int = 48  # last known rows that the decoder starts with
    num_marks: int = 4  # numbers that describe a date
    width: int = 512
    num_heads: int = 8
    ff_width: int = 2048
    num_encoder_layers: int = 2
    num_decoder_layers: int = 1
    dropout: float = 0.1
    activation: str = "gelu"
    mixer: str = "aaren"  # or softmax: the Transformer
    cross_attention: str = "softmax"

    def __post_init__(self) -> None:
        """Report a setting that is unknown or contradicts another one."""
        if self.cross_attention not in CROSS_ATTENTION:
            raise unknown_name("cross_attention", self.cross_attention, CROSS_ATTENTION)
        require_at_least(self, num_series=1, horizon_steps=1, past_steps=1, num_marks=1, num_decoder_layers=1)
        if not 0 <= self.label_steps <= self.past_steps:
            raise ConfigError(
                f"label_steps are the last of the past_steps, so 0 to {self.past_steps}; got "
                f"{self.label_steps}."
            )
        self.encoder  # noqa: B018  builds, and so checks, the encoder's config

    @property
    def encoder(self) -> EncoderConfig:
        """Return the encoder's config; the decoder's layers share it."""
        return EncoderConfig.of(self, num_layers=self.num_encoder_layers, final_norm=True)


class Forecaster(nn.Module):
    """Forecast `horizon_steps` rows from `past_steps` rows.

    >>> model = Forecaster(ForecasterConfig(num_series=7, mixer="softmax"))
    >>> sum(p.numel() for p in model.parameters())
    10540039
    >>> model(torch.randn(2, 96, 7), torch.randn(2, 96, 4), torch.randn(2, 96, 4)).shape
    torch.Size([2, 96, 7])
    """

    config_type: ClassVar[type[ForecasterConfig]] = ForecasterConfig

    def __init__(self, config: ForecasterConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder_embedding = SeriesEmbedding(
            config.num_series, config.width, num_marks=config.num_marks, max_steps=config.past_steps
        )
        self.encoder = Encoder(config.encoder)
        if config.cross_attention == "none":
            self.head = nn.Linear(config.width, config.horizon_steps * config.num_series)
            return
        self.decoder_embedding = SeriesEmbedding(
            config.num_series,
            config.width,
            num_marks=config.num_marks,
            max_steps=config.label_steps + config.horizon_steps,
        )
        has_summary = config.cross_attention == "aaren" and config.mixer == "aaren"
        self.decoder = nn.ModuleList(
            DecoderLayer(config.encoder, has_summary=has_summary) for _ in range(config.num_decoder_layers)
        )
        self.decoder_norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.num_series)

    def extra_repr(self) -> str:
        return f"past_steps={self.config.past_steps}, horizon_steps={self.config.horizon_steps}"

    def forward(self, past: Tensor, past_marks: Tensor, future_marks: Tensor) -> Tensor:
        """Forecast the future of every window.

        Args:
            past: (b, past steps, series).
            past_marks: (b, past steps, marks), of the past's dates.
            future_marks: (b, horizon steps, marks), of the dates to be forecast.

        Returns:
            (b, horizon steps, series), in the units of `past`.
        """
        check_windows(self.config, past, past_marks, future_marks)
        past, mean, deviation = normalise(past)
        memory, _ = self.encoder(self._drop(self.encoder_embedding(past, past_marks)))
        if self.config.cross_attention == "none":
            outputs: Tensor = self.head(memory[:, -1])
            outputs = outputs.view(-1, self.config.horizon_steps, self.config.num_series)
        else:
            outputs = self._decode(memory, past, past_marks, future_marks)
        return outputs * deviation + mean

    def fold(self) -> "Forecaster":
        """Return a frozen copy for inference, with all that is constant after training computed once."""
        folded = frozen_copy(self)
        folded.encoder = self.encoder.fold()
        if self.config.cross_attention != "none":
            folded.decoder = nn.ModuleList(layer.fold() for layer in self._layers())
        return folded

    def stream(self) -> NoReturn:
        """Say what can be streamed: this one reads windows of a fixed length."""
        raise ConfigError(
            "the paper's forecaster reads a whole window for every forecast and cannot be streamed: "
            "use StreamingForecaster (aaren train forecasting --model streaming)."
        )

    def _decode(self, memory: Tensor, past: Tensor, past_marks: Tensor, future_marks: Tensor) -> Tensor:
        horizon, label_start = self.config.horizon_steps, self.config.past_steps - self.config.label_steps
        # The unknown future enters as zeros, which after normalisation is the window's mean.
        rows = F.pad(past[:, label_start:], (0, 0, 0, horizon))
        marks = torch.cat([past_marks[:, label_start:], future_marks], dim=1)
        x = self._drop(self.decoder_embedding(rows, marks))
        layers = self._layers()
        for layer in layers:
            x = layer(x, memory, last=horizon if layer is layers[-1] else None)
        outputs: Tensor = self.head(self.decoder_norm(x))
        return outputs

    def _layers(self) -> "list[DecoderLayer]":
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.config.dropout) if self.training else x


class DecoderLayer(nn.Module):
    """Self-mixing, cross-attention, feed-forward, each with its residual, norm and dropout."""

    def __init__(self, config: EncoderConfig, *, has_summary: bool) -> None:
        super().__init__()
        self.dropout = config.dropout
        attend = SummaryAttention if has_summary else CrossAttention
        self.mixer = build_mixer(config)
        self.mixer_norm = nn.LayerNorm(config.width)
        self.cross = attend(config.width, config.num_heads, dropout=config.mixer_dropout)
        self.cross_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(
            config.width, config.inner_width, activation=config.activation, inner_dropout=config.dropout
        )
        self.feed_forward_norm = nn.LayerNorm(config.width)

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"

    def forward(self, x: Activations, memory: Activations, *, last: int | None = None) -> Activations:
        """Transform x (b, t, c) in view of memory (b, s, c).

        Args:
            x: the decoder's items.
            memory: the encoder's outputs.
            last: return only this many last items: after the self-mixing the others have no more influence.
        """
        mixed, _ = self.mixer(x)
        if last is not None:
            x, mixed = x[:, -last:], mixed[:, -last:]
        x = self.mixer_norm(x + self._drop(mixed))
        x = self.cross_norm(x + self._drop(self.cross(x, memory)))
        finished: Activations = self.feed_forward_norm(x + self._drop(self.feed_forward(x)))
        return finished

    def fold(self) -> "DecoderLayer":
        """Return a frozen copy for inference, its mixers folded."""
        folded = frozen_copy(self)
        folded.mixer = self.mixer.fold()
        if isinstance(self.cross, SummaryAttention):
            assert isinstance(folded.cross, SummaryAttention)
            folded.cross.attention = self.cross.attention.fold()  # type: ignore[assignment]  # the same verbs
        return folded

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout) if self.training else x


class CrossAttention(nn.Module):
    """Softmax attention of one sequence to all of another, unmasked; every target item asks its own query."""

    def __init__(self, width: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_width = width // num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Activations, memory: Activations) -> Activations:
        """Attend from x (b, t, c) to memory (b, s, c)."""
        query, keys, values = self._split(self.q_proj(x)), self.k_proj(memory), self.v_proj(memory)
        keys, values = self._split(keys), self._split(values)
        if self.training and self.dropout > 0.0:
            outputs = attend_with_dropout(query, keys, values, self.dropout)
        else:
            outputs = F.scaled_dot_product_attention(query, keys, values)
        projected: Activations = self.out_proj(outputs.transpose(1, 2).flatten(-2))
        return projected

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.num_heads, self.head_width).transpose(1, 2)  # (b, h, t, d)


class SummaryAttention(nn.Module):
    """One learned query over all of another sequence, many to one: the same summary for every target item.

    What an `AarenAttention` over the memory gives at its end, so a stream can carry it along.
    """

    def __init__(self, width: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = AarenAttention(width, num_heads, dropout=dropout)

    def forward(self, x: Activations, memory: Activations) -> Activations:
        """Return the summary of memory (b, s, c), (b, 1, c), which broadcasts over x (b, t, c)."""
        del x
        outputs, _ = self.attention(memory)
        summary: Activations = outputs[:, -1:]
        return summary


def normalise(past: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return each window and series with mean 0 and standard deviation 1, and both, (b, 1, series).

    The standard deviation is the population's, the small number stands under its root, and neither carries a
    gradient.
    """
    mean = past.mean(dim=1, keepdim=True).detach()
    centred = past - mean
    # Of no windows there is no variance, and asking for it warns.
    variance = centred.var(dim=1, keepdim=True, correction=0) if len(past) else mean
    deviation = (variance + EPSILON).sqrt().detach()
    return centred / deviation, mean, deviation


def check_windows(config: ForecasterConfig, past: Tensor, past_marks: Tensor, future_marks: Tensor) -> None:
    """Raise unless the three tensors are windows of this config."""
    b = past.shape[0] if past.ndim else 0
    for name, tensor, shape in (
        ("past", past, (b, config.past_steps, config.num_series)),
        ("past_marks", past_marks, (b, config.past_steps, config.num_marks)),
        ("future_marks", future_marks, (b, config.horizon_steps, config.num_marks)),
    ):
        if tensor.shape != shape:
            letters = ", ".join(str(size) for size in shape[1:])
            raise ShapeError(
                f"{name} must be (b, {letters}), as this model was built for; got {tuple(tensor.shape)}. "
                f"Build a model with other past_steps, horizon_steps or num_series, or cut other windows."
            )
