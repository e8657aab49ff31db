"""Whether torch.func or forward-mode differentiation is at work, through which a compiled kernel cannot see.

Tensors are then wrappers without memory of their own, or carry tangents that a kernel would drop in silence.
"""

import torch
from torch.autograd import forward_ad


def is_transformed() -> bool:
    """Tell whether a transform (grad, vmap, jvp, ...) or a level of dual numbers is active."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
