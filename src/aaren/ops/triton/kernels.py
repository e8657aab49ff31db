"""The GPU kernels, forward and backward: one program per (sequence, head, block of the head's width).

A program walks through time in blocks. Inside a block every prefix is a row of a lower-triangular matrix of
weights, each row normalised by its own peak, times the values (as in `chunked`); between blocks the state
stays in registers. All n sequences lie end to end on one time axis of T items.
Scores, sums and states are float64; exponentials and products with values have the precision of the values.

Experimental: tested under Triton's interpreter and compiled for CUDA, but no run on a GPU is on record yet.
Importing this file imports Triton; only `triton_scan` does it, at the first call.
"""

import triton
import triton.language as tl

# mypy: disallow-untyped-decorators=False
# Triton ships no types, so its decorator has none.
LOWEST = tl.constexpr(-1.7976931348623157e308)  # the peak of an empty state


@triton.jit(do_not_specialize=["length"])
def forward(
    scores: tl.tensor,  # (T, h)
    values: tl.tensor,  # (T, h, d)
    mask: tl.tensor,  # (T,); not read unless is_masked
    log_decay: tl.tensor,  # (T, h); not read unless is_decaying
    m: tl.tensor,  # (n, h) float64, the initial states
    u: tl.tensor,  # (n, h)
    w: tl.tensor,  # (n, h, d)
    outputs: tl.tensor,  # (T, h, d)
    final_m: tl.tensor,  # (n, h)
    final_u: tl.tensor,  # (n, h)
    final_w: tl.tensor,  # (n, h, d)
    gates: tl.tensor,  # (T, h) float64: the weight of the newest item in its prefix
    forgets: tl.tensor,  # (T, h) float64: the weight of all before it
    length: tl.tensor,  # of a sequence
    heads: tl.tensor,
    width: tl.tensor,
    is_masked: tl.constexpr,
    is_decaying: tl.constexpr,
    block_length: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    """Scan forward in time."""
    row, head, start, stop = _sequence(length, heads)
    column, is_column = _columns(width, block_width)
    is_first_column_block = tl.program_id(1) == 0
    step = tl.arange(0, block_length)
    is_past = step[:, None] >= step[None, :]  # [prefix, item]

    peak, total = tl.load(m + row), tl.load(u + row)
    sums = tl.load(w + row * width + column, mask=is_column, other=0.0)

    for first in range(start, stop, block_length):
        # Beyond the end stand masked items without decay, so the block's last row is always its final state.
        position = first + step
        is_inside = position < stop
        item = position * heads + head
        score = tl.load(scores + item, mask=is_inside, other=-float("inf")).to(tl.float64)
        is_real = score != -float("inf")
        if is_masked:
            is_real = is_real & tl.load(mask + position, mask=is_inside, other=0).to(tl.int1)
        since_item = tl.zeros([block_length, block_length], dtype=tl.float64)
        since_start = tl.zeros([block_length], dtype=tl.float64)
        if is_decaying:
            decay = tl.load(log_decay + item, mask=is_inside, other=0.0).to(tl.float64)
            # One sum per pair of prefix and item: differences of sums from the start would cancel, and a
            # reset would make them -inf - -inf.
            since_item = tl.cumsum(tl.where(step[:, None] > step[None, :], decay[:, None], 0.0), axis=0)
            since_start = tl.cumsum(decay, axis=0)
        sees = is_past & is_real[None, :] & (since_item != -float("inf"))
        is_kept = since_start != -float("inf")

        logits = tl.where(sees, score[None, :] + since_item, LOWEST)
        # A NaN must not become the peak: it poisons its rows through its weight, and a reset ends it.
        highest = tl.max(tl.where(logits == logits, logits, LOWEST), axis=1)
        carried_peak = tl.maximum(tl.where(is_kept, peak + since_start, LOWEST), LOWEST)
        peaks = tl.maximum(carried_peak, highest)
        exponent = tl.where(sees, logits - peaks[:, None], -float("inf"))
        weights = tl.exp(exponent.to(values.dtype.element_ty))
        shrink = tl.exp(carried_peak - peaks)

        # f_k is not 1 - g_k, which loses all digits of a small one: sum what came earlier by itself.
        newest = tl.sum(tl.where(step[:, None] == step[None, :], weights, 0.0).to(tl.float64), axis=1)
        earlier = tl.sum(tl.where(step[:, None] > step[None, :], weights, 0.0).to(tl.float64), axis=1)
        earlier += tl.where(is_kept, total * shrink, 0.0)
        totals = earlier + newest
        divisor = tl.where(totals == 0.0, 1.0, totals)  # an empty prefix outputs 0

        cell = item[:, None] * width + column[None, :]
        is_cell = is_inside[:, None] & is_column[None, :]
        # Masked items are not even read.
        value = tl.load(values + cell, mask=is_cell & is_real[:, None], other=0.0)
        every_sum = tl.where(is_kept[:, None], sums[None, :] * shrink[:, None], 0.0)
        every_sum += _product(weights, sees, value).to(tl.float64)
        output = every_sum * (1.0 / divisor)[:, None]
        tl.store(outputs + cell, output.to(outputs.dtype.element_ty), mask=is_cell)
        if is_first_column_block:
            tl.store(gates + item, newest / divisor, mask=is_inside)
            tl.store(forgets + item, earlier / divisor, mask=is_inside)

        is_last = step == block_length - 1
        peak = tl.sum(tl.where(is_last, peaks, 0.0), axis=0)
        total = tl.sum(tl.where(is_last, totals, 0.0), axis=0)
        sums = tl.sum(tl.where(is_last[:, None], every_sum, 0.0), axis=0)

    tl.store(final_w + row * width + column, sums, mask=is_column)
    if is_first_column_block:
        tl.store(final_m + row, peak)
        tl.store(final_u + row, total)


@triton.jit(do_not_specialize=["length"])
def backward(
    grad_outputs: tl.tensor,  # (T, h, d)
    values: tl.tensor,  # (T, h, d)
    outputs: tl.tensor,  # (T, h, d)
    gates: tl.tensor,  # (T, h) float64
    forgets: tl.tensor,  # (T, h) float64
    first_outputs: tl.tensor,  # (n, h, d) float64, what the initial states read
    carry: tl.tensor,  # (n, h, d) float64: G beyond the last item; becomes G before the first one
    carry_sum: tl.tensor,  # (width blocks, n, h) float64: H likewise, a share of it per block of width
    grad_scores: tl.tensor,  # (width blocks, T, h) float64, shares
    grad_values: tl.tensor,  # (T, h, d)
    grad_log_decay: tl.tensor,  # (width blocks, T, h) float64, shares; not written unless is_decaying
    length: tl.tensor,  # of a sequence
    heads: tl.tensor,
    width: tl.tensor,
    is_decaying: tl.constexpr,
    block_length: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    """Scan backward in time: G_k = do_k + f_{k+1} G_{k+1}, H_k = do_k·o_k + f_{k+1} H_{k+1}."""
    row, head, start, stop = _sequence(length, heads)
    column, is_column = _columns(width, block_width)
    share = tl.program_id(1).to(tl.int64)
    state_share = share * tl.num_programs(0) + row
    step = tl.arange(0, block_length)

    state_cell = row * width + column
    g_carry = tl.load(carry + state_cell, mask=is_column, other=0.0)
    h_carry = tl.load(carry_sum + state_share)
    first_output = tl.load(first_outputs + state_cell, mask=is_column, other=0.0)

    num_blocks = tl.cdiv(stop - start, block_length)
    for done in range(0, num_blocks):
        position = start + (num_blocks - 1 - done) * block_length + step
        is_inside = position < stop
        item = position * heads + head
        gate = tl.load(gates + item, mask=is_inside, other=0.0)
        forget = tl.load(forgets + item, mask=is_inside, other=1.0)
        cell = item[:, None] * width + column[None, :]
        is_cell = is_inside[:, None] & is_column[None, :]
        grad_output = tl.load(grad_outputs + cell, mask=is_cell, other=0.0)
        value = tl.load(values + cell, mask=is_cell, other=0.0)
        output = tl.load(outputs + cell, mask=is_cell, other=0.0)

        # kept[i, k] = f_{i+1} ··· f_k: how much of prefix i is left in prefix k. Where nothing is left,
        # nothing flows back, not even a NaN.
        factors = tl.where(step[None, :] > step[:, None], forget[None, :], 1.0)
        kept = tl.where(step[None, :] >= step[:, None], tl.cumprod(factors, axis=1), 0.0)
        kept_to_end = tl.sum(tl.where(step[None, :] == block_length - 1, kept, 0.0), axis=1)
        along_output = tl.sum(grad_output.to(tl.float64) * output, axis=1)
        g = _product(kept.to(grad_output.dtype), kept != 0.0, grad_output).to(tl.float64)
        g += tl.where(kept_to_end[:, None] == 0.0, 0.0, kept_to_end[:, None] * g_carry[None, :])
        h = tl.sum(tl.where(kept == 0.0, 0.0, kept * along_output[None, :]), axis=1)
        h += tl.where(kept_to_end == 0.0, 0.0, kept_to_end * h_carry)

        # A gate of 0 is a masked item, whatever stands in it.
        grad_value = tl.where(gate[:, None] == 0.0, 0.0, gate[:, None] * g)
        tl.store(grad_values + cell, grad_value.to(grad_values.dtype.element_ty), mask=is_cell)
        grad_score = tl.where(gate == 0.0, 0.0, gate * (tl.sum(g * value, axis=1) - h))
        shared_item = share * tl.num_programs(0) * length + item
        tl.store(grad_scores + shared_item, grad_score, mask=is_inside)
        if is_decaying:
            is_later = position > start
            previous = tl.load(
                outputs + cell - heads * width, mask=is_cell & is_later[:, None], other=0.0
            ).to(tl.float64)
            previous = tl.where(is_later[:, None], previous, first_output[None, :])
            grad_decay = tl.where(forget == 0.0, 0.0, forget * (tl.sum(g * previous, axis=1) - h))
            tl.store(grad_log_decay + shared_item, grad_decay, mask=is_inside)

        g_left = tl.where(forget[:, None] == 0.0, 0.0, forget[:, None] * g)
        g_carry = tl.sum(tl.where(step[:, None] == 0, g_left, 0.0), axis=0)
        h_left = tl.where(forget == 0.0, 0.0, forget * h)
        h_carry = tl.sum(tl.where(step == 0, h_left, 0.0), axis=0)

    tl.store(carry + state_cell, g_carry, mask=is_column)
    tl.store(carry_sum + state_share, h_carry)


@triton.jit
def _sequence(length: tl.tensor, heads: tl.tensor) -> tuple[tl.tensor, ...]:
    """Return this program's row of (n, h), its head, and where its sequence begins and ends."""
    row = tl.program_id(0).to(tl.int64)
    start = row // heads * length
    return row, row % heads, start, start + length


@triton.jit
def _columns(width: tl.tensor, block_width: tl.constexpr) -> tuple[tl.tensor, ...]:
    """Return the columns of the head width that this program works on, and which of them exist."""
    column = tl.program_id(1) * block_width + tl.arange(0, block_width)
    return column, column < width


@triton.jit
def _product(weights: tl.tensor, sees: tl.tensor, items: tl.tensor) -> tl.tensor:
    """Return weights @ items, in which an item that is not finite poisons just the rows that see it.

    0 · NaN is NaN, so a plain product would poison all rows.
    """
    is_bad = ~(tl.abs(items) < float("inf"))
    finite = tl.where(is_bad, 0.0, items)
    if items.dtype == tl.float64:  # no tl.dot: Triton 3.7, which torch 2.13 brings, fails to compile it
        product = tl.sum(weights[:, :, None] * finite[None, :, :], axis=1)
    else:
        product = tl.dot(weights, finite, input_precision="ieee", out_dtype=items.dtype)
    if tl.max(is_bad.to(tl.int32)) > 0:
        num_bad = tl.dot(sees.to(tl.float16), is_bad.to(tl.float16))
        product = tl.where(num_bad > 0.0, float("nan"), product)
    return product


# Decorators decide at import whether functions are compiled; tl's own must have decided likewise.
IS_INTERPRETED = not any(isinstance(function, triton.JITFunction) for function in (forward, tl.sum))
