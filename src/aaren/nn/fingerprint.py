"""Short names of weights, to be kept with the states that they made: a hash of their numbers.

Rounded to float32, so that a copy in another precision keeps its name. Only numbers as they are stored are
hashed: a product of them may differ in the last bit from one machine to the next.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Protocol

import torch
from torch import Tensor, nn


class Named(Protocol):
    """A part that names its own weights."""

    def fingerprint(self) -> str:
        """Return the name."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Walk through the weights."""


def fingerprint_around(part: Named, whole: nn.Module) -> str:
    """Return a short name of all weights of a model, one part of which has a name: folded, it is the same."""
    inside = set(map(id, part.parameters()))
    around = [weight for weight in whole.parameters() if id(weight) not in inside]
    return hashlib.sha256((part.fingerprint() + hash_weights(around)).encode()).hexdigest()[:16]


def hash_weights(weights: Iterable[Tensor | None]) -> str:
    """Return the hash of shapes and numbers; what is None is left out.

    >>> hash_weights([torch.ones(2), None]) == hash_weights([torch.ones(2).double()])
    True
    """
    digest = hashlib.sha256()
    for weight in weights:
        if weight is not None:
            digest.update(str(tuple(weight.shape)).encode())
            digest.update(weight.detach().to("cpu", torch.float32).numpy().tobytes())
    return digest.hexdigest()
