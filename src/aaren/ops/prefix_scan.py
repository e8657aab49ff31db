"""Two parallel prefix scans for any associative operator; they know nothing of attention.

Elements are tuples of tensors that share a time axis, axis 1. The operator takes (earlier, later) and works
on whole slices of time at once, so one call of it is one parallel round. The operator need not commute.

    hillis_steele    ceil(log2 N) rounds,            O(N log N) combinations   (the paper's Algorithm 1,
    corrected) ladner_fischer   at most 2 ceil(log2 N) rounds,  at most 2 N combinations
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

Elements: TypeAlias = tuple[Tensor, ...]  # each (b, t, ...)
Operator: TypeAlias = Callable[[Elements, Elements], Elements]


def hillis_steele(operator: Operator, elements: Elements) -> Elements:
    """Combine every prefix by doubling offsets 1, 2, 4, ...

    Offsets begin at 1. The paper's Algorithm 1 begins at 2 and so never joins direct neighbours, and it puts
    the later operand first, which only a commutative operator forgives.

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
    num_pairs = length // 2
    pairs = operator(_slice(evens, 0, num_pairs), odds)
    at_odds = ladner_fischer(operator, pairs)  # the prefix that ends at each odd place
    num_between = (length - 1) // 2  # even places after the first
    at_evens = _slice(evens, 0, 1)
    if num_between:
        between = operator(_slice(at_odds, 0, num_between), _slice(evens, 1, num_between + 1))
        at_evens = _concatenate(at_evens, between)
    return _interleave(at_evens, at_odds)


def _slice(elements: Elements, start: int, stop: int, stride: int = 1) -> Elements:
    return tuple(part[:, start:stop:stride] for part in elements)


def _concatenate(first: Elements, second: Elements) -> Elements:
    return tuple(torch.cat(parts, dim=1) for parts in zip(first, second, strict=True))


def _interleave(at_evens: Elements, at_odds: Elements) -> Elements:
    return tuple(_interleave_one(even, odd) for even, odd in zip(at_evens, at_odds, strict=True))


def _interleave_one(even: Tensor, odd: Tensor) -> Tensor:
    paired = torch.stack([even[:, : odd.shape[1]], odd], dim=2).flatten(1, 2)
    return torch.cat([paired, even[:, odd.shape[1] :]], dim=1)
