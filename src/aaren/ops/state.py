"""ScanState, all that attention with a constant query remembers of a prefix, and its algebra.

    combine:  m = max(a.m, b.m)   u = a.u·e^(a.m-m) + b.u·e^(b.m-m)   w likewise
    read:     output = w / u      (0 where nothing has been seen)

`combine` is associative and commutative over *disjoint* sets of items; the empty state is its identity. The
running maximum `m` only keeps the exponentials in range: it is a constant to autograd, and gradients travel
through `u` and `w` (the mathematics: docs/mathematics.md).
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad

from aaren.errors import ConfigError, ShapeError
from aaren.ops.tracing import RECORDER, is_traced
from aaren.shapes import LogDecay, Mask, Scores, TokenMask, Values

Target: TypeAlias = torch.dtype | torch.device | str | int  # what a tensor's `to` takes

PLAIN = (Tensor, torch.nn.Parameter)  # tensors that are just memory: neither wrappers nor fakes


class ScanState(NamedTuple):
    """All that is remembered of a prefix; its size does not depend on the prefix's length.

    The leading axes are those of the streams, usually (b, h): `m` and `u` have just these, `w` has d more.

    >>> state = ScanState.empty((2, 4), 16)
    >>> state.w.shape, state.nbytes
    (torch.Size([2, 4, 16]), 1152)
    """

    m: Tensor  # (..., h)     running maximum of the scores
    u: Tensor  # (..., h)     sum of exp(score - m)
    w: Tensor  # (..., h, d)  sum of exp(score - m) * value

    @classmethod
    def empty(
        cls,
        streams: tuple[int, ...],
        width: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> "ScanState":
        """Return the state before the first item: the identity of `combine`."""
        # m is the lowest finite number: the paper's 0 makes 0/0 of very negative scores, and -inf makes NaN.
        dtype = dtype or default_state_dtype(device)
        return cls(
            m=torch.full(streams, torch.finfo(dtype).min, dtype=dtype, device=device),
            u=torch.zeros(streams, dtype=dtype, device=device),
            w=torch.zeros((*streams, width), dtype=dtype, device=device),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return sum(part.nbytes for part in self)

    def to(self, *targets: Target, dtype: Target | None = None, device: Target | None = None) -> "ScanState":
        """Convert to another floating dtype, device, or both, given as to a tensor's `to`.

        An empty state stays the identity, whose `m` differs between dtypes.
        """
        dtype, device = settle_targets(targets, dtype, device)
        state = self if device is None else ScanState(*(part.to(device=device) for part in self))
        if dtype is None or state.m.dtype == dtype:
            return state
        lowest = torch.finfo(dtype).min
        m = torch.where(state.u == 0, lowest, state.m.to(dtype).clamp(min=lowest))
        return ScanState(m, state.u.to(dtype), state.w.to(dtype))


class Items(NamedTuple):
    """What a scan takes in."""

    scores: Scores
    values: Values
    mask: Mask | None = None
    log_decay: LogDecay | None = None
    wants_logs: bool = False


# A backend: from items and the state before them to outputs, the final state and, if wanted, the logarithm of
# every prefix's sum of weights, (b, t, h), -inf where it is empty, in the dtype of the state.
Scan: TypeAlias = Callable[[Items, ScanState], tuple[Values, ScanState, Scores | None]]


def settle_targets(
    targets: tuple[Target, ...], dtype: Target | None, device: Target | None
) -> tuple[torch.dtype | None, torch.device | None]:
    """Tell dtype and device apart, as a tensor's `to` does.

    >>> settle_targets(("cpu", torch.float32), None, None)
    (torch.float32, device(type='cpu'))
    """
    dtypes = [target for target in (*targets, dtype) if isinstance(target, torch.dtype)]
    places = [target for target in (*targets, device) if isinstance(target, torch.device | str | int)]
    if len(dtypes) > 1 or len(places) > 1 or len(dtypes) + len(places) < len(targets):
        raise ConfigError(
            f"a state goes to a dtype, a device, or both, each named once; got {targets}, dtype={dtype}, "
            f"device={device}. For instance: state.to(torch.float32), state.to('cpu')."
        )
    found = dtypes[0] if dtypes else None
    if found is not None and not found.is_floating_point:
        raise ConfigError(f"a state is floating point; got {found}. Use torch.float64 or torch.float32.")
    return found, torch.device(places[0]) if places else None


def default_state_dtype(device: torch.device | str | None) -> torch.dtype:
    """Return float64, so that sums over endless streams stay exact; float32 on MPS, which has no other."""
    return torch.float32 if device is not None and torch.device(device).type == "mps" else torch.float64


def leaf(score: Tensor, value: Tensor, mask: Tensor | None = None) -> ScanState:
    """Turn items, (..., h) and (..., h, d), into states of one item each, in the dtype of the scores.

    Items with a score of -inf or a False in the mask become the identity, whatever stands in them.
    """
    is_real = score != -torch.inf if mask is None else (score != -torch.inf) & mask
    m = torch.where(is_real, score, torch.finfo(score.dtype).min)
    w = torch.where(is_real.unsqueeze(-1), value.to(score.dtype), 0.0)
    return ScanState(m, is_real.to(score.dtype), w)


def combine(a: ScanState, b: ScanState, *, log_decay: Tensor | None = None) -> ScanState:
    """Join the states of two disjoint sets of items into the state of their union, stream by stream.

    Where items decay, b must be of the later items, and `log_decay` (..., h) the sum of their decays, which
    a is weighed down by: no state holds it.

    >>> a = leaf(torch.tensor([0.0]), torch.tensor([[1.0]]))
    >>> b = leaf(torch.tensor([0.0]), torch.tensor([[3.0]]))
    >>> read(combine(a, b))
    tensor([[2.]])
    """
    shapes = [tuple(tuple(part.shape) for part in state) for state in (a, b)]
    if shapes[0] != shapes[1]:
        raise ShapeError(
            f"states are combined stream by stream, so all parts must have equal shapes; got m, u, w of "
            f"{shapes[0]} and {shapes[1]}. Expand one of them, or select streams."
        )
    if log_decay is not None:
        a = decay(a, settle_decay(log_decay, None))
    return join(settle_empty(a), settle_empty(b))


def settle_empty(state: ScanState) -> ScanState:
    """Return the state with the lowest `m` where nothing has been seen, whatever was put there."""
    return ScanState(state.m.masked_fill(state.u == 0, torch.finfo(state.m.dtype).min), state.u, state.w)


def join(a: ScanState, b: ScanState) -> ScanState:
    """Combine states whose shapes broadcast, and whose empty streams have the lowest `m`."""
    m = torch.maximum(a.m, b.m).detach()
    scale_a, scale_b = torch.exp(a.m - m), torch.exp(b.m - m)
    u = a.u * scale_a + b.u * scale_b
    w = a.w * scale_a.unsqueeze(-1) + b.w * scale_b.unsqueeze(-1)
    return ScanState(m, u, w)


def decay(state: ScanState, log_decay: Tensor) -> ScanState:
    """Weigh all that has been seen down by exp(log_decay), log_decay <= 0; -inf forgets it altogether."""
    lowest = torch.finfo(state.m.dtype).min
    is_kept = log_decay != -torch.inf
    m = torch.where(is_kept, state.m + log_decay.to(state.m.dtype), lowest).clamp(min=lowest)
    return ScanState(m, torch.where(is_kept, state.u, 0.0), torch.where(is_kept.unsqueeze(-1), state.w, 0.0))


def settle_decay(log_decay: Tensor, hidden: Tensor | None) -> Tensor:
    """Return log_decay with 0 where items are hidden; raise ShapeError if it is positive anywhere else."""
    check_floating("log_decay", log_decay)
    if hidden is not None:
        log_decay = log_decay.masked_fill(hidden, 0.0)
    if may_read(log_decay) and bool((log_decay > 0).any()):
        raise ShapeError(
            f"log_decay must be <= 0 everywhere, the logarithm of a factor up to 1; its largest entry is "
            f"{log_decay.max().item():g}. Negate it, or pass -softplus(x)."
        )
    return log_decay


def read(state: ScanState) -> Tensor:
    """Return the attention output of all items seen so far, (..., h, d); 0 where there were none."""
    is_empty = (state.u == 0).unsqueeze(-1)
    safe = torch.where(is_empty, 1.0, state.u.unsqueeze(-1))  # keeps 0/0 out of the backward pass too
    return torch.where(is_empty, 0.0, state.w / safe)


def as_token(state: ScanState) -> tuple[Tensor, Tensor]:
    """Return the one item that equals the state: score m + log u, value w / u; if it is empty, -inf and 0."""
    is_empty = state.u == 0
    safe = torch.where(is_empty, 1.0, state.u)
    return torch.where(is_empty, -torch.inf, state.m + safe.log()), read(state)


def update(
    state: ScanState,
    score: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    log_decay: Tensor | None = None,
) -> ScanState:
    """Take in one item per stream: the RNN cell of the paper's Figure 2. The definition; see `step`.

    Args:
        state: over streams (..., h).
        score: (..., h), the item's score under the constant query.
        value: (..., h, d).
        mask: (..., h) or broadcastable, bool; a stream with False keeps its state bit for bit, without decay.
        log_decay: (..., h), <= 0; applied to the state before the item, also before one of score -inf.

    >>> state = ScanState.empty((1,), 1)
    >>> for score, value in [(0.0, 1.0), (0.0, 2.0), (-torch.inf, 9.0)]:
    ...     state = update(state, torch.tensor([score]), torch.tensor([[value]]))
    >>> read(state)
    tensor([[1.5000]], dtype=torch.float64)
    """
    _check_item(state, score, value, mask, log_decay)
    if log_decay is not None:
        state = decay(state, settle_decay(log_decay, None if mask is None else ~mask))
    score = score.to(state.m.dtype)
    taken = join(settle_empty(state), leaf(score, value, mask))
    # Not even the sign of a zero changes where there is no item.
    is_real = score != -torch.inf if mask is None else (score != -torch.inf) & mask
    kept = (is_real, is_real, is_real.unsqueeze(-1))
    return ScanState(*(torch.where(*parts) for parts in zip(kept, taken, state, strict=True)))


def step(
    state: ScanState,
    score: Tensor,
    value: Tensor,
    *,
    mask: TokenMask | None = None,
    log_decay: Tensor | None = None,
) -> tuple[Tensor, ScanState]:
    """Take in one item per stream as layers do: `update`, then `read`; return the output and the new state.

    What streams run. An eager step costs calls, not arithmetic: without mask and decay there are few of them.
    The mask is (b,).
    """
    recorder = None if torch.compiler.is_compiling() else RECORDER.get()
    if recorder is not None:
        return recorder.scan(state, score, value, mask, log_decay)
    if mask is None and log_decay is None:
        dtype = state.m.dtype
        score = score.to(dtype)
        value = torch.where((score != -torch.inf).unsqueeze(-1), value.to(dtype), 0.0)
        before = state.m.masked_fill(state.u == 0, torch.finfo(dtype).min)  # as `settle_empty`
        m = torch.maximum(before, score).detach()
        kept, taken = torch.exp(before - m), torch.exp(score - m)
        u = torch.addcmul(taken, state.u, kept)
        w = torch.addcmul(value * taken.unsqueeze(-1), state.w, kept.unsqueeze(-1))
        state = ScanState(m, u, w)
        return read(state), state
    is_real = None if mask is None else mask.unsqueeze(-1)
    state = update(state, score, value, mask=is_real, log_decay=log_decay)
    return read(state), state


def _check_item(
    state: ScanState, score: Tensor, value: Tensor, mask: Tensor | None, log_decay: Tensor | None
) -> None:
    """Raise unless an item fits the state: broadcasting would make new streams, or count an item twice."""
    streams = state.m.shape
    is_fitting = score.shape == streams and value.shape == state.w.shape
    if not is_fitting or (log_decay is not None and log_decay.shape != streams):
        raise ShapeError(
            f"score, value and log_decay must be {tuple(streams)}, {tuple(state.w.shape)} and "
            f"{tuple(streams)}, as the state's u and w; got {tuple(score.shape)}, {tuple(value.shape)} and "
            f"{None if log_decay is None else tuple(log_decay.shape)}. Expand them, or select streams."
        )
    if mask is not None and mask.dtype != torch.bool:
        raise ShapeError(f"mask must be bool, True = real item; got {mask.dtype}. Convert with mask.bool().")
    if mask is not None and mask.shape != streams:
        sizes = zip(reversed(mask.shape), reversed(streams), strict=False)
        if mask.ndim > len(streams) or any(size not in (1, own) for size, own in sizes):
            raise ShapeError(f"mask must broadcast to {tuple(streams)}; got {tuple(mask.shape)}.")


def check_floating(name: str, tensor: Tensor) -> None:
    """Raise unless the tensor is of floating point."""
    if not tensor.is_floating_point():
        raise ShapeError(f"{name} must be floating point; got {tensor.dtype}. Convert with {name}.float().")


def is_transformed() -> bool:
    """Tell whether torch.func or forward-mode differentiation is at work.

    Tensors are then wrappers without memory, or carry tangents that a compiled kernel would drop in silence.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def may_read(tensor: Tensor) -> bool:
    """Tell whether the numbers in a tensor may be read: not on an accelerator, nor in a trace."""
    is_plain = type(tensor) in PLAIN and tensor.device.type == "cpu"
    return is_plain and not is_traced() and not is_transformed()
