"""FeedForward: two linear layers with an activation between, on each item by itself."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.nn.dropout import drop

ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}


class FeedForward(nn.Module):
    """Widen, activate, (drop,) narrow.

    >>> FeedForward(8, 32)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        width: int,
        inner_width: int,
        *,
        activation: str = "gelu",
        inner_dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.inner_dropout = inner_dropout
        self.widen = nn.Linear(width, inner_width, device=device, dtype=dtype)
        self.narrow = nn.Linear(inner_width, width, device=device, dtype=dtype)

    def extra_repr(self) -> str:
        """Describe what the submodules do not show."""
        return f"activation={self.activation!r}, inner_dropout={self.inner_dropout}"

    def forward(self, x: Tensor) -> Tensor:
        """Transform each item, (*, c), by itself."""
        inner: Tensor = ACTIVATION_FUNCTIONS[self.activation](self.widen(x))
        if self.training:
            inner = drop(inner, self.inner_dropout)
        narrowed: Tensor = self.narrow(inner)
        return narrowed
