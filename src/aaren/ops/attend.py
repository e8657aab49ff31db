"""Many-to-one: any queries against keys and values, as an RNN. The paper's section 3.1 and appendix A.

Every query is an RNN of its own whose hidden state is a ScanState over (b, q, h). Transformer self-attention
is t such RNNs, Perceiver cross-attention one per latent, Aaren one per layer. More tokens can be added to a
state at any time.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from aaren.errors import ShapeError, unknown_name
from aaren.ops.checks import check_devices, check_floating, check_mask, check_state, full_precision
from aaren.ops.state import ScanState, default_state_dtype, join, read, settle_empty

Method: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor | None, ScanState, int], ScanState]


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
        query = query.to(precise) * scale
        final = METHODS[method](query, keys, values, mask, settle_empty(state.to(dtype)), block_size)
    return read(final).to(values.dtype), final.to(state.m.dtype)


def _in_parallel(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,  # (b, 1 or q, t)
    state: ScanState,
    block_size: int,  # noqa: ARG001 - one signature for all methods
) -> ScanState:
    """Add all tokens at once."""
    return join(state, _summarise(query, keys, values, mask, state.m.dtype)) if keys.shape[1] else state


def _in_blocks(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, state: ScanState, block_size: int
) -> ScanState:
    """Add block after block; a block begins right after the last token of the one before.

    The paper's appendix A starts its block sums one token too early, so that a border token counts twice.
    """
    for start in range(0, keys.shape[1], block_size):
        stop = start + block_size
        block_mask = None if mask is None else mask[:, :, start:stop]
        state = _in_parallel(query, keys[:, start:stop], values[:, start:stop], block_mask, state, block_size)
    return state


def _token_by_token(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    state: ScanState,
    block_size: int,  # noqa: ARG001
) -> ScanState:
    """Run the paper's RNN cell over the tokens; a block of one token is `update`."""
    return _in_blocks(query, keys, values, mask, state, block_size=1)


METHODS: dict[str, Method] = {"parallel": _in_parallel, "recurrent": _token_by_token, "block": _in_blocks}


def _summarise(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, dtype: torch.dtype
) -> ScanState:
    """Return the state of these tokens alone, for every query."""
    # Scores in the inputs' own precision (at least float32), sums in the state's.
    precise = torch.promote_types(torch.promote_types(query.dtype, keys.dtype), torch.float32)
    query, keys, values = query.to(precise), keys.to(precise), values.to(dtype)
    is_per_query = mask is not None and mask.shape[1] > 1
    if mask is not None:
        is_padding = ~mask.any(1)[..., None, None]  # it may hold anything, even NaN
        keys, values = keys.masked_fill(is_padding, 0.0), values.masked_fill(is_padding, 0.0)
    scores = (_score_apart(query, keys) if is_per_query else _score(query, keys)).to(dtype)
    if mask is not None:
        scores = scores.masked_fill(~mask.unsqueeze(2), -torch.inf)
    is_seen = scores != -torch.inf
    m = scores.amax(dim=-1).clamp(min=torch.finfo(dtype).min).detach()
    weights = torch.where(is_seen, torch.exp(scores - m.unsqueeze(-1)), 0.0)
    w = _mix_apart(weights, values, is_seen) if is_per_query else _mix(weights, values)
    return ScanState(m, weights.sum(dim=-1), w)


def _score(query: Tensor, keys: Tensor) -> Tensor:
    return torch.einsum("bqhd,bthd->bqht", query, keys)


def _mix(weights: Tensor, values: Tensor) -> Tensor:
    return torch.einsum("bqht,bthe->bqhe", weights, values)


# Zero times NaN is NaN, in products and in their gradients. So what only some queries see stays out of the
# products where it is not finite, and is put back for those who see it.


def _score_apart(query: Tensor, keys: Tensor) -> Tensor:
    is_bad = ~keys.isfinite().all(-1, keepdim=True)  # (b, t, h, 1)
    scores = _score(query, keys.masked_fill(is_bad, 0.0))
    return scores.masked_fill(is_bad.permute(0, 3, 2, 1), torch.nan)


def _mix_apart(weights: Tensor, values: Tensor, is_seen: Tensor) -> Tensor:
    mixed = _mix(weights, values.masked_fill(~values.isfinite(), 0.0))
    for bad, is_bad in (
        (torch.inf, values == torch.inf),
        (-torch.inf, values == -torch.inf),
        (torch.nan, values.isnan()),
    ):
        num_seen = _mix(is_seen.to(weights.dtype), is_bad.to(weights.dtype))
        mixed = mixed + torch.where(num_seen > 0, bad, 0.0)  # inf and -inf together are NaN
    return mixed


def _check(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, initial_state: ScanState | None
) -> None:
    if query.ndim != 4:
        raise ShapeError(
            f"query must be (b, q, h, d); got {tuple(query.shape)}. For one query, use unsqueeze(1)."
        )
    batch, num_queries, heads, width = query.shape
    if keys.ndim != 4 or keys.shape[0] != batch or keys.shape[2:] != (heads, width):
        raise ShapeError(
            f"keys must be (b, t, h, d) with the b, h, d of query, {tuple(query.shape)}; got "
            f"{tuple(keys.shape)}."
        )
    if values.ndim != 4 or values.shape[:3] != keys.shape[:3]:
        raise ShapeError(
            f"values must be (b, t, h, e) with the (b, t, h) of keys, {tuple(keys.shape[:3])}; got "
            f"{tuple(values.shape)}."
        )
    for name, tensor in (("query", query), ("keys", keys), ("values", values)):
        check_floating(name, tensor)
    if mask is not None and mask.ndim == 3:
        check_mask(mask, (batch, num_queries, keys.shape[1]), "(b, q, t)")
    else:
        check_mask(mask, (batch, keys.shape[1]), "(b, t) or (b, q, t)")
    if initial_state is not None:
        check_state(initial_state, (batch, num_queries, heads), values.shape[3])
    state_part = None if initial_state is None else initial_state.w
    check_devices("query", query, {"keys": keys, "values": values, "mask": mask, "initial_state": state_part})
