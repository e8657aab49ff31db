"""Attention over every prefix by a scan over states, as in the paper: item by item, or by a parallel tree.

    scan_recurrent    t updates, one after the other
    hillis_steele     ceil(log2 N) rounds, O(N log N) combinations (the paper's Algorithm 1, corrected)
    ladner_fischer    at most 2 ceil(log2 N) rounds, at most 2 N combinations

In the trees an element is the state of a run of items; with decay it also carries λ, the decay that the whole
run does to what came before it:  A·B = (λA + λB, combine(A decayed by λB, B)), associative and not
commutative. The algorithms are generic: elements are tuples of tensors (b, t, ...), and one call of the
operator, on (earlier, later) slices of time, is one parallel round.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from aaren.ops.state import Items, ScanState, as_token, decay, join, leaf, read, update
from aaren.shapes import LogDecay, Scores, Values

Elements: TypeAlias = tuple[Tensor, ...]  # each (b, t, ...)
Operator: TypeAlias = Callable[[Elements, Elements], Elements]
PrefixScan: TypeAlias = Callable[[Operator, Elements], Elements]


def scan_recurrent(items: Items, initial: ScanState) -> tuple[Values, ScanState, Scores | None]:
    """Attend to every prefix item by item, in constant memory beside the outputs."""
    scores, values, mask, log_decay, wants_logs = items
    state, outputs, length = initial, [], scores.shape[1]
    logs = [initial.m.unsqueeze(1)[:, :0]]
    # unbind, not indexing: its backward stacks once, where every x[:, k] would add a whole tensor of zeros.
    masks = (None,) * length if mask is None else mask.unsqueeze(-1).unbind(1)
    decays = (None,) * length if log_decay is None else log_decay.unbind(1)
    for score, value, is_real, rate in zip(scores.unbind(1), values.unbind(1), masks, decays, strict=True):
        state = update(state, score, value, mask=is_real, log_decay=rate)
        outputs.append(read(state).to(value.dtype))
        if wants_logs:
            logs.append(as_token(state)[0].unsqueeze(1))
    means = torch.stack(outputs, dim=1) if outputs else values
    return means, state, torch.cat(logs, dim=1) if wants_logs else None


def scan(algorithm: PrefixScan, items: Items, initial: ScanState) -> tuple[Values, ScanState, Scores | None]:
    """Attend to every prefix by a parallel tree, `hillis_steele` or `ladner_fischer`."""
    mask = None if items.mask is None else items.mask.unsqueeze(-1)
    leaves = leaf(items.scores.to(initial.m.dtype), items.values, mask)
    states = prefix_states(algorithm, initial, leaves, items.log_decay)
    final = ScanState(*(part[:, -1] for part in states))
    prefixes = ScanState(*(part[:, 1:] for part in states))
    return read(prefixes), final, as_token(prefixes)[0] if items.wants_logs else None


def prefix_states(
    algorithm: PrefixScan, initial: ScanState, items: ScanState, log_decay: LogDecay | None
) -> ScanState:
    """Return the state after the initial state (b, h) and after each of t items (b, t, h): (b, 1 + t, h)."""
    states = ScanState(*(torch.cat([a.unsqueeze(1), b], dim=1) for a, b in zip(initial, items, strict=True)))
    if log_decay is None:
        return ScanState(*algorithm(_join_runs, states))
    lambdas = torch.cat([torch.zeros_like(initial.m).unsqueeze(1), log_decay.to(initial.m.dtype)], dim=1)
    return ScanState(*algorithm(join_decaying, (lambdas, *states))[1:])


def _join_runs(earlier: Elements, later: Elements) -> Elements:
    return join(ScanState(*earlier), ScanState(*later))


def join_decaying(earlier: Elements, later: Elements) -> Elements:
    """Combine runs with decay: elements are (λ, m, u, w)."""
    state = join(decay(ScanState(*earlier[1:]), later[0]), ScanState(*later[1:]))
    return (earlier[0] + later[0], *state)


def hillis_steele(operator: Operator, elements: Elements) -> Elements:
    """Combine every prefix by doubling offsets 1, 2, 4, ...

    Offsets begin at 1. The paper's Algorithm 1 begins at 2 and so never joins direct neighbours, and it puts
    the later operand first, which is right for commutative operators only.

    >>> hillis_steele(lambda a, b: (a[0] + b[0],), (torch.tensor([[1, 2, 3, 4, 5]]),))[0]
    tensor([[ 1,  3,  6, 10, 15]])
    """
    length = elements[0].shape[1]
    offset = 1
    while offset < length:
        joined = operator(_slice(elements, 0, length - offset), _slice(elements, offset, length))
        elements = _concatenate(_slice(elements, 0, offset), joined)
        offset *= 2
    return elements


def ladner_fischer(operator: Operator, elements: Elements) -> Elements:
    """Combine every prefix with linear work: join pairs, scan the pairs, fill in the places between.

    >>> ladner_fischer(lambda a, b: (a[0] + b[0],), (torch.tensor([[1, 2, 3, 4, 5]]),))[0]
    tensor([[ 1,  3,  6, 10, 15]])
    """
    length = elements[0].shape[1]
    if length < 2:
        return elements
    evens, odds = _slice(elements, 0, length, 2), _slice(elements, 1, length, 2)
    pairs = operator(_slice(evens, 0, length // 2), odds)
    at_odds = ladner_fischer(operator, pairs)  # prefixes that end there
    num_between = (length - 1) // 2  # even places after the first
    at_evens = _slice(evens, 0, 1)
    if num_between:
        between = operator(_slice(at_odds, 0, num_between), _slice(evens, 1, num_between + 1))
        at_evens = _concatenate(at_evens, between)
    both = zip(_slice(at_evens, 0, length // 2), at_odds, strict=True)
    interleaved = tuple(torch.stack(parts, dim=2).flatten(1, 2) for parts in both)
    return _concatenate(interleaved, _slice(at_evens, length // 2, length))


def _slice(elements: Elements, start: int, stop: int, stride: int = 1) -> Elements:
    return tuple(part[:, start:stop:stride] for part in elements)


def _concatenate(first: Elements, second: Elements) -> Elements:
    return tuple(torch.cat(parts, dim=1) for parts in zip(first, second, strict=True))
