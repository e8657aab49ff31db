"""`scan_attention`: attention over every prefix at once, through any backend by name."""

from aaren.errors import ConfigError, unknown_name
from aaren.ops import chunked, naive, scans
from aaren.ops.checks import check_scan, full_precision
from aaren.ops.cpu import fused
from aaren.ops.packing import PackedScan, through_padding
from aaren.ops.state import ScanState, default_state_dtype, is_transformed, settle_empty
from aaren.ops.triton import scan as triton_scan
from aaren.shapes import LogDecay, Mask, Scores, SequenceBounds, Values

BACKENDS: dict[str, PackedScan] = {
    "naive": through_padding(naive.scan),
    "recurrent": through_padding(scans.scan_recurrent),
    "hillis_steele": through_padding(scans.scan_hillis_steele),
    "ladner_fischer": through_padding(scans.scan_ladner_fischer),
    "chunked": through_padding(chunked.scan),
    "fused": fused.scan,
    "triton": triton_scan.scan,
}
COMPILED = ("fused", "triton")


def scan_attention(
    scores: Scores,
    values: Values,
    *,
    mask: Mask | None = None,
    log_decay: LogDecay | None = None,
    cu_seqlens: SequenceBounds | None = None,
    initial_state: ScanState | None = None,
    backend: str = "auto",
) -> tuple[Values, ScanState]:
    """Attend to every prefix at once: output k is softmax(scores[:k + 1]) @ values[:k + 1].

    Args:
        scores: (b, t, h); -inf is a masked item; +inf, as NaN, makes NaN of its output and all later ones.
        values: (b, t, h, d).
        mask: (b, t) bool, True = real. A masked item changes nothing; the output there is that of the prefix
            so far, and 0 while the prefix is empty.
        log_decay: (b, t, h), <= 0: before item k, masked or not, all that came earlier is weighed down by
            exp(log_decay[:, k]); -inf forgets it.
        cu_seqlens: (n + 1,) int: n sequences packed end to end in one row (b = 1), the i-th at
            cu_seqlens[i] : cu_seqlens[i + 1]. Initial and final states then have one row per sequence.
        initial_state: what came before, from an earlier call or from `update`; default: nothing.
        backend: naive, recurrent, hillis_steele, ladner_fischer, chunked (any device), fused (CPU), triton
            (CUDA, experimental), or auto: fused on a CPU, chunked elsewhere, and under torch.func or
            forward-mode differentiation. All give the same result.

    Returns:
        The outputs (b, t, h, d) in the dtype of values, and the state after the last item, in the dtype of
        initial_state (float64 by default). Gradients flow through both (docs/mathematics.md).

    >>> import torch
    >>> outputs, state = scan_attention(torch.zeros(1, 3, 1), torch.tensor([1.0, 3.0, 8.0]).view(1, 3, 1, 1))
    >>> outputs.flatten()  # equal scores: the running mean
    tensor([1., 2., 4.])
    """
    check_scan(scores, values, mask, log_decay, cu_seqlens, initial_state)
    if backend == "auto":
        backend = "fused" if values.device.type == "cpu" and not is_transformed() else "chunked"
    if backend not in BACKENDS:
        raise unknown_name("backend", str(backend), [*BACKENDS, "auto"])
    if backend in COMPILED and is_transformed():
        raise ConfigError(
            f"backend={backend!r} knows neither torch.func nor forward-mode differentiation: all it has is a "
            f"backward pass. Use backend='auto', which is then chunked."
        )

    # All backends sum in float64 (where the device has it); dtypes are settled here, once.
    sum_dtype = default_state_dtype(values.device)
    if initial_state is None:
        num_streams = values.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
        initial = ScanState.empty(
            (num_streams, values.shape[2]), values.shape[3], dtype=sum_dtype, device=values.device
        )
    else:
        initial = settle_empty(initial_state.to(sum_dtype))
    with full_precision(values.device.type):  # scores are exponents
        outputs, final = BACKENDS[backend](scores, values, mask, log_decay, cu_seqlens, initial)
    return outputs.to(values.dtype), final if initial_state is None else final.to(initial_state.m.dtype)
