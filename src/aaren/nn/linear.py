"""Projections that need not be plain: adapters, hooks and quantisation are honoured by calling them.

And copies for inference, of modules that hold such projections.
"""

import copy
from typing import TypeVar

from torch import Tensor, nn

from aaren.errors import ConfigError

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def is_plain(projection: nn.Module) -> bool:
    """Tell whether a projection is its weight and bias and nothing else, so that these may be read.

    An adapter (LoRA), a hook, a parametrization, pruning, `weight_norm` and quantisation make it another
    function of its input: then only its call is right.

    >>> is_plain(nn.Linear(2, 2)), is_plain(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    (True, False)
    """
    return (
        type(projection) is nn.Linear
        and "forward" not in vars(projection)
        and not (projection._forward_hooks or projection._forward_pre_hooks)
        and not (projection._backward_hooks or projection._backward_pre_hooks)
        and not hasattr(projection.weight, "__tensor_flatten__")  # a wrapper, as quantised weights are
    )


def frozen_copy(module: ModuleT) -> ModuleT:
    """Return a copy for inference: no gradients, no dropout."""
    for name, part in module.named_modules():
        if hasattr(part, "step"):
            refuse_hooks(part, name)
    # `weight_norm`, `spectral_norm` and pruning keep a computed weight beside its parameters, which PyTorch
    # refuses to copy while it remembers how it was computed.
    memo: dict[int, object] = {
        id(value): value.detach().clone()
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    return copy.deepcopy(module, memo).requires_grad_(False).eval()


def refuse_hooks(part: nn.Module, name: str) -> None:
    """Raise if a part that a stream does not go through by its call has forward hooks."""
    if part._forward_hooks or part._forward_pre_hooks:
        raise ConfigError(
            f"{name or 'the model'} ({type(part).__name__}) has a forward hook, or pruning or weight_norm "
            f"that works by one. A stream goes step by step, not through `forward`, and would leave it out. "
            f"Remove it, put it on a layer inside, or use torch.nn.utils.parametrize."
        )
