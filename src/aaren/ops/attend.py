"""Many-to-one: any queries against keys and values, as an RNN. The paper's section 3.1 and appendix A.

Every query is an RNN of its own whose hidden state is a ScanState over (b, q, h). Transformer self-attention
is t such RNNs, Perceiver cross-attention one per latent, Aaren one per layer. More tokens can be added to a
state at any time.
"""

import torch
from torch import Tensor

from aaren.errors import ShapeError, unknown_name
from aaren.ops.checks import check_devices, check_mask, check_state, full_precision
from aaren.ops.chunked import sum_seen
from aaren.ops.state import ScanState, check_floating, default_state_dtype, join, read, settle_empty

METHODS = ("parallel", "recurrent", "block")


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    method: str = "parallel",
    block_size: int = 128,
    mask: Tensor | None = None,
    scale: float | None = None,
    initial_state: ScanState | None = None,
) -> tuple[Tensor, ScanState]:
    """Attend from any queries to all tokens, and return the state so that more tokens can follow.

    Args:
        query: (b, q, h, d).
        keys: (b, t, h, d).
        values: (b, t, h, e).
        method: "parallel" holds all (q, t) weights at once, as attention is usually computed; "recurrent"
            takes one token at a time in constant memory; "block" takes block_size of them at a time.
        block_size: tokens per block.
        mask: (b, t) or (b, q, t) bool, True = attend. A query that sees nothing outputs 0; what it does not
            see, even NaN, has no effect on it.
        scale: factor on the scores; 1/sqrt(d) by default.
        initial_state: (b, q, h[, e]), what the queries have seen before.

    Returns:
        Output (b, q, h, e) in the dtype of values, and the state over (b, q, h).

    >>> query, keys = torch.zeros(1, 1, 1, 2), torch.randn(1, 3, 1, 2)
    >>> output, state = attend(query, keys, torch.tensor([1.0, 2.0, 6.0]).view(1, 3, 1, 1))
    >>> output.item()  # a zero query weighs all tokens alike
    3.0
    """
    _check(query, keys, values, mask, initial_state)
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if block_size < 1:
        raise ShapeError(f"block_size must be at least 1; got {block_size}.")
    batch, num_queries, heads, width = query.shape
    scale = width**-0.5 if scale is None else scale
    dtype = default_state_dtype(values.device)
    state = initial_state
    if state is None:
        state = ScanState.empty(
            (batch, num_queries, heads), values.shape[3], dtype=dtype, device=values.device
        )
    if mask is not None and mask.ndim == 2:
        mask = mask.unsqueeze(1)
    with full_precision(values.device.type):  # scores are exponents
        precise = torch.promote_types(torch.promote_types(query.dtype, keys.dtype), torch.float32)
        query = query.to(precise) * scale  # in the inputs' own precision, float32 at least
        final = settle_empty(state.to(dtype))
        # A block begins right after the last token of the one before; the paper's appendix A starts its block
        # sums one token too early, so that a border token counts twice. A block of one token is `update`.
        size = {"parallel": max(1, keys.shape[1]), "recurrent": 1, "block": block_size}[method]
        for start in range(0, keys.shape[1], size):
            some = slice(start, start + size)
            block_mask = None if mask is None else mask[:, :, some]
            final = join(final, _summarise(query, keys[:, some], values[:, some], block_mask, dtype))
    return read(final).to(values.dtype), final.to(state.m.dtype)


def _summarise(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, dtype: torch.dtype
) -> ScanState:
    """Return the state of these tokens alone, for every query."""
    # Heads before time; scores in the query's precision, sums in the state's.
    query, keys, values = (x.transpose(1, 2) for x in (query, keys.to(query.dtype), values.to(dtype)))
    is_per_query = mask is not None and mask.shape[1] > 1
    if mask is not None:
        is_padding = ~mask.any(1)[:, None, :, None]  # it may hold anything, even NaN
        keys, values = (x.masked_fill(is_padding, 0.0) for x in (keys, values))
    if is_per_query:  # zero times NaN is NaN, in gradients too: what is not finite stays out of the product
        is_bad = ~keys.isfinite().all(-1, keepdim=True)  # (b, h, t, 1)
        scores = (query @ keys.masked_fill(is_bad, 0.0).mT).masked_fill(is_bad.mT, torch.nan)
    else:
        scores = query @ keys.mT
    scores = scores.to(dtype)  # (b, h, q, t)
    if mask is not None:
        scores = scores.masked_fill(~mask.unsqueeze(1), -torch.inf)
    is_seen = scores != -torch.inf
    m = scores.amax(dim=-1).clamp(min=torch.finfo(dtype).min).detach()
    weights = torch.where(is_seen, torch.exp(scores - m.unsqueeze(-1)), 0.0)
    w = sum_seen(weights, values, is_seen) if is_per_query else weights @ values
    return ScanState(*(part.transpose(1, 2) for part in (m, weights.sum(dim=-1), w)))


def _check(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, initial_state: ScanState | None
) -> None:
    if query.ndim != 4:
        raise ShapeError(
            f"query must be (b, q, h, d); got {tuple(query.shape)}. For one query, use unsqueeze(1)."
        )
    batch, num_queries, heads, width = query.shape
    if keys.ndim != 4 or keys.shape[0] != batch or keys.shape[2:] != (heads, width):
        wanted = f"(b, t, h, d) with the b, h, d of query, {tuple(query.shape)}"
        raise ShapeError(f"keys must be {wanted}; got {tuple(keys.shape)}.")
    if values.ndim != 4 or values.shape[:3] != keys.shape[:3]:
        wanted = f"(b, t, h, e) with the (b, t, h) of keys, {tuple(keys.shape[:3])}"
        raise ShapeError(f"values must be {wanted}; got {tuple(values.shape)}.")
    for name, tensor in (("query", query), ("keys", keys), ("values", values)):
        check_floating(name, tensor)
    if mask is not None and mask.ndim == 3:
        check_mask(mask, (batch, num_queries, keys.shape[1]), "(b, q, t)")
    else:
        check_mask(mask, (batch, keys.shape[1]), "(b, t) or (b, q, t)")
    others = {"keys": keys, "values": values, "mask": mask}
    if initial_state is not None:
        check_state(initial_state, (batch, num_queries, heads), values.shape[3])
        others["initial_state"] = initial_state.w
    check_devices("query", query, others)
