"""The CPU backend: torch operators around the compiled kernel, with fake kernels and autograd.

The kernel's module, and Numba with it, is imported at the first call.
"""

import torch
from torch import Tensor

from aaren.errors import ShapeError
from aaren.ops.cpu.pages import room
from aaren.ops.kernel_operator import Results, call, decay_shape, define, gradients_of_state, register
from aaren.ops.state import ScanState, read
from aaren.shapes import LogDecay, Mask, Scores, SequenceBounds, Values


def scan(
    scores: Scores,
    values: Values,
    mask: Mask | None,
    log_decay: LogDecay | None,
    bounds: SequenceBounds | None,
    initial: ScanState,
) -> tuple[Values, ScanState]:
    """Attend to every prefix at the speed of memory."""
    if values.device.type not in ("cpu", "meta"):
        raise ShapeError(f"backend='fused' runs on the CPU; got {values.device}. Use backend='auto'.")
    return call(prefix_attention, scores, values, mask, log_decay, bounds, initial)


@define("prefix_attention", "cpu")
def prefix_attention(
    scores: Tensor,  # (b, t, h) float32 or float64
    values: Tensor,  # (b, t, h, d) the same dtype
    mask: Tensor | None,
    log_decay: Tensor | None,
    bounds: Tensor | None,
    m: Tensor,  # (n, h) float64, initial state
    u: Tensor,
    w: Tensor,
) -> Results:
    """Return outputs, the final m, u, w, and the gates and forgets that the backward pass reads."""
    from aaren.ops.cpu import fused_rows

    outputs = room(values.shape, values.dtype)
    gates, forgets = (scores.new_empty(scores.shape, dtype=torch.float64) for _ in range(2))
    state = ScanState(*(part.clone(memory_format=torch.contiguous_format) for part in (m, u, w)))
    fused_rows.forward(
        _flat(scores),
        _flat(values),
        None if mask is None else _flat(mask),
        None if log_decay is None else _flat(log_decay),
        fused_rows.sequence_bounds(bounds, values.shape[0], values.shape[1]),
        state,
        _flat(outputs),
        _flat(gates),
        _flat(forgets),
    )
    return outputs, *state, gates, forgets


@define("prefix_attention_backward", "cpu")
def prefix_attention_backward(
    grad_outputs: Tensor,
    grad_u: Tensor,
    grad_w: Tensor,
    scores: Tensor,
    values: Tensor,
    mask: Tensor | None,  # noqa: ARG001 - only the second derivative reads it; here the gates know
    log_decay: Tensor | None,
    bounds: Tensor | None,
    m: Tensor,
    u: Tensor,
    w: Tensor,
    outputs: Tensor,
    gates: Tensor,
    forgets: Tensor,
    final_u: Tensor,
) -> Results:
    """Return the gradients of scores, values, log_decay (empty if there is none), m, u, w."""
    from aaren.ops.cpu import fused_rows

    grad_scores = scores.new_empty(scores.shape)
    grad_values = room(values.shape, values.dtype)
    grad_log_decay = scores.new_empty(decay_shape(scores, log_decay))
    # Contiguous: these take on the strides of a state or a gradient, and the kernel knows addresses only.
    first_outputs = read(ScanState(m, u, w)).contiguous()
    carry, carry_sum = (grad_w * final_u.unsqueeze(-1)).contiguous(), (-grad_u * final_u).contiguous()
    fused_rows.backward(
        _flat(grad_outputs),
        _flat(values),
        _flat(outputs),
        _flat(gates),
        _flat(forgets),
        fused_rows.sequence_bounds(bounds, values.shape[0], values.shape[1]),
        first_outputs,
        carry,
        carry_sum,
        _flat(grad_scores),
        _flat(grad_values),
        _flat(grad_log_decay),
    )
    grad_state = gradients_of_state(carry, carry_sum, first_outputs, u)
    return grad_scores, grad_values, grad_log_decay, *grad_state


register("prefix_attention", "prefix_attention_backward")


def _flat(tensor: Tensor) -> Tensor:
    """Lay all sequences end to end on one time axis: (b, t, ...) to (b * t, ...), contiguous."""
    return tensor.contiguous().flatten(0, 1)
