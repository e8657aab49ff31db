"""Parallel inside blocks, a tree over blocks: plain PyTorch, any device, any number of derivatives.

Inside a block every prefix state is a row of a lower-triangular matrix of weights times the values: one
matmul. Each row is normalised by its own running maximum; that of the block would underflow earlier rows.

Inside blocks the precision is that of the inputs, float32 at least: most GPUs compute float64 at a
64th of the speed. What grows with the sequence, the states between blocks and the exponents of decay, is
float64 where the device has it: so errors stay those of one block, 1e-6 at any length. Inputs of float64
(the scores alone will do) ask for float64 throughout.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aaren.ops.scans import ladner_fischer, prefix_states
from aaren.ops.state import Items, ScanState, decay, is_transformed, may_read, read, settle_empty
from aaren.shapes import Scores, Values

BLOCK_LENGTH = 64


def scan(items: Items, initial: ScanState) -> tuple[Values, ScanState, Scores | None]:
    """Attend to every prefix, BLOCK_LENGTH items at a time."""
    scores, values, mask, log_decay, wants_logs = items
    batch, length, heads, width = values.shape
    if length == 0:
        return values, initial, scores.to(initial.m.dtype) if wants_logs else None
    dtype = torch.promote_types(torch.promote_types(scores.dtype, values.dtype), torch.float32)
    is_real = scores != -torch.inf if mask is None else (scores != -torch.inf) & mask.unsqueeze(-1)
    # Scores of 1e4 with decay added would lose three digits in float32; their differences lose none.
    scores = scores.to(dtype if log_decay is None else initial.m.dtype)
    if log_decay is not None:
        log_decay = _in_blocks(log_decay.to(initial.m.dtype))

    local, centre, since_start = _prefixes_within_blocks(
        _in_blocks(scores), _in_blocks(values.to(dtype)), _in_blocks(is_real), log_decay
    )
    sums = settle_empty(local._replace(m=local.m.to(initial.m.dtype), u=local.u.to(initial.m.dtype)))
    end_u, block_centre = sums.u[..., -1], centre.squeeze(-2).to(initial.m.dtype)
    end_w = local.w[..., -1, :].to(initial.m.dtype) + block_centre * end_u.unsqueeze(-1)
    ends = ScanState(sums.m[..., -1], end_u, end_w)
    block_decay = None if since_start is None else since_start[..., -1]
    before = prefix_states(ladner_fischer, initial, ends, block_decay)  # (b, 1 + n, h)

    # A prefix is what was carried into its block and what it holds of the block: weigh the mean of each.
    carried = ScanState(*(part[:, :-1] for part in before))
    means = (read(carried) - block_centre).to(dtype).unsqueeze(-2)
    carried = ScanState(carried.m.unsqueeze(-1), carried.u.unsqueeze(-1), means)
    if since_start is not None:
        carried = decay(carried, since_start)
    m = torch.maximum(carried.m, sums.m).detach()
    carried_u, scale = carried.u * torch.exp(carried.m - m), torch.exp(sums.m - m)
    u = (carried_u + sums.u * scale).unsqueeze(-1)
    inverse = torch.where(u == 0, 0.0, 1.0 / torch.where(u == 0, 1.0, u))  # no gradient of an empty state
    outputs = local.w * (scale.unsqueeze(-1) * inverse).to(dtype)
    outputs = outputs + carried.w * (carried_u.unsqueeze(-1) * inverse).to(dtype)
    outputs = outputs + torch.where(u == 0, 0.0, centre)  # (b, n, h, c, d)
    outputs = outputs.transpose(2, 3).reshape(batch, outputs.shape[1] * BLOCK_LENGTH, heads, width)
    logs = None
    if wants_logs:
        safe = torch.where(u == 0, 1.0, u).squeeze(-1)
        logs = torch.where(u.squeeze(-1) == 0, -torch.inf, m + safe.log())  # (b, n, h, c)
        logs = logs.transpose(2, 3).flatten(1, 2)[:, :length]
    return outputs[:, :length], ScanState(*(part[:, -1] for part in before)), logs


def _in_blocks(items: Tensor) -> Tensor:
    """Cut (b, t, h, ...) into n blocks of c items, (b, n, h, c, ...); what fills the last one is 0."""
    missing = -items.shape[1] % BLOCK_LENGTH
    if missing:
        items = F.pad(items, (0, 0) * (items.ndim - 2) + (0, missing))
    blocks = items.reshape(items.shape[0], items.shape[1] // BLOCK_LENGTH, BLOCK_LENGTH, *items.shape[2:])
    return blocks.transpose(2, 3)


def _prefixes_within_blocks(
    scores: Tensor, values: Tensor, is_real: Tensor, log_decay: Tensor | None
) -> tuple[ScanState, Tensor, Tensor | None]:
    """Return the prefix states in each block, of values less a centre (b, n, h, 1, d); it; the decay."""
    length = scores.shape[-1]
    is_past = torch.ones(length, length, dtype=torch.bool, device=scores.device).tril()
    sees = is_past & is_real.unsqueeze(-2)  # (b, n, h, k, i): prefix k holds item i
    logits = scores.unsqueeze(-2)  # (b, n, h, 1, i)
    since_start = None
    values = torch.where(is_real.unsqueeze(-1), values, 0.0)
    if log_decay is not None:
        # The decay of item i by k is summed for every pair by itself: a difference of two running sums
        # would cancel, and be NaN after a reset.
        age = torch.where(is_past.tril(-1), log_decay.unsqueeze(-1), 0.0).cumsum(dim=-2)  # (b, n, h, k, i)
        sees = sees & (age != -torch.inf)
        logits = logits + age
        since_start = log_decay.cumsum(dim=-1)

    logits = torch.where(sees, logits, -torch.inf)
    m = logits.amax(dim=-1).clamp(min=torch.finfo(logits.dtype).min).detach()
    m = m.masked_fill(m.isnan(), 0.0)  # a NaN poisons a prefix through its own weight, not through all
    weights = torch.exp((logits - m.unsqueeze(-1)).to(values.dtype))
    u = weights.sum(dim=-1)
    # The gradient of a score is a difference, v·G - o·G, of which float32 would lose the digits: take away
    # from all values what the block's last prefix outputs.
    with torch.no_grad():
        centre = _product(weights[..., -1:, :], values) / u[..., -1:, None]
        centre = torch.where(centre.isfinite(), centre, 0.0)
    return ScanState(m, u, sum_seen(weights, values - centre, sees)), centre, since_start


def sum_seen(weights: Tensor, items: Tensor, sees: Tensor) -> Tensor:
    """Return weights (..., k, i) @ items (..., i, d), in which row k depends only on items that it sees.

    Zero times NaN is NaN: a plain product would carry what is not finite to rows that do not hold it.
    `sees` broadcasts to weights, which are 0 where it is False.
    """
    function = _SeenSumsWithTangents if is_transformed() else _SeenSums
    sums: Tensor = function.apply(weights, items, sees)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return sums


class _SeenSums(torch.autograd.Function):
    """What is not finite stays out of the product and is put back where it is seen."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weights: Tensor, items: Tensor, sees: Tensor) -> Tensor:
        if may_read(items) and bool(items.isfinite().all()):
            return _product(weights, items)
        is_nan = items.isnan()
        kinds = torch.cat([(items == torch.inf) | is_nan, (items == -torch.inf) | is_nan], dim=-1)
        high, low = (sees.to(items.dtype) @ kinds.to(items.dtype) > 0).chunk(2, dim=-1)
        sums = _product(weights, items.nan_to_num(0.0, 0.0, 0.0)).masked_fill(high, torch.inf)
        return torch.where(low, sums - torch.inf, sums)  # inf and -inf together are NaN

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # Any: torch's own type
        del output
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        weights, items, sees = ctx.saved_tensors
        return _product(gradient, items.mT), sum_seen(weights.mT, gradient, sees.mT), None


class _SeenSumsWithTangents(_SeenSums):
    """The same with forward-mode differentiation, which torch.compile does not support."""

    @staticmethod
    def jvp(ctx: Any, of_weights: Tensor | None, of_items: Tensor | None, _: None) -> Tensor:
        weights, items, sees = ctx.saved_tensors
        left = [] if of_weights is None else [sum_seen(of_weights, items, sees)]
        return sum(left if of_items is None else [*left, sum_seen(weights, of_items, sees)], torch.zeros(()))


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply matrices with all digits of their dtype, whatever matmuls elsewhere may be rounded to.

    Where PyTorch is allowed to round float32 to TF32 or bfloat16 first, matrices are cut into three parts
    that such rounding leaves alone, and all products of these parts that count are added up.
    """
    if left.dtype == torch.float32 and _may_round(left.device.type):
        a, b, c = _parts(left)
        x, y, z = _parts(right)
        left, right = torch.cat([a, a, b, a, b, c], dim=-1), torch.cat([x, y, x, z, y, x], dim=-2)
    return left @ right


def _parts(numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cut finite float32 numbers into three that add up to them, each of the digits of bfloat16.

    >>> [part.item() for part in _parts(torch.tensor(1.2345678))]
    [1.234375, 0.0001926422119140625, 1.1920928955078125e-07]
    """

    def leading_digits(numbers: Tensor) -> Tensor:
        return (numbers.detach().view(torch.int32) & -(1 << 16)).view(torch.float32)

    high = numbers + (leading_digits(numbers) - numbers).detach()  # to autograd it is the number itself
    rest = numbers - high
    middle = leading_digits(rest)
    return high, middle, rest - middle


def _may_round(device_type: str) -> bool:
    """Tell whether the user lets float32 matmuls on this kind of device be rounded to fewer digits."""
    library = torch.backends.cuda if device_type == "cuda" else torch.backends.mkldnn
    precision = getattr(getattr(library, "matmul", None), "fp32_precision", None)  # since PyTorch 2.9
    if precision is None:
        return torch.get_float32_matmul_precision() != "highest"
    return precision not in ("none", "ieee")


# As torch.compiler.assume_constant_result does, whose call imports the compiler: seconds.
_may_round._dynamo_marked_constant = True  # type: ignore[attr-defined]
