"""The torch operators of the compiled backends, which differ in the engine that computes: `fused`, `triton`.

They have fake kernels, for torch.compile and torch.export, and a derivative, the backward operator. For
higher derivatives the gradients of `chunked` are used, recomputed.
"""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import Tensor

from aaren.ops import chunked
from aaren.ops.cpu import fused
from aaren.ops.cpu.memory import uninitialised
from aaren.ops.state import Items, Scan, ScanState
from aaren.ops.triton import scan as triton_scan
from aaren.shapes import Scores, Values

Tensors: TypeAlias = tuple[Any, ...]  # Any: tensors, or None where something was not given

# An engine fills results: forward(items, initial, results), backward(grads, items, initial, saved, results).
# All tensors are contiguous.
ENGINES: dict[str, ModuleType] = {"fused": fused, "triton": triton_scan}

# Scores and values are float32 or float64, states, gates and forgets float64. Operators cannot return None:
# gradients of what was not given are empty tensors.
_INPUTS = "Tensor scores, Tensor values, Tensor? mask, Tensor? log_decay, Tensor m, Tensor u, Tensor w"
_SAVED = "Tensor outputs, Tensor gates, Tensor forgets, Tensor final_u"
_SIX = "Tensor, Tensor, Tensor, Tensor, Tensor, Tensor"


def scan_with(engine: str) -> Scan:
    """Return the backend of an engine."""

    def scan(items: Items, initial: ScanState) -> tuple[Values, ScanState, Scores | None]:
        scores, values, mask, log_decay, wants_logs = items
        dtype = torch.promote_types(torch.promote_types(scores.dtype, values.dtype), torch.float32)
        if not scores.dtype == values.dtype == dtype:
            scores, values = scores.to(dtype), values.to(dtype)
        if log_decay is not None:
            log_decay = log_decay.to(dtype)
        inputs = (scores, values, mask, log_decay, *initial, engine, wants_logs)
        outputs, m, u, w, _, _, logs = torch.ops.aaren.prefix_attention(*inputs)
        return outputs, ScanState(m, u, w), logs if wants_logs else None

    return scan


def prefix_attention(*inputs: Any) -> Tensors:
    """Return outputs, the final m, u, w, the gates and forgets that the backward pass reads, and the logs."""
    *tensors, engine, _ = inputs
    results = _empty_results(*inputs)
    ENGINES[engine].forward(*_arrange(tensors), results)
    return results


def prefix_attention_backward(*inputs: Any) -> Tensors:
    """Return the gradients of scores, values, log_decay, m, u, w."""
    grads, tensors, saved, engine = inputs[:4], inputs[4:11], inputs[11:15], inputs[15]
    grads = tuple(None if x is None else x.contiguous() for x in grads)
    results = _empty_gradients(*inputs)
    ENGINES[engine].backward(grads, *_arrange(tensors), saved, results)
    return results


def _arrange(tensors: Sequence[Any]) -> tuple[Items, ScanState]:
    contiguous: list[Any] = [None if x is None else x.contiguous() for x in tensors]
    return Items(*contiguous[:4]), ScanState(*contiguous[4:])


def _empty_results(*inputs: Any) -> Tensors:
    scores, values, _, _, *state, _, wants_logs = inputs
    gates, forgets = (_empty_like(scores, dtype=torch.float64) for _ in range(2))
    logs = _empty_like(gates) if wants_logs else None
    return uninitialised(values), *map(_empty_like, state), gates, forgets, logs


def _empty_gradients(*inputs: Any) -> Tensors:
    scores, values, _, log_decay, *state = inputs[4:11]
    of_decay = None if log_decay is None else _empty_like(log_decay)
    return _empty_like(scores), uninitialised(values), of_decay, *map(_empty_like, state)


def _empty_like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: Tensors, output: Tensors) -> None:  # Any: torch's own types
    outputs, _, final_u, _, gates, forgets, _ = output
    *tensors, ctx.engine, _ = inputs
    ctx.set_materialize_grads(False)  # spares zeros for all that was not used
    ctx.mark_non_differentiable(output[1])  # m is a normaliser, not a quantity
    ctx.save_for_backward(*tensors, outputs, gates, forgets, final_u)


def _differentiate(ctx: Any, *of_results: Tensor | None) -> Tensors:
    # Gates and forgets never leave the operators.
    grad_outputs, _, grad_u, grad_w, _, _, grad_logs = of_results
    saved = ctx.saved_tensors
    grads = (torch.zeros_like(saved[1]) if grad_outputs is None else grad_outputs, grad_u, grad_w, grad_logs)
    if torch.is_grad_enabled():
        return *_differentiate_plainly(grads, saved[:7]), None, None
    gradients = torch.ops.aaren.prefix_attention_backward(*grads, *saved, ctx.engine)
    of_scores, of_values, of_decay, *of_state = gradients
    return of_scores, of_values, None, None if saved[3] is None else of_decay, *of_state, None, None


def _differentiate_plainly(grads: Tensors, inputs: Sequence[Any]) -> Iterator[Tensor | None]:
    """Return gradients of the inputs that can be differentiated again: those of `chunked`."""
    # Views: where one tensor was given twice, each place has a gradient of its own.
    inputs = [x.view_as(x) if x is not None and x.requires_grad else x for x in inputs]
    items = Items(*inputs[:4])._replace(wants_logs=True)
    outputs, final, logs = chunked.scan(items, ScanState(*inputs[4:]))
    assert logs is not None
    results = (outputs.to(inputs[1].dtype), final.u, final.w, logs)
    varying = [k for k in range(4) if results[k].requires_grad and grads[k] is not None]
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


def _define(function: Any, fake: Any, schema: str) -> None:
    """Make a function an operator: not by `custom_op`, whose first call imports the compiler."""

    def without_none(call: Any) -> Any:
        return lambda *inputs: tuple(inputs[0].new_empty(0) if x is None else x for x in call(*inputs))

    name = f"aaren::{function.__name__}"
    torch.library.define(name, schema)
    torch.library.impl(name, "default", without_none(function))
    torch.library.register_fake(name, without_none(fake))


_define(prefix_attention, _empty_results, f"({_INPUTS}, str engine, bool wants_logs) -> ({_SIX}, Tensor)")
_GRADS = "Tensor grad_outputs, Tensor? grad_u, Tensor? grad_w, Tensor? grad_logs"
_define(
    prefix_attention_backward, _empty_gradients, f"({_GRADS}, {_INPUTS}, {_SAVED}, str engine) -> ({_SIX})"
)
torch.library.register_autograd("aaren::prefix_attention", _differentiate, setup_context=_save)
