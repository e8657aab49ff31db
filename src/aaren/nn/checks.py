"""What modules and models accept: shapes of sequences, items and states. Numbers: `aaren.stream.session`.

Shapes are compared as tuples, which costs a stream about a microsecond per step.
"""

from numbers import Integral, Real
from typing import cast

import torch
from torch import Tensor

from aaren.errors import ConfigError, ShapeError, StateError
from aaren.ops import ScanState
from aaren.ops.checks import check_mask
from aaren.ops.state import settle_decay
from aaren.shapes import Activations, Mask, Token, TokenMask


def require_size(name: str, size: object) -> None:
    """Raise unless a size is an integer of at least 1.

    >>> require_size("width", 64.0)
    Traceback (most recent call last):
    ...
    aaren.errors.ConfigError: width must be an integer of at least 1; got 64.0.
    """
    if isinstance(size, bool) or not isinstance(size, Integral) or int(size) < 1:
        raise ConfigError(f"{name} must be an integer of at least 1; got {size!r}.")


def require_divides(part_name: str, part: int, whole_name: str, whole: int) -> None:
    """Raise unless `part` is positive and divides `whole`.

    >>> require_divides("num_heads", 3, "width", 64)
    Traceback (most recent call last):
    ...
    aaren.errors.ConfigError: num_heads must divide width: 64 is not a multiple of 3. Nearest that do: 2, 4.
    """
    require_size(part_name, part)
    require_size(whole_name, whole)
    if whole % part:
        lower = max(n for n in range(1, part) if whole % n == 0)
        upper = min(n for n in range(part, whole + 1) if whole % n == 0)
        raise ConfigError(
            f"{part_name} must divide {whole_name}: {whole} is not a multiple of {part}. "
            f"Nearest that do: {lower}, {upper}."
        )


def require_probability(name: str, value: object) -> None:
    """Raise unless the value is a probability of dropping an item: at least 0 and below 1."""
    if not isinstance(value, Real) or not 0.0 <= float(value) < 1.0:
        raise ConfigError(f"{name} must be at least 0 and below 1; got {value!r}.")


def check_sequence(x: Activations, width: int, mask: Mask | None) -> None:
    """Raise unless x is (b, t, width) and its mask, if any, bool (b, t)."""
    if x.ndim != 3 or x.shape[2] != width:
        hint = " For one item per stream, call step." if x.ndim == 2 and x.shape[-1] == width else ""
        raise ShapeError(f"x must be (b, t, c) with c = {width}; got {tuple(x.shape)}.{hint}")
    check_mask(mask, x.shape[:2], "(b, t)")


def check_token(x: Token, width: int, mask: TokenMask | None) -> None:
    """Raise unless x is (b, width) and its mask, if any, is bool (b,)."""
    if x.ndim != 2 or x.shape[1] != width:
        hint = " For a whole sequence, call forward." if x.ndim == 3 else ""
        raise ShapeError(
            f"x must be (b, c) with c = {width}, one item per stream; got {tuple(x.shape)}.{hint}"
        )
    if mask is not None:
        check_mask(mask, x.shape[:1], "(b,)")


def check_decay(log_decay: Tensor | None, shape: tuple[int, ...], mask: Tensor | None) -> None:
    """Raise unless the decay, if any, is floating, (b, t, h) or, for a step, (b, h), and at most 0."""
    if log_decay is None:
        return
    if log_decay.shape != shape or not log_decay.is_floating_point():
        letters = "(b, t, h)" if len(shape) == 3 else "(b, h)"
        raise ShapeError(
            f"log_decay must be {letters} = {shape}, floating point; got {tuple(log_decay.shape)} of "
            f"{log_decay.dtype}. Expand it: log_decay.expand{shape}."
        )
    settle_decay(log_decay, None if mask is None else ~mask.unsqueeze(-1))


def check_scan_state(state: ScanState, batch_size: int, num_heads: int, head_width: int) -> None:
    """Raise unless the state is one of this many streams, heads and head width, in float32 or float64."""
    if not isinstance(state, ScanState):
        raise wrong_kind(ScanState, state)
    streams = (batch_size, num_heads)
    if state.m.shape != streams or state.u.shape != streams or state.w.shape != (*streams, head_width):
        raise StateError(
            f"this layer needs a state of {batch_size} streams, {num_heads} heads of width {head_width}; got "
            f"m {tuple(state.m.shape)}, u {tuple(state.u.shape)}, w {tuple(state.w.shape)}. A state fits the "
            f"model and the number of streams it was made for: start again with init_state({batch_size}), or "
            f"pick streams with select."
        )
    if state.m.dtype not in (torch.float64, torch.float32) or not (
        state.m.dtype == state.u.dtype == state.w.dtype
    ):
        raise StateError(
            f"a state is float64 or float32 throughout; got {state.m.dtype}, {state.u.dtype}, "
            f"{state.w.dtype}. Half precision would lose the sums: convert with state.to(torch.float32)."
        )


def check_item(
    x: Token,
    width: int,
    mask: TokenMask | None,
    log_decay: Tensor | None,
    state: ScanState,
    num_heads: int,
) -> None:
    """Raise unless item, mask, decay and state of an attention layer's step fit the layer and each other.

    One test in the usual case, because a stream pays for it at every step; the others find out what is wrong.
    """
    streams = (*x.shape[:1], num_heads)
    if (
        mask is None
        and log_decay is None
        and type(state) is ScanState
        and x.shape == (*x.shape[:1], width)
        and state.w.shape == (*streams, width // num_heads)
        and state.m.shape == state.u.shape == streams
        and state.m.dtype == state.u.dtype == state.w.dtype == torch.float64
    ):
        return
    check_token(x, width, mask)
    check_decay(log_decay, streams, mask)
    check_scan_state(state, x.shape[0], num_heads, width // num_heads)


def check_tensor_state(state: tuple[Tensor, ...], kind: type, shape: tuple[int, ...]) -> None:
    """Raise unless the state is of this kind and all its tensors are floating and have this shape."""
    if not isinstance(state, kind):
        raise wrong_kind(kind, state)
    for part in state:
        if part.shape != shape or not part.is_floating_point():
            raise StateError(
                f"this layer needs a {kind.__name__} of shape {shape}; got {tuple(part.shape)} of "
                f"{part.dtype}. A state fits the model and the number of streams it was made for: start "
                f"again with init_state({shape[0]}), or pick streams with select."
            )


def check_model_state(state: tuple[object, ...], kind: type, streams: int | None = None) -> None:
    """Raise if a model's state is of another kind or, if asked, of another number of streams.

    Otherwise the item of one stream would be broadcast to all. The last part of a model's state is a tensor.
    """
    if not isinstance(state, kind):
        raise wrong_kind(kind, state)
    held = cast("Tensor", state[-1]).shape[0]
    if streams is not None and held != streams:
        raise StateError(
            f"this state is of {held} streams; items for {streams} came. Give every stream an item, with "
            f"mask=False where there is none; start again with init_state({streams}), or pick streams with "
            f"state.select."
        )


def wrong_kind(kind: type, state: object) -> StateError:
    """Build the error for a state of another kind of layer."""
    return StateError(
        f"this layer needs a state of kind {kind.__name__}; got {type(state).__name__}. A state fits only "
        f"the kind of model it was made by: start again with init_state."
    )


def refuse_decay(log_decay: Tensor | None, mixer: str) -> None:
    """Raise if a mixer is given a decay that it cannot apply."""
    if log_decay is not None:
        raise ConfigError(
            f"mixer={mixer!r} takes no log_decay: its memory is no sum, or decays by itself. Leave log_decay "
            f"out, or use mixer='aaren'."
        )


def refuse_dynamic_length(x: Activations, mixer: str) -> None:
    """Raise if a layer that goes through time in a loop is exported for sequences of any length."""
    length: object = x.shape[1]  # an int, says its type
    if torch.compiler.is_exporting() and isinstance(length, torch.SymInt):
        raise ConfigError(
            f"mixer={mixer!r} goes through time in a loop, so torch.export needs a fixed t; got a dynamic "
            f"one. Export with the t you need, or export step, which takes any sequence item by item; "
            f"mixer='aaren' exports with a dynamic t."
        )


def hide_padding(x: Activations, mask: Mask | None) -> Activations:
    """Set padding to 0, so that nothing in it, not even NaN, reaches a weight's gradient."""
    return x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0.0)


SAFE_POWER = 0.45  # power of a dtype's largest number up to which squares, as in a norm, can be held as well


def largest(dtype: torch.dtype) -> float:
    """Return the largest number that a model of this dtype takes in: one that it can still compute with.

    >>> f"{largest(torch.float32):.0e}, {largest(torch.float64):.0e}"
    '2e+17, 5e+138'
    """
    top = float(torch.finfo(dtype).max)
    return top if dtype == torch.float16 else top**SAFE_POWER  # norms of float16 are computed in float32
