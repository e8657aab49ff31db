"""SoftmaxAttention: the Transformer's causal attention, Aaren's counterpart. Every item has its own query.

The same projections, scale, dropout and methods as `AarenAttention`; only the query differs, and the state: a
KVCache that grows with the stream.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from aaren.nn.checks import check_sequence, check_token, hide_padding, refuse_decay
from aaren.nn.dropout import attend_with_dropout
from aaren.nn.kv_cache import KVCache
from aaren.nn.mixer import ProjectedAttention, any_weight, frozen_copy, is_right_padded
from aaren.ops.tracing import is_traced
from aaren.shapes import Activations, LogDecay, Mask, Token, TokenMask


class SoftmaxAttention(ProjectedAttention[KVCache]):
    """Causal self-attention through PyTorch's `scaled_dot_product_attention`, with a KV cache for streams.

    Args:
        width: c, of the tokens that come in and go out.
        num_heads: h; must divide width.
        qkv_bias: whether W_q, W_k and W_v have biases.
        dropout: p, while training.
        dropout_on: "weights", after the softmax, or "output", before W_o.
        device: where the parameters are made.
        dtype: what they are made of.

    >>> layer = SoftmaxAttention(width=64, num_heads=4)
    >>> y, cache = layer(torch.randn(2, 100, 64))
    >>> y_next, cache = layer.step(torch.randn(2, 64), cache)
    >>> y_next.shape, cache.length
    (torch.Size([2, 64]), 101)
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        qkv_bias: bool = True,
        dropout: float = 0.0,
        dropout_on: str = "weights",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            width,
            num_heads,
            qkv_bias=qkv_bias,
            dropout=dropout,
            dropout_on=dropout_on,
            device=device,
            dtype=dtype,
        )

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> KVCache:
        """Return an empty cache, in the weights' dtype unless asked otherwise."""
        shape = (batch_size, self.num_heads, 0, self.head_width)
        weight = any_weight(self)
        keys = torch.empty(shape, dtype=dtype or weight.dtype, device=device or weight.device)
        return KVCache.of(keys, torch.empty_like(keys))

    def forward(
        self,
        x: Activations,
        state: KVCache | None = None,
        *,
        mask: Mask | None = None,
        log_decay: LogDecay | None = None,
    ) -> tuple[Activations, KVCache]:
        """Attend from every item to its prefix.

        Args:
            x: (b, t, c).
            state: what came before; default: nothing.
            mask: (b, t) bool, True = real. Padding may stand anywhere; its query is that of a zero input.
            log_decay: not supported; a softmax over kept items does not decay.
        """
        check_sequence(x, self.width, mask)
        refuse_decay(log_decay, "softmax")
        if state is not None:
            KVCache.check(state, x.shape[0], self.num_heads, self.head_width)
        x = hide_padding(x, mask)
        query, keys, values = (self._split(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        if state is None and (mask is None or is_right_padded(mask)):
            outputs = self._attend(query, keys, values, is_causal=True)
            if mask is None:
                return self._finish(outputs), KVCache.of(keys, values)
            lengths = mask.sum(1)
            # All padding of a stream asks one and the same query, over all its real items.
            blank = self._split(self.q_proj(x.new_zeros(x.shape[0], 1, self.width)))
            at_padding = self._attend(blank, keys, values, mask[:, None, None, :])
            outputs = torch.where(mask[:, None, :, None], outputs, at_padding)
            return self._finish(outputs), KVCache.of(keys, values, lengths)
        if state is None:
            state = self.init_state(x.shape[0], dtype=keys.dtype, device=x.device)
        cache = state.reserve(x.shape[1], query)
        if mask is None:
            counts = None
            ends = cache.ends.unsqueeze(1) + torch.arange(1, x.shape[1] + 1, device=x.device)  # (b, t)
        else:
            counts = mask.sum(1)
            ends = cache.ends.unsqueeze(1) + mask.cumsum(1)
            order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, None, :, None].expand_as(keys)
            keys, values = keys.gather(2, order), values.gather(2, order)  # real items to the front
        cache = cache.append(keys, values, counts, query=query)
        stop = cache.keys.shape[2] if torch.compiler.is_compiling() else cache.length
        visible = self._visible(ends, stop)
        outputs = self._attend(query, cache.keys[:, :, :stop], cache.values[:, :, :stop], visible)
        return self._finish(outputs), cache

    def step(
        self,
        x: Token,
        state: KVCache,
        *,
        mask: TokenMask | None = None,
        log_decay: Tensor | None = None,
    ) -> tuple[Token, KVCache]:
        """Take in one item per stream.

        Args:
            x: (b, c).
            state: from `init_state`, `forward` or an earlier `step`; it stays valid, as a branch.
            mask: (b,) bool; a stream with False keeps its items; its query is that of a zero input.
            log_decay: not supported.
        """
        check_token(x, self.width, mask)
        refuse_decay(log_decay, "softmax")
        KVCache.check(state, x.shape[0], self.num_heads, self.head_width)
        if mask is not None and (is_traced() or not bool(mask.all())):
            outputs, cache = self.forward(x.unsqueeze(1), state, mask=mask.unsqueeze(1))
            return outputs.squeeze(1), cache
        query, keys, values = (
            project(x).view(x.shape[0], self.num_heads, 1, self.head_width)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        cache = state.reserve(1, query).append(keys, values, query=query)
        stop = cache.length
        if cache.lengths is None:
            outputs = self._attend(query, cache.keys[:, :, :stop], cache.values[:, :, :stop])
        else:
            visible = self._visible(cache.lengths.unsqueeze(1), stop)
            outputs = self._attend(query, cache.keys[:, :, :stop], cache.values[:, :, :stop], visible)
        return self._finish(outputs).squeeze(1), cache

    def fold(self) -> "SoftmaxAttention":
        """Return a frozen copy: every item has its own query, so nothing but the weights is constant."""
        return frozen_copy(self)

    def fingerprint(self) -> str:
        """Return a name of these weights and of how they are used."""
        return f"{self.num_heads}:{super().fingerprint()}"

    def _split(self, x: Activations) -> Tensor:
        """(b, t, c) to (b, h, t, d), the attention operator's axes; a view."""
        return x.view(*x.shape[:2], self.num_heads, self.head_width).transpose(1, 2)

    def _visible(self, ends: Tensor, num_slots: int) -> Tensor:
        """Return which slots each item sees, (b, 1, t, slots): those before its end."""
        return (torch.arange(num_slots, device=ends.device) < ends.unsqueeze(-1)).unsqueeze(1)

    def _attend(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        visible: Tensor | None = None,
        *,
        is_causal: bool = False,
    ) -> Tensor:
        dropout = self.dropout if self.training and self.dropout_on == "weights" else 0.0
        asked = query.to(keys.dtype)
        if dropout > 0.0 and visible is None:
            outputs = attend_with_dropout(asked, keys, values, dropout, is_causal=is_causal)
        else:
            outputs = F.scaled_dot_product_attention(
                asked, keys, values, attn_mask=visible, dropout_p=dropout, is_causal=is_causal
            )
        return outputs.to(query.dtype)

    def _finish(self, outputs: Tensor) -> Activations:
        return self._finish_values(outputs.transpose(1, 2).flatten(-2))
