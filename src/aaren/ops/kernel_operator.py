"""The torch operators of the compiled backends, which differ in the engine that computes: `fused`, `triton`.

    forward   (scores, values, mask, log_decay, bounds, m, u, w) -> (outputs, m, u, w, gates, forgets)
    backward  (grad_outputs, grad_u, grad_w, *forward's arguments, outputs, gates, forgets, final_u)
              -> (grads of scores, values, log_decay, m, u, w)

They have fake kernels, for torch.compile and torch.export, and a derivative, the backward operator. For
higher derivatives the gradients of `chunked` are used, recomputed. Where no compiler, exporter, mode or
profiler is active, torch's dispatcher is skipped: it is half of the time of a small call.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from aaren.ops import chunked
from aaren.ops.cpu import fused
from aaren.ops.cpu.memory import uninitialised
from aaren.ops.packing import through_padding
from aaren.ops.state import PLAIN, Items, Scan, ScanState
from aaren.ops.triton import scan as triton_scan
from aaren.shapes import Values

Tensors: TypeAlias = tuple[Tensor, ...]
Results: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


class Engine(Protocol):
    """What fills the results of the operators. All tensors are contiguous, bounds are int64.

    The state among the results of forward is a copy of the initial one, to be made the final one.
    """

    def forward(self, items: Items, initial: ScanState, results: Results) -> None:
        """Scan forward in time."""

    def backward(
        self, grads: Tensors, items: Items, initial: ScanState, saved: Tensors, results: Results
    ) -> None:
        """Scan backward in time; grads and saved as in the operator."""


ENGINES: dict[str, Engine] = {"fused": fused, "triton": triton_scan}


def scan_with(engine: str) -> Scan:
    """Return the backend of an engine."""

    def scan(items: Items, initial: ScanState) -> tuple[Values, ScanState]:
        scores, values, mask, log_decay, bounds = items
        dtype = torch.promote_types(torch.promote_types(scores.dtype, values.dtype), torch.float32)
        scores, values = (x if x.dtype == dtype else x.to(dtype) for x in (scores, values))
        if log_decay is not None:
            log_decay = log_decay.to(dtype)
        tensors = (scores, values, mask, log_decay, bounds, *initial)
        function: Any = prefix_attention
        if _is_watched(engine, tensors):
            function = torch.ops.aaren.prefix_attention
        elif torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
            function = _PrefixAttention.apply
        outputs, m, u, w, _, _ = function(*tensors, engine)
        return outputs, ScanState(m.detach(), u, w)

    return scan


def _is_watched(engine: str, tensors: Sequence[Tensor | None]) -> bool:
    """Tell whether a call must go through torch's dispatcher."""
    return (
        engine != "fused"
        or torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
        or torch._C._autograd._profiler_enabled()
        or any(x is not None and (type(x) not in PLAIN or x.device.type != "cpu") for x in tensors)
    )


def prefix_attention(
    scores: Tensor,  # (b, t, h) float32 or float64
    values: Tensor,  # (b, t, h, d) the same dtype
    mask: Tensor | None,
    log_decay: Tensor | None,
    bounds: Tensor | None,
    m: Tensor,  # (n, h) float64, initial state
    u: Tensor,
    w: Tensor,
    engine: str = "fused",
) -> Results:
    """Return outputs, the final m, u, w, and the gates and forgets that the backward pass reads."""
    items, initial = _arrange(scores, values, mask, log_decay, bounds, m, u, w)
    results = _empty_results(scores, values, mask, log_decay, bounds, m, u, w)
    ENGINES[engine].forward(items, initial, results)
    return results


def prefix_attention_backward(
    grad_outputs: Tensor,
    grad_u: Tensor,
    grad_w: Tensor,
    scores: Tensor,
    values: Tensor,
    mask: Tensor | None,
    log_decay: Tensor | None,
    bounds: Tensor | None,
    m: Tensor,
    u: Tensor,
    w: Tensor,
    outputs: Tensor,
    gates: Tensor,
    forgets: Tensor,
    final_u: Tensor,
    engine: str = "fused",
) -> Results:
    """Return the gradients of scores, values, log_decay (empty if there is none), m, u, w."""
    grads = (grad_outputs.contiguous(), grad_u.contiguous(), grad_w.contiguous())
    inputs = (scores, values, mask, log_decay, bounds, m, u, w)
    results = _empty_gradients(*grads, *inputs)
    ENGINES[engine].backward(grads, *_arrange(*inputs), (outputs, gates, forgets, final_u), results)
    return results


def _arrange(*inputs: Any) -> tuple[Items, ScanState]:  # Any: tensors, or None
    tensors: list[Any] = [None if x is None else x.contiguous() for x in inputs]
    if tensors[4] is not None:
        tensors[4] = tensors[4].long()
    return Items(*tensors[:5]), ScanState(*tensors[5:])


def _empty_results(scores: Tensor, values: Tensor, *rest: Any) -> Results:  # Any: tensors, or None
    _, _, _, m, u, w, *_ = rest
    gates, forgets = (scores.new_empty(scores.shape, dtype=torch.float64) for _ in range(2))
    state = [part.clone(memory_format=torch.contiguous_format) for part in (m, u, w)]
    return uninitialised(values), *state, gates, forgets


def _empty_gradients(*inputs: Any) -> Results:  # Any: as above
    _, _, _, scores, values, _, log_decay, _, m, u, w, *_ = inputs
    # Operators cannot return None: without decay, its gradient is an empty tensor.
    shape = scores.shape if log_decay is not None else (0, 0, scores.shape[2])
    grad_scores, *grad_state = (x.new_empty(x.shape) for x in (scores, m, u, w))
    return grad_scores, uninitialised(values), scores.new_empty(shape), *grad_state


def _save(ctx: Any, inputs: tuple[Any, ...], output: Results) -> None:  # Any: torch's own types
    outputs, _, final_u, _, gates, forgets = output
    *tensors, ctx.engine = inputs
    ctx.set_materialize_grads(False)  # spares zeros for gates and forgets
    ctx.save_for_backward(*tensors, outputs, gates, forgets, final_u)


def _differentiate(
    ctx: Any,
    grad_outputs: Tensor | None,
    grad_m: Tensor | None,  # noqa: ARG001 - m is a normaliser, not a quantity
    grad_u: Tensor | None,
    grad_w: Tensor | None,
    *grad_gates: Tensor | None,  # noqa: ARG001 - gates and forgets never leave the operators
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    _, values, _, log_decay, _, _, u, w, *_ = saved
    grads = [
        torch.zeros_like(x) if grad is None else grad
        for grad, x in ((grad_outputs, values), (grad_u, u), (grad_w, w))
    ]
    if torch.is_grad_enabled():
        return *_differentiate_plainly(grads, saved[:8]), None
    function: Any = prefix_attention_backward
    if _is_watched(ctx.engine, (*grads, *saved)):
        function = torch.ops.aaren.prefix_attention_backward
    grad_scores, grad_values, grad_log_decay, *grad_state = function(*grads, *saved, ctx.engine)
    grad_log_decay = None if log_decay is None else grad_log_decay
    return grad_scores, grad_values, None, grad_log_decay, None, *grad_state, None


def _differentiate_plainly(grads: list[Tensor], inputs: Sequence[Any]) -> Iterator[Tensor | None]:
    """Return gradients of the inputs that can be differentiated again: those of `chunked`."""
    # Views: where one tensor was given twice, each place has a gradient of its own.
    inputs = [x.view_as(x) if x is not None and x.requires_grad else x for x in inputs]
    outputs, final = through_padding(chunked.scan)(Items(*inputs[:5]), ScanState(*inputs[5:]))
    results = (outputs.to(grads[0].dtype), final.u, final.w)
    varying = [k for k, result in enumerate(results) if result.requires_grad]
    found = iter(
        torch.autograd.grad(
            [results[k] for k in varying],
            [x for x in inputs if x is not None and x.requires_grad],
            [grads[k] for k in varying],
            create_graph=True,
            materialize_grads=True,
        )
    )
    return (next(found) if x is not None and x.requires_grad else None for x in inputs)


class _PrefixAttention(torch.autograd.Function):
    """The operator without torch's dispatcher."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Results:
        results = prefix_attention(*inputs)
        _save(ctx, inputs, results)
        return results

    backward = staticmethod(_differentiate)


def _define(function: Any, fake: Any) -> None:
    """Make a function an operator: not by `custom_op`, whose first call imports the compiler."""
    name = f"aaren::{function.__name__}"
    torch.library.define(name, torch.library.infer_schema(function, mutates_args=()))
    torch.library.impl(name, "default", function)
    torch.library.register_fake(name, fake)


_define(prefix_attention, _empty_results)
_define(prefix_attention_backward, _empty_gradients)
torch.library.register_autograd("aaren::prefix_attention", _differentiate, setup_context=_save)
