"""Softmax attention whose weights are dropped, for a CPU, without ever holding all weights.

torch's own draws a random number for every weight and keeps several copies of all of them: at 768 items, 32
sequences and 4 heads that is 300 MB each. Here a piece of the weights at a time is computed, dropped and used
while it is in the cache, and computed again in the backward pass; pieces above the diagonal are left out.
Products of matrices are torch's; what happens to the weights between them is `dropped_weights_kernel`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aaren.nn.dropout import LARGEST, share_items, threshold_of
from aaren.ops import machine_code, team

PIECE_WEIGHTS = 1 << 19  # about two megabytes in float32
BLOCK_QUERIES = 128


class _Piece(NamedTuple):
    """Rows of some (sequence, head) pairs, and how far they see."""

    pairs: slice
    queries: slice
    keys: slice  # that some row sees
    key: int  # of its random numbers


class DroppedAttention(torch.autograd.Function):
    """Queries (n, t, d), keys (n, s, d), values (n, s, e), for n pairs of sequence and head."""

    @staticmethod
    def forward(  # Any: torch's own type for the context
        ctx: Any, query: Tensor, keys: Tensor, values: Tensor, probability: float, is_causal: bool, key: int
    ) -> Tensor:
        """Return the outputs, (n, t, e)."""
        outputs = query.new_empty(*query.shape[:2], values.shape[-1])
        log_sums = query.new_empty(query.shape[:2])
        for piece in _pieces(query, keys, is_causal, key):
            weights = _score(query, keys, piece)
            sums = weights.new_empty(weights.shape[:2])
            _run("forward_job", piece, probability, is_causal, (weights, sums))
            log_sums[piece.pairs, piece.queries] = sums
            torch.bmm(weights, values[piece.pairs, piece.keys], out=outputs[piece.pairs, piece.queries])
        ctx.save_for_backward(query, keys, values, outputs, log_sums)
        ctx.rest = probability, is_causal, key
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of queries, keys and values."""
        query, keys, values, outputs, log_sums = ctx.saved_tensors
        probability, is_causal, key = ctx.rest
        found_query = torch.empty_like(query)
        found_keys, found_values = torch.zeros_like(keys), torch.zeros_like(values)
        means = (gradient * outputs).sum(-1)  # of the gradients of a row's weights, under these weights
        scale = query.shape[-1] ** -0.5
        for piece in _pieces(query, keys, is_causal, key):
            rows, seen = (piece.pairs, piece.queries), (piece.pairs, piece.keys)
            weights = _score(query, keys, piece)
            found = torch.bmm(gradient[rows], values[seen].transpose(1, 2))
            sums = log_sums[rows].contiguous(), means[rows].contiguous()
            _run("backward_job", piece, probability, is_causal, (weights, sums[0]), (found, sums[1]))
            found_values[seen].baddbmm_(weights.transpose(1, 2), gradient[rows])
            found_keys[seen].baddbmm_(found.transpose(1, 2), query[rows], alpha=scale)
            torch.bmm(found, keys[seen], out=found_query[rows])
        return found_query.mul_(scale), found_keys, found_values, None, None, None


def _pieces(query: Tensor, keys: Tensor, is_causal: bool, key: int) -> Iterator[_Piece]:
    num_pairs, num_queries = query.shape[:2]
    block = min(BLOCK_QUERIES, num_queries)
    together = max(1, PIECE_WEIGHTS // (block * keys.shape[1]))
    for first in range(0, num_pairs, together):
        for start in range(0, num_queries, block):
            stop = min(start + block, num_queries)
            seen = min(stop, keys.shape[1]) if is_causal else keys.shape[1]
            yield _Piece(slice(first, first + together), slice(start, stop), slice(0, seen), key)
            key = (key * 6364136223846793005 + 1442695040888963407) % (LARGEST * LARGEST // 2)


def _score(query: Tensor, keys: Tensor, piece: _Piece) -> Tensor:
    some = query[piece.pairs, piece.queries] * query.shape[-1] ** -0.5
    return torch.bmm(some, keys[piece.pairs, piece.keys].transpose(1, 2))


def _run(
    job: str,
    piece: _Piece,
    probability: float,
    is_causal: bool,
    rows: tuple[Tensor, Tensor],
    gradients: tuple[Tensor, ...] = (),
) -> None:
    """Run a job of the kernel in place on (weights, log-sums), and on (gradients, means) if it wants them."""
    num_pairs, num_queries, num_keys = rows[0].shape
    cuts, num_threads = share_items(num_pairs * num_queries, num_keys)
    scale = rows[0].new_tensor(1.0 / (1.0 - probability))
    fields = (
        *(num_queries, num_keys, piece.queries.start, int(is_causal)),
        *(threshold_of(probability), piece.key & 0xFFFFFFFF, piece.key >> 32),
        *(*rows, scale, *gradients),
    )
    function = machine_code.load("aaren.nn.dropped_weights_kernel", job, rows[0].dtype)
    team.run(function, cuts, fields, num_threads=num_threads)
