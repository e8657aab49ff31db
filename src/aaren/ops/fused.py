"""The CPU backend: torch operators around the compiled kernel, with fake kernels and autograd.

`aaren::prefix_attention` and its backward are opaque to torch.compile and torch.export. The second
derivative, which few need, goes through `chunked`. The kernel's module, and Numba with it, is imported at the
first call.
"""

import torch
from torch import Tensor

from aaren.errors import ShapeError
from aaren.ops import chunked
from aaren.ops.packing import through_padding
from aaren.ops.pages import on_huge_pages
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
    dtype = torch.promote_types(torch.promote_types(scores.dtype, values.dtype), torch.float32)
    outputs, m, u, w, _, _ = torch.ops.aaren.prefix_attention(
        scores.to(dtype),
        values.to(dtype),
        mask,
        None if log_decay is None else log_decay.to(dtype),
        bounds,
        initial.m,
        initial.u,
        initial.w,
    )
    return outputs, ScanState(m.detach(), u, w)


@torch.library.custom_op("aaren::prefix_attention", mutates_args=(), device_types="cpu")
def prefix_attention(
    scores: Tensor,  # (b, t, h) float32 or float64
    values: Tensor,  # (b, t, h, d) the same dtype
    mask: Tensor | None,
    log_decay: Tensor | None,
    bounds: Tensor | None,
    m: Tensor,  # (n, h) float64, initial state
    u: Tensor,
    w: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return outputs, the final m, u, w, and the gates and forgets that the backward pass reads."""
    from aaren.ops import fused_rows

    outputs = on_huge_pages(torch.empty_like(values, memory_format=torch.contiguous_format))
    gates = scores.new_empty(scores.shape, dtype=torch.float64)
    forgets = scores.new_empty(scores.shape, dtype=torch.float64)
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


@prefix_attention.register_fake
def _(
    scores: Tensor,
    values: Tensor,
    mask: Tensor | None,  # noqa: ARG001 - a fake kernel has the real one's signature
    log_decay: Tensor | None,  # noqa: ARG001
    bounds: Tensor | None,  # noqa: ARG001
    m: Tensor,
    u: Tensor,
    w: Tensor,
) -> tuple[Tensor, ...]:
    outputs = torch.empty_like(values, memory_format=torch.contiguous_format)
    gate = scores.new_empty(scores.shape, dtype=torch.float64)
    state = (part.new_empty(part.shape) for part in (m, u, w))
    return outputs, *state, gate, torch.empty_like(gate)


@torch.library.custom_op("aaren::prefix_attention_backward", mutates_args=(), device_types="cpu")
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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of scores, values, log_decay (empty if there is none), m, u, w."""
    from aaren.ops import fused_rows

    grad_scores = scores.new_empty(scores.shape)
    grad_values = on_huge_pages(values.new_empty(values.shape))
    grad_log_decay = scores.new_empty(scores.shape if log_decay is not None else (0, 0, scores.shape[2]))
    first_outputs = read(ScanState(m, u, w))
    carry, carry_sum = grad_w * final_u.unsqueeze(-1), -grad_u * final_u
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
    # carry is the gradient of the initial super-token's value w / u; through its score m + log u comes dm.
    is_empty = u == 0
    safe = torch.where(is_empty, 1.0, u)
    grad_m = torch.where(is_empty, 0.0, (carry * first_outputs).sum(-1) - carry_sum)
    grad_first_w = torch.where(is_empty.unsqueeze(-1), 0.0, carry / safe.unsqueeze(-1))
    grad_first_u = torch.where(is_empty, 0.0, -carry_sum / safe)
    return grad_scores, grad_values, grad_log_decay, grad_m, grad_first_u, grad_first_w


@prefix_attention_backward.register_fake
def _(
    grad_outputs: Tensor,  # noqa: ARG001
    grad_u: Tensor,  # noqa: ARG001
    grad_w: Tensor,  # noqa: ARG001
    scores: Tensor,
    values: Tensor,
    mask: Tensor | None,  # noqa: ARG001
    log_decay: Tensor | None,
    bounds: Tensor | None,  # noqa: ARG001
    m: Tensor,
    u: Tensor,
    w: Tensor,
    outputs: Tensor,  # noqa: ARG001
    gates: Tensor,  # noqa: ARG001
    forgets: Tensor,  # noqa: ARG001
    final_u: Tensor,  # noqa: ARG001
) -> tuple[Tensor, ...]:
    like_decay = scores.new_empty(scores.shape if log_decay is not None else (0, 0, scores.shape[2]))
    like_state = (part.new_empty(part.shape) for part in (m, u, w))
    return scores.new_empty(scores.shape), values.new_empty(values.shape), like_decay, *like_state


def _save_for_backward(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor | None, ...], output: tuple[Tensor, ...]
) -> None:
    outputs, _, final_u, _, gates, forgets = output
    ctx.set_materialize_grads(False)  # no zeros for gates and forgets, which never leave this file
    ctx.save_for_backward(*inputs, outputs, gates, forgets, final_u)  # type: ignore[arg-type]  # None is fine


def _differentiate(
    ctx: torch.autograd.function.FunctionCtx,
    grad_outputs: Tensor | None,
    grad_m: Tensor | None,  # noqa: ARG001 - m is a normaliser, not a quantity
    grad_u: Tensor | None,
    grad_w: Tensor | None,
    *grad_gates: Tensor | None,  # noqa: ARG001
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # type: ignore[attr-defined]  # torch's own context class lacks it in its types
    values, first_u, first_w = saved[1], saved[6], saved[7]
    grad_outputs = torch.zeros_like(values) if grad_outputs is None else grad_outputs
    grad_u = torch.zeros_like(first_u) if grad_u is None else grad_u
    grad_w = torch.zeros_like(first_w) if grad_w is None else grad_w
    grads = torch.ops.aaren.prefix_attention_backward(grad_outputs, grad_u, grad_w, *saved)
    grad_scores, grad_values, grad_log_decay, grad_first_m, grad_first_u, grad_first_w = grads
    has_decay = saved[3] is not None
    return (
        grad_scores,
        grad_values,
        None,
        grad_log_decay if has_decay else None,
        None,
        grad_first_m,
        grad_first_u,
        grad_first_w,
    )


prefix_attention.register_autograd(_differentiate, setup_context=_save_for_backward)


def _save_for_second_backward(
    ctx: torch.autograd.function.FunctionCtx,
    inputs: tuple[Tensor | None, ...],
    output: tuple[Tensor, ...],  # noqa: ARG001
) -> None:
    ctx.save_for_backward(*inputs[:11])  # type: ignore[arg-type]  # None is fine


def _differentiate_twice(
    ctx: torch.autograd.function.FunctionCtx, *cotangents: Tensor
) -> tuple[Tensor | None, ...]:
    """Differentiate the gradients by recomputing them through `chunked`, as a function of the inputs alone.

    Outputs, gates and forgets are functions of these inputs, so their own gradients are none here.
    """
    saved = ctx.saved_tensors  # type: ignore[attr-defined]  # as above
    with torch.enable_grad():
        fresh = [
            tensor.detach().requires_grad_() if tensor is not None and tensor.is_floating_point() else tensor
            for tensor in saved
        ]
        grad_outputs, grad_u, grad_w, scores, values, mask, log_decay, bounds, m, u, w = fresh
        outputs, final = through_padding(chunked.scan)(
            scores, values, mask, log_decay, bounds, ScanState(m, u, w)
        )
        inputs = [scores, values, log_decay, m, u, w]
        present = [index for index, tensor in enumerate(inputs) if tensor is not None]
        grads = torch.autograd.grad(
            (outputs.to(values.dtype), final.u, final.w),
            [inputs[index] for index in present],
            (grad_outputs, grad_u, grad_w),
            create_graph=True,
            materialize_grads=True,
        )
        leaves = [tensor for tensor in fresh if tensor is not None and tensor.requires_grad]
        chosen = [
            (grad, cotangents[index])
            for grad, index in zip(grads, present, strict=True)
            if grad.requires_grad
        ]
        second = torch.autograd.grad(
            [grad for grad, _ in chosen],
            leaves,
            [cotangent for _, cotangent in chosen],
            materialize_grads=True,
        )
    found = iter(second)
    return (
        *(next(found) if tensor is not None and tensor.requires_grad else None for tensor in fresh),
        None,
        None,
        None,
        None,
    )


prefix_attention_backward.register_autograd(_differentiate_twice, setup_context=_save_for_second_backward)


def _flat(tensor: Tensor) -> Tensor:
    """Lay all sequences end to end on one time axis: (b, t, ...) to (b * t, ...), contiguous."""
    return tensor.contiguous().flatten(0, 1)
