"""`scan_attention`: attention over every prefix at once, through any backend by name."""

import os
import sys
from functools import cache, partial

import torch

from aaren.errors import ConfigError, ShapeError, unknown_name
from aaren.files.stdio import write_line
from aaren.ops import chunked, naive, scans
from aaren.ops.checks import check_scan, full_precision
from aaren.ops.cpu import library
from aaren.ops.kernel_operator import ENGINES, scan_with
from aaren.ops.state import (
    Items,
    Scan,
    ScanState,
    default_state_dtype,
    is_transformed,
    settle_decay,
    settle_empty,
)
from aaren.shapes import LogDecay, Mask, Scores, Values

BACKENDS: dict[str, Scan] = {
    "naive": naive.scan,
    "recurrent": scans.scan_recurrent,
    "hillis_steele": partial(scans.scan, scans.hillis_steele),
    "ladner_fischer": partial(scans.scan, scans.ladner_fischer),
    "chunked": chunked.scan,
    **{name: scan_with(name) for name in ENGINES},
}
HOMES = {"fused": "cpu", "triton": "cuda"}  # the one kind of device that a backend is for
VARIABLE = "AAREN_BACKEND"  # of the environment: what `auto` is, wherever that backend can run
try:
    HAS_CPU_KERNEL = library.is_available()  # asked once, here: torch.compile cannot see through the question
except ConfigError:  # the first call raises this again, with what to do
    HAS_CPU_KERNEL = True


def scan_attention(
    scores: Scores,
    values: Values,
    *,
    mask: Mask | None = None,
    log_decay: LogDecay | None = None,
    initial_state: ScanState | None = None,
    backend: str = "auto",
) -> tuple[Values, ScanState]:
    """Attend to every prefix at once: output k is softmax(scores[:k + 1]) @ values[:k + 1].

    Args:
        scores: (b, t, h); -inf is an item without weight, whatever its value; +inf, as NaN, makes NaN of its
            output and all later ones.
        values: (b, t, h, d).
        mask: (b, t) bool, True = real. A masked item is the identity: no item, no decay, gradients of 0. The
            output there is that of the prefix so far, and 0 while the prefix is empty.
        log_decay: (b, t, h), <= 0: before item k is taken in, all that came earlier is weighed down by
            exp(log_decay[:, k]); -inf resets to nothing.
        initial_state: what came before, from an earlier call or from `update`; default: nothing.
        backend: naive, recurrent, hillis_steele, ladner_fischer, chunked (any device), fused (CPU), triton
            (CUDA, experimental), or auto: fused on a CPU, chunked elsewhere, under torch.func or forward-mode
            differentiation, and where the kernel was not built. AAREN_BACKEND=NAME in the environment makes
            `auto` another one, wherever that one can run. All give the same result; within blocks of 64 items
            chunked computes in the inputs' precision, float32 at least: float64 scores ask it for float64
            throughout.

    Returns:
        The outputs (b, t, h, d) in the dtype of values, and the state after the last item, in the dtype of
        initial_state (float64 by default). Gradients flow through both (docs/mathematics.md).

    >>> import torch
    >>> outputs, state = scan_attention(torch.zeros(1, 3, 1), torch.tensor([1.0, 3.0, 8.0]).view(1, 3, 1, 1))
    >>> outputs.flatten()  # equal scores: the running mean
    tensor([1., 2., 4.])
    """
    return _scan(Items(scores, values, mask, log_decay), initial_state, backend)[:2]


def scan_with_logs(
    scores: Scores,
    values: Values,
    *,
    mask: Mask | None = None,
    log_decay: LogDecay | None = None,
    initial_state: ScanState | None = None,
    backend: str = "auto",
) -> tuple[Values, ScanState, Scores]:
    """Attend to every prefix, and also return log of the sum of its weights, (b, t, h), -inf if it is empty.

    >>> import torch
    >>> _, _, logs = scan_with_logs(torch.zeros(1, 3, 1), torch.ones(1, 3, 1, 1))
    >>> logs.exp().flatten().round()  # so many items
    tensor([1., 2., 3.], dtype=torch.float64)
    """
    outputs, final, logs = _scan(Items(scores, values, mask, log_decay, True), initial_state, backend)
    assert logs is not None
    return outputs, final, logs


def _scan(
    items: Items, initial_state: ScanState | None, backend: str
) -> tuple[Values, ScanState, Scores | None]:
    """Check the arguments, choose the backend and settle all dtypes."""
    values, mask, log_decay = items.values, items.mask, items.log_decay
    check_scan(items, initial_state)
    if log_decay is not None:
        hidden = None if mask is None else ~mask.unsqueeze(-1)
        items = items._replace(log_decay=settle_decay(log_decay, hidden))
    if backend == "auto":
        backend = choose_backend(values.device.type)
    if backend not in BACKENDS:
        raise unknown_name("backend", str(backend), [*BACKENDS, "auto"])
    if backend == "triton" and items.wants_logs:  # which its kernels do not return
        backend = "chunked"
    if backend in ENGINES and is_transformed():
        raise ConfigError(
            f"backend={backend!r} knows neither torch.func nor forward-mode differentiation: all it has is a "
            f"backward pass. Use backend='auto', which is then chunked."
        )
    if backend == "fused" and values.device.type not in ("cpu", "meta"):
        raise ShapeError(f"backend='fused' runs on the CPU; got {values.device}. Use backend='auto'.")

    # All backends keep sums in float64 (where the device has it); dtypes are settled here, once.
    if initial_state is None:
        batch, _, heads, width = values.shape
        initial = ScanState.empty((batch, heads), width, device=values.device)
    else:
        initial = settle_empty(initial_state.to(default_state_dtype(values.device)))
    with full_precision(values.device.type):  # scores are exponents
        outputs, final, logs = BACKENDS[backend](items, initial)
    outputs = outputs if outputs.dtype == values.dtype else outputs.to(values.dtype)
    return outputs, final if initial_state is None else final.to(initial_state.m.dtype), logs


def choose_backend(device_type: str) -> str:
    """Return what `auto` is: the user's choice if it can run here, else fused on a CPU, chunked elsewhere."""
    usual = "fused" if device_type == "cpu" and HAS_CPU_KERNEL else "chunked"
    wanted = os.environ.get(VARIABLE) or "auto"
    if wanted != "auto" and wanted not in BACKENDS:
        raise unknown_name(f"backend in {VARIABLE}", wanted, [*BACKENDS, "auto"])
    if wanted == "auto" or HOMES.get(wanted, device_type) != device_type:
        wanted = usual
    if device_type == "cpu" and wanted == "chunked" == usual and not torch.compiler.is_compiling():
        _say_how_to_get_the_kernel()
    return "chunked" if wanted in ENGINES and is_transformed() else wanted


@cache
def _say_how_to_get_the_kernel() -> None:
    """Print one line per process."""
    write_line(f"aaren: without the CPU kernel, backend 'chunked' is used; {library.describe()}.", sys.stderr)
