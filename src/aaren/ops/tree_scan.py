"""Attention over every prefix by a parallel prefix scan over states: the paper's section 3.2.

An element is the state of a run of items; with decay it also carries λ, the decay that the whole run does to
what came before it:  A·B = (λA + λB, combine(A decayed by λB, B)), associative and not commutative.
"""

from collections.abc import Callable

import torch

from aaren.ops.prefix_scan import Elements, Operator, hillis_steele, ladner_fischer
from aaren.ops.state import ScanState, decay, join, leaf, read
from aaren.shapes import LogDecay, Mask, Scores, Values

PrefixScan = Callable[[Operator, Elements], Elements]


def join_runs(earlier: Elements, later: Elements) -> Elements:
    """Combine runs without decay: elements are (m, u, w)."""
    return join(ScanState(*earlier), ScanState(*later))


def join_decaying(earlier: Elements, later: Elements) -> Elements:
    """Combine runs with decay: elements are (λ, m, u, w)."""
    state = join(decay(ScanState(*earlier[1:]), later[0]), ScanState(*later[1:]))
    return (earlier[0] + later[0], *state)


def prefix_states(
    algorithm: PrefixScan, initial: ScanState, items: ScanState, log_decay: LogDecay | None
) -> ScanState:
    """Return the state after the initial state (b, h) and after each of t items (b, t, h): (b, 1 + t, h)."""
    states = ScanState(*(torch.cat([a.unsqueeze(1), b], dim=1) for a, b in zip(initial, items, strict=True)))
    if log_decay is None:
        return ScanState(*algorithm(join_runs, states))
    lambdas = torch.cat([torch.zeros_like(initial.m).unsqueeze(1), log_decay.to(initial.m.dtype)], dim=1)
    return ScanState(*algorithm(join_decaying, (lambdas, *states))[1:])


def scan_hillis_steele(
    scores: Scores, values: Values, mask: Mask | None, log_decay: LogDecay | None, initial: ScanState
) -> tuple[Values, ScanState]:
    """Attend to every prefix in ceil(log2 (t + 1)) rounds."""
    return _scan(hillis_steele, scores, values, mask, log_decay, initial)


def scan_ladner_fischer(
    scores: Scores, values: Values, mask: Mask | None, log_decay: LogDecay | None, initial: ScanState
) -> tuple[Values, ScanState]:
    """Attend to every prefix with O(t) combinations."""
    return _scan(ladner_fischer, scores, values, mask, log_decay, initial)


def _scan(
    algorithm: PrefixScan,
    scores: Scores,
    values: Values,
    mask: Mask | None,
    log_decay: LogDecay | None,
    initial: ScanState,
) -> tuple[Values, ScanState]:
    items = leaf(scores.to(initial.m.dtype), values, None if mask is None else mask.unsqueeze(-1))
    states = prefix_states(algorithm, initial, items, log_decay)
    final = ScanState(*(part[:, -1] for part in states))
    return read(ScanState(*(part[:, 1:] for part in states))), final
