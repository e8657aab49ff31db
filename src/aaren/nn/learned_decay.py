"""LearnedDecay: how fast each head forgets, per item, as one learned number per head."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.shapes import LogDecay, Mask

# The first head starts with the shorter, the last with the longer half-life; between them in even ratios.
# Different memories from the start, as heads that begin alike stay alike.
SHORTEST_HALF_LIFE_ITEMS = 32.0
LONGEST_HALF_LIFE_ITEMS = 2048.0


class LearnedDecay(nn.Module):
    """log_decay = -softplus(rate) for every real item, 0 on padding.

    >>> log_decay = LearnedDecay(1)((1, 3), mask=torch.tensor([[True, True, False]]))
    >>> (log_decay.exp() ** 32).round(decimals=4).flatten().tolist()  # after 32 items; padding is free
    [0.5, 0.5, 1.0]
    """

    def __init__(
        self, num_heads: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.rate = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Spread the heads' half-lives evenly (in ratio) over the range above."""
        exponents = torch.linspace(
            math.log(SHORTEST_HALF_LIFE_ITEMS), math.log(LONGEST_HALF_LIFE_ITEMS), self.num_heads
        )
        decay_per_item = math.log(2) / exponents.exp()
        self.rate.copy_(decay_per_item.expm1().log())  # the inverse of softplus

    def extra_repr(self) -> str:
        """Describe the module."""
        return f"num_heads={self.num_heads}"

    def forward(self, shape: tuple[int, ...], mask: Mask | None = None) -> LogDecay:
        """Return log_decay (*shape, h); padding does not decay."""
        log_decay: Tensor = -F.softplus(self.rate)
        log_decay = log_decay.expand(*shape, self.num_heads)
        return log_decay if mask is None else log_decay.masked_fill(~mask.unsqueeze(-1), 0.0)
