"""Dropout at the cost of a copy, alone, after a GELU, and of the weights of softmax attention, on a CPU.

torch's random numbers are most of a small model's step. Here one number is drawn per call, from torch's
generator, so seeds and checkpoints hold as with `F.dropout`; the rest is hashed from it
(dropout.c). On other devices, in half precision, under torch.func, in a trace (torch.compile, jit, fake
tensors) and where the kernels are not built torch's own functions are called: the same distribution, other
random numbers.

For dropped attention torch keeps several copies of all weights: at 768 items, 32 sequences and 4 heads 300 MB
each. Here a piece of the weights at a time is computed, dropped and used while it is in the cache, and
computed again in the backward pass; pieces above the diagonal are left out. Products of matrices are torch's;
what happens to the weights between them is dropout.c.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from aaren.ops.cpu import library, threads
from aaren.ops.state import may_read

LARGEST = 2**32  # items: places are hashed as 32-bit numbers
SMALLEST_PIECE = 1 << 18  # items per thread below which a second thread costs more than it saves
PIECE_WEIGHTS = 1 << 19  # about two megabytes in float32
BLOCK_QUERIES = 128


def drop(x: Tensor, probability: float) -> Tensor:
    """Set each item to 0 with this probability and scale the others by 1 / (1 - probability).

    >>> with torch.random.fork_rng():
    ...     _ = torch.manual_seed(0)
    ...     dropped = drop(torch.ones(10_000), 0.25)
    >>> sorted(set(dropped.tolist())) == [0.0, torch.tensor(4 / 3).item()]
    True
    """
    if probability == 0.0:
        return x
    if not _is_ours(x):
        return F.dropout(x, probability)
    dropped: Tensor = _Drop.apply(x, probability, _draw_key())  # type: ignore[no-untyped-call]  # torch has no types here
    return dropped


def gelu_and_drop(x: Tensor, probability: float) -> Tensor:
    """Apply the exact GELU, x times the normal probability of less than x, then dropout.

    In float32 on a CPU forward and backward take one pass over memory each; elsewhere, torch's own GELU and
    `drop`.

    >>> x = torch.linspace(-3, 3, 7)
    >>> torch.allclose(gelu_and_drop(x, 0.0), F.gelu(x), atol=1e-6)
    True
    """
    if x.dtype != torch.float32 or not _is_ours(x):
        return drop(F.gelu(x), probability)
    key = _draw_key() if probability > 0.0 else 0
    dropped: Tensor = DroppedGelu.apply(x, probability, key)  # type: ignore[no-untyped-call]  # as above
    return dropped


def attend_with_dropout(
    query: Tensor, keys: Tensor, values: Tensor, probability: float, *, is_causal: bool = False
) -> Tensor:
    """Softmax attention, (b, h, t, d) as in torch's own, whose weights are dropped with this probability.

    On a CPU several times faster than `F.scaled_dot_product_attention` with dropout, and without second
    derivatives; elsewhere, that function.
    """
    if not _is_ours(query):
        return F.scaled_dot_product_attention(query, keys, values, dropout_p=probability, is_causal=is_causal)

    pairs = [part.flatten(0, 1) for part in (query, keys, values)]  # (b · h, t, d)
    outputs: Tensor = DroppedAttention.apply(*pairs, probability, is_causal, _draw_key())  # type: ignore[no-untyped-call]  # as above
    return outputs.view(*query.shape[:3], values.shape[-1])


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float, key: int) -> Tensor:  # Any: torch's own type for it
        ctx.probability, ctx.key = probability, key
        return drop_by_key(x, probability, key)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        # Through apply, so that second derivatives exist as well.
        dropped = _Drop.apply(gradients[0], ctx.probability, ctx.key)  # type: ignore[no-untyped-call]  # the same
        return dropped, None, None


class DroppedGelu(torch.autograd.Function):
    """A GELU and dropout as the key says, of float32 numbers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float, key: int) -> Tensor:  # Any: as above
        """Return the dropped GELU."""
        ctx.save_for_backward(x)
        ctx.probability, ctx.key = probability, key
        return _drop_each("drop_gelu", x, probability, key)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of x."""
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives are asked for: torch's own GELU has them
            dropped = _Drop.apply(gradients[0], ctx.probability, ctx.key)  # type: ignore[no-untyped-call]  # the same
            return torch.ops.aten.gelu_backward(dropped, x), None, None
        return _drop_each("return_gelu", x, ctx.probability, ctx.key, gradients[0]), None, None


def drop_by_key(x: Tensor, probability: float, key: int) -> Tensor:
    """Drop items as the key, 0 to 2^63 - 1, says; outside of autograd."""
    return x if probability == 0.0 else _drop_each("drop", x, probability, key)


def _drop_each(name: str, x: Tensor, probability: float, key: int, *others: Tensor) -> Tensor:
    """Run a kernel that takes x, and other tensors of its shape, item by item and drops some results."""
    source, *others_in_order = [tensor.detach().contiguous() for tensor in (x, *others)]
    target = torch.empty_like(source)
    scale = torch.tensor(1.0 / (1.0 - probability), dtype=source.dtype, device=source.device)
    choice = (threshold_of(probability), key & 0xFFFFFFFF, key >> 32, scale)
    fields: tuple[threads.Field, ...] = (source.numel(), source, target, *others_in_order)
    _run(name, source.numel(), choice, fields, source.dtype)
    return target


def threshold_of(probability: float) -> int:
    """Return below which of 2^32 hashes an item is dropped."""
    return min(round(probability * LARGEST), LARGEST - 1)


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
            _change_weights("drop_weights", piece, probability, is_causal, (weights, sums))
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
            both = (weights, sums[0], found, sums[1])
            _change_weights("return_weights", piece, probability, is_causal, both)
            found_values[seen].baddbmm_(weights.transpose(1, 2), gradient[rows])
            found_keys[seen].baddbmm_(found.transpose(1, 2), query[rows], alpha=scale)
            torch.bmm(found, keys[seen], out=found_query[rows])
        return found_query.mul_(scale), found_keys, found_values, None, None, None


class _Piece(NamedTuple):
    """Rows of some (sequence, head) pairs, and how far they see."""

    pairs: slice
    queries: slice
    keys: slice  # that some row sees
    key: int  # of its random numbers


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


def _change_weights(
    name: str, piece: _Piece, probability: float, is_causal: bool, tensors: tuple[Tensor, ...]
) -> None:
    """Run a kernel in place on weights and log-sums, and on gradients and means if it takes them."""
    weights = tensors[0]
    num_pairs, num_queries, num_keys = weights.shape
    num_rows = num_pairs * num_queries
    scale = weights.new_tensor(1.0 / (1.0 - probability))
    choice = (threshold_of(probability), piece.key & 0xFFFFFFFF, piece.key >> 32, scale)
    sizes = (num_rows, num_queries, num_keys, piece.queries.start, int(is_causal))
    _run(name, num_rows * num_keys, choice, (*sizes, *tensors), weights.dtype)


def _run(
    name: str,
    num_items: int,
    choice: tuple[threads.Field, ...],
    fields: tuple[threads.Field, ...],
    dtype: torch.dtype,
) -> None:
    num_threads = max(1, min(torch.get_num_threads(), num_items // SMALLEST_PIECE))
    num_pieces = 4 * num_threads if num_threads > 1 else 1
    job = (*choice, *fields)
    threads.run(library.kernel(name, dtype), job, num_pieces=num_pieces, num_threads=num_threads)


def _is_ours(x: Tensor) -> bool:
    is_fitting = x.dtype in (torch.float32, torch.float64) and 0 < x.numel() < LARGEST
    return may_read(x) and is_fitting and library.is_available()


def _draw_key() -> int:
    key = torch.empty((), dtype=torch.int64, device="cpu")  # whatever device is the default
    return int(key.random_())
