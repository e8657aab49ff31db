"""Dropout at the cost of a copy: on a CPU, torch's random numbers are most of a small model's step.

One number is drawn per call, from torch's generator or the thread's own, so seeds and checkpoints hold as
with `F.dropout`; the rest is hashed from it (see `dropout_kernel`). On other devices, in half precision,
under torch.compile and under torch.func this is `F.dropout`.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aaren.nn.own_generator import own_generator
from aaren.ops import machine_code, team
from aaren.ops.transforms import is_transformed

LARGEST = 2**32  # items: places are hashed as 32-bit numbers
SMALLEST_SHARE = 1 << 18  # items per thread below which a second thread costs more than it saves


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


def attend_with_dropout(
    query: Tensor, keys: Tensor, values: Tensor, probability: float, *, is_causal: bool = False
) -> Tensor:
    """Softmax attention, (b, h, t, d) as in torch's own, whose weights are dropped with this probability.

    On a CPU several times faster than `F.scaled_dot_product_attention` with dropout, and without second
    derivatives; elsewhere, that function.
    """
    if not _is_ours(query):
        return F.scaled_dot_product_attention(query, keys, values, dropout_p=probability, is_causal=is_causal)
    from aaren.nn.dropped_attention import DroppedAttention  # which needs `drop_by_key` of this file

    pairs = [part.flatten(0, 1) for part in (query, keys, values)]  # (b · h, t, d)
    outputs: Tensor = DroppedAttention.apply(*pairs, probability, is_causal, _draw_key())  # type: ignore[no-untyped-call]  # as above
    return outputs.view(*query.shape[:3], values.shape[-1])


def _is_ours(x: Tensor) -> bool:
    is_plain = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    is_seen_through = torch.compiler.is_compiling() or is_transformed()
    return is_plain and 0 < x.numel() < LARGEST and not is_seen_through


def _draw_key() -> int:
    key = torch.empty((), dtype=torch.int64, device="cpu")  # whatever device is the default
    return int(key.random_(generator=own_generator()))


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


def drop_by_key(x: Tensor, probability: float, key: int) -> Tensor:
    """Drop items as the key, 0 to 2^63 - 1, says; outside of autograd."""
    if probability == 0.0:
        return x
    source = x.detach().contiguous()
    target = torch.empty_like(source)
    count = source.numel()
    cuts, num_threads = share_items(count, 1)
    scale = torch.tensor(1.0 / (1.0 - probability), dtype=source.dtype, device=source.device)
    fields = (count, threshold_of(probability), key & 0xFFFFFFFF, key >> 32, source, target, scale)
    job = machine_code.load("aaren.nn.dropout_kernel", "drop_job", source.dtype)
    team.run(job, cuts, fields, num_threads=num_threads)
    return target


def threshold_of(probability: float) -> int:
    """Return below which of 2^32 hashes an item is dropped."""
    return min(round(probability * LARGEST), LARGEST - 1)


def share_items(count: int, size: int) -> tuple[list[int], int]:
    """Cut a count of things of a size into shares, and say how many threads they are worth."""
    num_threads = max(1, min(torch.get_num_threads(), count * size // SMALLEST_SHARE))
    num_shares = 4 * num_threads if num_threads > 1 else 1
    return [count * share // num_shares for share in range(num_shares + 1)], num_threads
