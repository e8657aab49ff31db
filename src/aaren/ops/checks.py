"""What `scan_attention` and `attend` accept, and where autocast must not reach.

Checks of shapes are free and always made. Checks of values read memory: they are left out while torch.compile
traces, under torch.func, and on accelerators, where they would stall the queue.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from aaren.errors import ShapeError, StateError
from aaren.ops.state import Items, ScanState, check_floating


def check_scan(items: Items, initial_state: ScanState | None) -> None:
    """Raise ShapeError or StateError unless all arguments of `scan_attention` fit together."""
    scores, values, mask, log_decay, _ = items
    if scores.ndim != 3:
        raise ShapeError(
            f"scores must be (b, t, h), one number per item and head; got {tuple(scores.shape)}. "
            f"For one head, use scores.unsqueeze(-1)."
        )
    if values.ndim != 4 or values.shape[:3] != scores.shape:
        raise ShapeError(
            f"values must be (b, t, h, d) with the (b, t, h) of scores, {tuple(scores.shape)}; got "
            f"{tuple(values.shape)}. Split the heads first: values.unflatten(-1, (h, d))."
        )
    check_floating("scores", scores)
    check_floating("values", values)
    batch, length, heads, width = values.shape
    others = {"values": values, "mask": mask, "log_decay": log_decay}
    check_mask(mask, (batch, length), "(b, t)")
    if log_decay is not None and log_decay.shape != scores.shape:
        raise ShapeError(
            f"log_decay must be (b, t, h) like scores, {tuple(scores.shape)}; got {tuple(log_decay.shape)}. "
            f"Expand it: log_decay.expand(b, t, h)."
        )
    if initial_state is not None:
        check_state(initial_state, (batch, heads), width)
        others["initial_state"] = initial_state.w
    check_devices("scores", scores, others)


def check_mask(mask: Tensor | None, shape: tuple[int, ...], letters: str) -> None:
    """Raise unless the mask, if any, is boolean and has the shape that the letters name."""
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise ShapeError(f"mask must be bool, True = real item; got {mask.dtype}. Convert with mask.bool().")
    if mask.shape != shape:
        raise ShapeError(f"mask must be {letters} = {tuple(shape)}; got {tuple(mask.shape)}.")


def check_state(state: ScanState, streams: tuple[int, ...], width: int) -> None:
    """Raise unless the state belongs to these streams and this head width."""
    if not isinstance(state, ScanState):
        raise StateError(
            f"initial_state must be a ScanState; got {type(state).__name__}. Wrap its parts: "
            f"ScanState(m, u, w)."
        )
    expected = (streams, streams, (*streams, width))
    if tuple(tuple(part.shape) for part in state) != expected:
        raise StateError(
            f"initial_state must have m, u of shape {streams} and w of shape {(*streams, width)}; got "
            f"{tuple(state.m.shape)}, {tuple(state.u.shape)}, {tuple(state.w.shape)}. A state fits the "
            f"batch, heads and width it was made for; start without initial_state."
        )
    if not state.m.is_floating_point() or len({part.dtype for part in state}) != 1:
        raise StateError(
            f"initial_state must have one floating dtype; got "
            f"{', '.join(str(part.dtype) for part in state)}. Convert it with state.to(torch.float64)."
        )


def check_devices(name: str, tensor: Tensor, others: dict[str, Tensor | None]) -> None:
    """Raise unless all tensors are on the device of the first."""
    for other_name, other in others.items():
        if other is not None and other.device != tensor.device:
            raise ShapeError(
                f"{other_name} must be on the device of {name}, {tensor.device}; got {other.device}. "
                f"Move it with .to({str(tensor.device)!r})."
            )


def full_precision(device_type: str) -> AbstractContextManager[object]:
    """Suspend autocast, if it is on: bfloat16 has too few digits for an exponent."""
    if device_type != "meta" and torch.is_autocast_enabled(device_type):  # which refuses to be asked of meta
        return torch.autocast(device_type, enabled=False)
    return nullcontext()
