"""What the operators of the compiled backends, `fused` and `triton`, have in common: all but the kernel.

A backend has two operators of fixed signature:

    forward   (scores, values, mask, log_decay, bounds, m, u, w) -> (outputs, m, u, w, gates, forgets)
    backward  (grad_outputs, grad_u, grad_w, *forward's arguments, outputs, gates, forgets, final_u)
              -> (grads of scores, values, log_decay, m, u, w)

`register` gives them fake kernels, for torch.compile and torch.export, and derivatives: the first through the
backward operator, all further ones, which few need, by recomputing through `chunked`.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from aaren.ops import chunked
from aaren.ops.packing import through_padding
from aaren.ops.state import ScanState
from aaren.shapes import LogDecay, Mask, Scores, SequenceBounds, Values

Results: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


Operator: TypeAlias = Callable[..., Results]


def define(name: str, device_type: str) -> Callable[[Operator], Operator]:
    """Make a function of tensors the operator `aaren::name`.

    By `torch.library.define`, not `custom_op`, whose first call imports the compiler: 1.3 seconds.
    """

    def decorate(function: Operator) -> Operator:
        torch.library.define(f"aaren::{name}", torch.library.infer_schema(function, mutates_args=()))
        torch.library.impl(f"aaren::{name}", device_type, function)
        operator: Operator = getattr(torch.ops.aaren, name)
        return operator

    return decorate


def call(
    forward: Callable[..., Results],
    scores: Scores,
    values: Values,
    mask: Mask | None,
    log_decay: LogDecay | None,
    bounds: SequenceBounds | None,
    initial: ScanState,
) -> tuple[Values, ScanState]:
    """Call a forward operator with items of one dtype, float32 or float64."""
    dtype = torch.promote_types(torch.promote_types(scores.dtype, values.dtype), torch.float32)
    if log_decay is not None:
        log_decay = log_decay.to(dtype)
    outputs, m, u, w, _, _ = forward(scores.to(dtype), values.to(dtype), mask, log_decay, bounds, *initial)
    return outputs, ScanState(m.detach(), u, w)


def empty_results(scores: Tensor, values: Tensor, m: Tensor, u: Tensor, w: Tensor) -> Results:
    """Return unwritten memory for outputs, the final m, u, w, gates and forgets."""
    return (
        values.new_empty(values.shape),
        m.new_empty(m.shape),
        u.new_empty(u.shape),
        w.new_empty(w.shape),
        scores.new_empty(scores.shape, dtype=torch.float64),
        scores.new_empty(scores.shape, dtype=torch.float64),
    )


def decay_shape(scores: Tensor, log_decay: Tensor | None) -> tuple[int, ...]:
    """Return the shape of log_decay's gradient; operators cannot return None, so none is an empty tensor."""
    return tuple(scores.shape) if log_decay is not None else (0, 0, scores.shape[2])


def gradients_of_state(
    carry: Tensor, carry_sum: Tensor, first_outputs: Tensor, u: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of an initial m, u, w.

    The initial state is a token in front. `carry`, G before the first item, is the gradient of its value
    w / u; with `carry_sum`, H before the first item, that of its score m + log u is carry·value - carry_sum,
    which is dm. An empty state has none.
    """
    is_empty = u == 0
    safe = torch.where(is_empty, 1.0, u)
    grad_m = torch.where(is_empty, 0.0, (carry * first_outputs).sum(-1) - carry_sum)
    grad_u = torch.where(is_empty, 0.0, -carry_sum / safe)
    grad_w = torch.where(is_empty.unsqueeze(-1), 0.0, carry / safe.unsqueeze(-1))
    return grad_m, grad_u, grad_w


def register(forward: str, backward: str) -> None:
    """Give a pair of operators their fake kernels and derivatives."""
    run_backward: Operator = getattr(torch.ops.aaren, backward)

    def differentiate(
        ctx: FunctionCtx,
        grad_outputs: Tensor | None,
        grad_m: Tensor | None,  # noqa: ARG001 - m is a normaliser, not a quantity
        grad_u: Tensor | None,
        grad_w: Tensor | None,
        *grad_gates: Tensor | None,  # noqa: ARG001 - gates and forgets never leave the operators
    ) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # type: ignore[attr-defined]  # torch's types lack it
        _, values, _, log_decay, _, _, u, w, *_ = saved
        grad_scores, grad_values, grad_log_decay, *grad_state = run_backward(
            torch.zeros_like(values) if grad_outputs is None else grad_outputs,
            torch.zeros_like(u) if grad_u is None else grad_u,
            torch.zeros_like(w) if grad_w is None else grad_w,
            *saved,
        )
        return (
            grad_scores,
            grad_values,
            None,
            None if log_decay is None else grad_log_decay,
            None,
            *grad_state,
        )

    torch.library.register_fake(f"aaren::{forward}", _fake_forward)
    torch.library.register_autograd(f"aaren::{forward}", differentiate, setup_context=_save_for_first)
    torch.library.register_fake(f"aaren::{backward}", _fake_backward)
    torch.library.register_autograd(
        f"aaren::{backward}", _differentiate_twice, setup_context=_save_for_second
    )


def _fake_forward(
    scores: Tensor,
    values: Tensor,
    mask: Tensor | None,  # noqa: ARG001 - a fake kernel has the real one's signature
    log_decay: Tensor | None,  # noqa: ARG001
    bounds: Tensor | None,  # noqa: ARG001
    m: Tensor,
    u: Tensor,
    w: Tensor,
) -> Results:
    return empty_results(scores, values, m, u, w)


def _fake_backward(
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
) -> Results:
    grad_log_decay = scores.new_empty(decay_shape(scores, log_decay))
    grad_items = scores.new_empty(scores.shape), values.new_empty(values.shape)
    return *grad_items, grad_log_decay, m.new_empty(m.shape), u.new_empty(u.shape), w.new_empty(w.shape)


def _save_for_first(ctx: FunctionCtx, inputs: tuple[Tensor | None, ...], output: tuple[Tensor, ...]) -> None:
    outputs, _, final_u, _, gates, forgets = output
    ctx.set_materialize_grads(False)  # spares zeros for gates and forgets
    ctx.save_for_backward(*inputs, outputs, gates, forgets, final_u)  # type: ignore[arg-type]  # None is fine


def _save_for_second(
    ctx: FunctionCtx,
    inputs: tuple[Tensor | None, ...],
    output: tuple[Tensor, ...],  # noqa: ARG001
) -> None:
    # Outputs, gates and forgets, the rest, are functions of these: they have no gradients of their own.
    ctx.save_for_backward(*inputs[:11])  # type: ignore[arg-type]  # None is fine


def _differentiate_twice(ctx: FunctionCtx, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
    """Differentiate the gradients by recomputing them through `chunked`, from the inputs alone."""
    saved = ctx.saved_tensors  # type: ignore[attr-defined]  # torch's types lack it
    is_recorded = torch.is_grad_enabled()  # a third derivative is to follow
    with torch.enable_grad():
        fresh: list[Any] = [  # Any: which are tensors and which None is known below
            None if tensor is None else _fresh(tensor, is_recorded) for tensor in saved
        ]
        grad_outputs, grad_u, grad_w, scores, values, mask, log_decay, bounds, m, u, w = fresh
        outputs, final = through_padding(chunked.scan)(
            scores, values, mask, log_decay, bounds, ScanState(m, u, w)
        )
        inputs = [scores, values, log_decay, m, u, w]
        present = [index for index, tensor in enumerate(inputs) if tensor is not None]
        first = torch.autograd.grad(
            (outputs.to(values.dtype), final.u, final.w),
            [inputs[index] for index in present],
            (grad_outputs, grad_u, grad_w),
            create_graph=True,
            materialize_grads=True,
        )
        varying = [
            (grad, cotangents[index])
            for grad, index in zip(first, present, strict=True)
            if grad.requires_grad
        ]
        second = torch.autograd.grad(
            [grad for grad, _ in varying],
            [tensor for tensor in fresh if tensor is not None and tensor.requires_grad],
            [cotangent for _, cotangent in varying],
            create_graph=is_recorded,
            materialize_grads=True,
        )
    found = iter(second)
    grads = (next(found) if tensor is not None and tensor.requires_grad else None for tensor in fresh)
    return *grads, None, None, None, None


def _fresh(tensor: Tensor, is_recorded: bool) -> Tensor:
    """Return the tensor as one to differentiate by, tied to where it came from if that is recorded."""
    if not tensor.is_floating_point():
        return tensor
    is_tied = is_recorded and tensor.requires_grad
    return tensor.view_as(tensor) if is_tied else tensor.detach().requires_grad_()
