"""The decoder of the forecaster: causal self-mixing, a look at the encoder's outputs, a feed-forward part.

Post-norm throughout, as the encoder. Knows nothing of series, dates or normalisation.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from aaren.nn import AarenAttention, EncoderConfig
from aaren.nn.block import build_mixer
from aaren.nn.dropout import attend_with_dropout, drop
from aaren.nn.feed_forward import FeedForward
from aaren.nn.linear import frozen_copy
from aaren.shapes import Activations


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
        """Describe what the submodules do not show."""
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
