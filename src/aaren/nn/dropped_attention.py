"""Softmax attention whose weights are dropped, for a CPU, without ever holding all weights.

torch's own draws a random number for every weight and keeps several copies of all of them: at 768 items, 32
sequences and 4 heads that is 300 MB each. Here a piece of the weights at a time is computed, dropped and used
while it is in the cache, and computed again in the backward pass; pieces above the diagonal are left out.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aaren.nn.dropout import LARGEST, drop_by_key

PIECE_WEIGHTS = 1 << 19  # about two megabytes in float32
BLOCK_QUERIES = 128


class _Piece(NamedTuple):
    """Rows of some (sequence, head) pairs, and how far they see."""

    pairs: slice
    queries: slice
    stop: int  # keys before it are seen
    key: int  # of its random numbers


class DroppedAttention(torch.autograd.Function):
    """Queries (n, t, d), keys (n, s, d), values (n, s, e), for n pairs of sequence and head."""

    @staticmethod
    def forward(  # Any: torch's own type for the context
        ctx: Any, query: Tensor, keys: Tensor, values: Tensor, probability: float, is_causal: bool, key: int
    ) -> Tensor:
        """Return the outputs, (n, t, e)."""
        outputs = query.new_empty(*query.shape[:2], values.shape[-1])
        for piece in _pieces(query, keys, is_causal, key):
            weights = drop_by_key(_weights(query, keys, piece, is_causal), probability, piece.key)
            torch.bmm(weights, values[piece.pairs, : piece.stop], out=outputs[piece.pairs, piece.queries])
        ctx.save_for_backward(query, keys, values)
        ctx.rest = probability, is_causal, key
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of queries, keys and values."""
        query, keys, values = ctx.saved_tensors
        probability, is_causal, key = ctx.rest
        found_query, found_keys, found_values = (torch.zeros_like(part) for part in (query, keys, values))
        scale = query.shape[-1] ** -0.5
        for piece in _pieces(query, keys, is_causal, key):
            seen = (piece.pairs, slice(0, piece.stop))
            incoming = gradient[piece.pairs, piece.queries]
            weights = _weights(query, keys, piece, is_causal)
            dropped = drop_by_key(weights, probability, piece.key)
            found_values[seen].baddbmm_(dropped.transpose(1, 2), incoming)
            kept = drop_by_key(incoming @ values[seen].transpose(1, 2), probability, piece.key)
            kept -= (kept * weights).sum(-1, keepdim=True)
            kept *= weights
            torch.baddbmm(
                found_query[piece.pairs, piece.queries],
                kept,
                keys[seen],
                alpha=scale,
                out=found_query[piece.pairs, piece.queries],
            )
            found_keys[seen].baddbmm_(kept.transpose(1, 2), query[piece.pairs, piece.queries], alpha=scale)
        return found_query, found_keys, found_values, None, None, None


def _pieces(query: Tensor, keys: Tensor, is_causal: bool, key: int) -> Iterator[_Piece]:
    num_pairs, num_queries = query.shape[:2]
    block = min(BLOCK_QUERIES, num_queries)
    together = max(1, PIECE_WEIGHTS // (block * keys.shape[1]))
    for first in range(0, num_pairs, together):
        for start in range(0, num_queries, block):
            stop = min(start + block, num_queries)
            seen = min(stop, keys.shape[1]) if is_causal else keys.shape[1]
            yield _Piece(slice(first, first + together), slice(start, stop), seen, key)
            key = (key * 6364136223846793005 + 1442695040888963407) % (LARGEST * LARGEST // 2)


def _weights(query: Tensor, keys: Tensor, piece: _Piece, is_causal: bool) -> Tensor:
    some = query[piece.pairs, piece.queries]
    scores: Tensor = (some * some.shape[-1] ** -0.5) @ keys[piece.pairs, : piece.stop].transpose(1, 2)
    if is_causal:
        places = torch.arange(piece.queries.start, piece.queries.stop)
        scores.masked_fill_(torch.arange(piece.stop) > places.unsqueeze(1), -torch.inf)
    return scores.softmax(dim=-1)
