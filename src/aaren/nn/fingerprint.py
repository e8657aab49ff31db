"""Short names of models, to be kept with the states that they made: a hash of their weights and config.

Rounded to float32, so that a copy in another precision keeps its name. Only numbers as they are stored are
hashed: a product of them may differ in the last bit from one machine to the next.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, asdict, fields
from typing import Protocol

import torch
from torch import Tensor, nn


class Named(Protocol):
    """A part that names its own weights."""

    def fingerprint(self) -> str:
        """Return the name."""


def fingerprint_around(part: Named, whole: nn.Module) -> str:
    """Return a short name of a model of which one part, its encoder, has a name: folded, it is the same.

    Weights are told apart by where they stand, not by what they are: tied ones count at both places, as they
    do when the model has been saved and loaded.
    """
    inside = next(name for name, module in whole.named_modules() if module is part) + "."
    around = _tensors(value for name, value in whole.state_dict().items() if not name.startswith(inside))
    named = part.fingerprint() + describe_config(getattr(whole, "config", None)) + hash_weights(around)
    return hashlib.sha256(named.encode()).hexdigest()[:16]


def describe_config(config: object) -> str:
    """Return what is not as usual in a config, except dropout, which no state depends on.

    Only what differs from the defaults, so that a field to come leaves the names that are.
    """
    if config is None:
        return ""
    usual = {field.name: field.default for field in fields(config)}  # type: ignore[arg-type]  # a dataclass
    values = asdict(config)  # type: ignore[call-overload]  # the same
    told = {
        name: value
        for name, value in values.items()
        if "dropout" not in name and (usual[name] is MISSING or value != usual[name])
    }
    return json.dumps(told, sort_keys=True, default=str)


def tensors_of(module: nn.Module) -> Iterator[Tensor]:
    """Walk through all that a module would save: weights, masks of pruning, quantised weights."""
    return _tensors(module.state_dict().values())


def _tensors(values: Iterable[object]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def hash_weights(weights: Iterable[Tensor | None]) -> str:
    """Return the hash of shapes and numbers; what is None is left out.

    >>> hash_weights([torch.ones(2), None]) == hash_weights([torch.ones(2).double()])
    True
    """
    digest = hashlib.sha256()
    for weight in weights:
        if weight is not None:
            digest.update(str(tuple(weight.shape)).encode())
            numbers = weight.detach().dequantize() if weight.is_quantized else weight.detach()
            digest.update(numbers.to("cpu", torch.float32).numpy().tobytes())
    return digest.hexdigest()
